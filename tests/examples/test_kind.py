"""
The kind of ``docs/howto/add-a-kind.rst``.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.api.kinds.support import KindTestCase
from tests.apiserver.support import APITestCase
from tests.examples.test_examples import EXAMPLES
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Kind

NOTES = "/apis/console.twisted-exec.dev/v1alpha1/namespaces/default/machinenotes"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def notes() -> Kind:
    """Return the kind of ``note_kind.py``."""
    namespace: dict[str, Any] = {"__name__": "note_kind"}
    exec((EXAMPLES / "note_kind.py").read_text(), namespace)
    kind: Kind = namespace["MACHINENOTES"]
    return kind


def without_notes(listed: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """Return the kinds without MachineNotes, which a reader of the page may have added."""
    return tuple(kind for kind in listed if kind.resource.plural != "machinenotes")


def list_notes(case: SynchronousTestCase, kind: Kind) -> None:
    """Let servers of a test have a kind of notes."""
    for name in ("_CONSOLE_KINDS", "_OTHERS"):
        case.patch(kinds, name, without_notes(getattr(kinds, name)))
    case.patch(kinds, "_OTHERS", (*kinds._OTHERS, kind))


class NoteRuleTests(KindTestCase):
    """Rules of MachineNotes."""

    kind = notes()
    good = {"machine": "vm", "text": "replace the disk"}

    def test_needed(self) -> None:
        """The machine and the text are required."""
        self.assertEqual(self.create(spec=self.good)["spec"]["severity"], "Info")
        self.assertEqual(
            self.refused(spec={}), ["spec.machine: Required value", "spec.text: Required value"]
        )

    def test_immutable(self) -> None:
        """A note stays with its machine."""
        refused = self.update_refused(
            self.create(spec=self.good), spec={**self.good, "machine": "x"}
        )
        self.assertEqual(refused, ["spec.machine: Forbidden: field is immutable"])

    def test_text(self) -> None:
        """The text may change, which counts as a new generation."""
        note = self.update(self.create(spec=self.good), spec={**self.good, "text": "done"})
        self.assertEqual(note["metadata"]["generation"], 2)


class NoteTestCase(APITestCase):
    """An API server in memory that serves notes."""

    def notes(self) -> Kind:
        """Return the kind; a subclass may change it."""
        return notes()

    def setUp(self) -> None:
        self.kind = self.notes()
        list_notes(self, self.kind)
        super().setUp()


class NoteKindTests(NoteTestCase):
    """Notes as ``note_kind.py`` defines them."""

    def create(self, code: int = 201, **spec: str) -> Any:
        note = {"metadata": {"name": "disk"}, "spec": {"machine": "vm", "text": "full", **spec}}
        return self.answer("POST", NOTES, note, code=code)

    def test_columns(self) -> None:
        """``kubectl get`` shows the machine and the default severity."""
        self.create()
        table = self.answer("GET", NOTES, headers=[("Accept", TABLE)])
        names = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
        self.assertEqual(names, ["Name", "Machine", "Severity", "Age"])
        self.assertEqual(table["rows"][0]["cells"][:3], ["disk", "vm", "Info"])

    def test_field_selector(self) -> None:
        """Notes can be selected by their machine."""
        self.create()
        for machine, count in (("vm", 1), ("other", 0)):
            selected = self.answer("GET", f"{NOTES}?fieldSelector=spec.machine={machine}")
            self.assertEqual(len(selected["items"]), count, machine)

    def test_invalid(self) -> None:
        """Each wrong field is refused with 422, which names the field."""
        for field, value in (
            ("machine", "No_Name"),
            ("machine", "web.lab"),
            ("severity", "Bad"),
            ("text", "two\nlines"),
            ("dueTime", "tomorrow"),
        ):
            status = self.create(422, **{field: value})
            causes = [cause["field"] for cause in status["details"]["causes"]]
            self.assertEqual(causes, [f"spec.{field}"])

    def test_immutable(self) -> None:
        """A note stays with its machine."""
        note = self.create()
        note["spec"]["machine"] = "other"
        self.assertIn("field is immutable", self.refused(422, "PUT", f"{NOTES}/disk", note))
