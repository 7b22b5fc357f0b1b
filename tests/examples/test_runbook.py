"""
``runbook_kind.py`` and ``runbook_controller.py`` of ``docs/howto``.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from tests.api.kinds.support import KindTestCase
from tests.apiserver.support import MACHINES, MERGE, NAMESPACES, APITestCase
from tests.apiserver.support import machine as new_machine
from tests.examples.test_controller import example
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.control.backoff import FIRST_PAUSE_SECONDS
from twisted_exec.program.turns import REST_SECONDS, TURN_SECONDS
from twisted_exec.storage.interfaces import ADDED, DELETED, MODIFIED, Event

RUNBOOKS = example("runbook_kind").RUNBOOKS
PATH = "/apis/console.twisted-exec.dev/v1alpha1/namespaces/default/runbooks"
controller = example("runbook_controller")


def machine(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": labels} if labels else {"name": name}}


class RunbookKindTests(KindTestCase):
    """The rules of ``runbook_kind.py``."""

    kind = RUNBOOKS

    def test_invalid(self) -> None:
        """Control characters, other addresses and a selector with In and no values are refused."""
        unfinished = {"matchExpressions": [{"key": "role", "operator": "In"}]}
        for spec, cause in (
            ({"steps": "stop\x1b[2J"}, "spec.steps: Invalid value: "),
            ({"link": "http://wiki"}, "spec.link: Invalid value: "),
            ({"link": "https://"}, "spec.link: Invalid value: "),
            ({"link": "https://wiki/a b"}, "spec.link: Invalid value: "),
            (
                {"machineSelector": unfinished},
                "spec.machineSelector.matchExpressions[0].values: Required value: ",
            ),
        ):
            (found,) = self.refused(spec={"steps": "stop", **spec})
            self.assertTrue(found.startswith(cause), found)

    def test_valid(self) -> None:
        """Steps have lines; a link has a path and a query."""
        spec = {"steps": "stop\n\nstart\n", "link": "https://wiki/disks?page=1"}
        self.assertEqual(self.create(spec=spec)["spec"], spec)


class SelectionTests(KindTestCase):
    """The functions of ``runbook_controller.py``."""

    kind = RUNBOOKS

    def selected(self, selector: Any = None) -> list[str]:
        spec = {"steps": "stop"} if selector is None else {"steps": "", "machineSelector": selector}
        machines = [machine("db-1", role="db"), machine("web-1", role="web"), machine("bare")]
        found = controller.selected(self.create(spec=spec), machines, Clock())
        chosen = self.successResultOf(Deferred.fromCoroutine(found))
        return [each["metadata"]["name"] for each in chosen]

    def test_selected(self) -> None:
        """The labels decide; an empty selector selects all machines."""
        without = {"matchExpressions": [{"key": "role", "operator": "DoesNotExist"}]}
        for selector, names in (
            (None, ["db-1", "web-1", "bare"]),
            ({}, ["db-1", "web-1", "bare"]),
            ({"matchLabels": {"role": "db"}}, ["db-1"]),
            (without, ["bare"]),
        ):
            self.assertEqual(self.selected(selector), names, selector)

    def test_turns(self) -> None:
        """Many machines are compared in short turns."""
        clock, machines = Clock(), [machine(f"vm-{number}") for number in range(10)]

        def slow() -> Any:
            for each in machines:
                clock.rightNow += TURN_SECONDS
                yield each

        made = Deferred.fromCoroutine(
            controller.selected(self.create(spec={"steps": ""}), slow(), clock)
        )
        self.assertNoResult(made)
        clock.pump([REST_SECONDS] * len(machines))
        self.assertEqual(len(self.successResultOf(made)), len(machines))

    def test_changes(self) -> None:
        """A change of the labels counts, and no other change of a machine that stays."""
        plain, db = machine("vm"), machine("vm", role="db")
        for type, before, after, counts in (
            (ADDED, None, plain, True),
            (MODIFIED, plain, db, True),
            (MODIFIED, db, plain, True),
            (MODIFIED, db, {**db, "status": {}}, False),
            (MODIFIED, plain, machine("vm"), False),
            (DELETED, db, db, True),
        ):
            event = Event(type, after, before, 1)
            self.assertIs(controller.may_be_selected_anew(event), counts, event)


class RunbookControllerTests(APITestCase):
    """``RunbookController``, with an API server in memory."""

    def setUp(self) -> None:
        others = tuple(each for each in kinds._OTHERS if each.resource != RUNBOOKS.resource)
        self.patch(kinds, "_OTHERS", (*others, RUNBOOKS))
        super().setUp()
        machines = [dialect.workload for dialect in self.dialects]
        parts = RUNBOOKS, machines, self.storage, self.parts.verbs, self.clock
        self.controller = controller.RunbookController(*parts)
        self.controller.startService()
        self.addCleanup(self.controller.stopService)
        spec = {"steps": "stop", "machineSelector": {"matchLabels": {"role": "db"}}}
        self.answer("POST", PATH, {"metadata": {"name": "disks"}, "spec": spec}, code=201)

    def label(self, name: str, **labels: str | None) -> None:
        change = {"metadata": {"labels": labels}}
        self.answer("PATCH", f"{MACHINES}/{name}", change, content_type=MERGE)

    def machines(self) -> int:
        self.clock.advance(0)
        count: int = self.stored(RUNBOOKS, "disks")["status"]["machines"]
        return count

    def test_machines(self) -> None:
        """The count follows machines, their labels, and the selector."""
        self.assertEqual(self.machines(), 0)
        for name in ("a", "b"):
            self.make_machine(name)
        self.assertEqual(self.machines(), 0)
        for name in ("a", "b"):
            self.label(name, role="db")
        self.assertEqual(self.machines(), 2)
        self.label("a", role=None)
        self.assertEqual(self.machines(), 1)
        self.answer("DELETE", f"{MACHINES}/b")
        self.assertEqual(self.machines(), 0)
        anything = {"spec": {"machineSelector": {"matchLabels": None}}}
        self.answer("PATCH", f"{PATH}/disks", anything, content_type=MERGE)
        self.assertEqual(self.machines(), 1)

    def test_nothing_new(self) -> None:
        """A change that leaves the count right causes no write."""
        self.make_machine("a")
        self.machines()
        written: list[Object] = []

        def update(_: Resource, obj: Object, *__: Any, **___: Any) -> Deferred[Object]:
            written.append(obj)
            return succeed(obj)

        self.patch(self.controller._client, "update", update)
        self.label("a", other="x")
        self.clock.advance(60)
        self.assertEqual(written, [])
        self.label("a", role="db")
        self.clock.advance(60)
        self.assertEqual([each["status"] for each in written], [{"machines": 1}])

    def test_other_namespace(self) -> None:
        """Machines of other namespaces do not count."""
        self.answer("POST", NAMESPACES, {"metadata": {"name": "other"}}, code=201)
        vm = machine("a", role="db")
        there = {**vm, "spec": new_machine("a")["spec"]}
        self.answer("POST", MACHINES.replace("/default/", "/other/"), there, code=201)
        self.make_machine("b")  # the runbook is looked at again
        self.assertEqual(self.machines(), 0)
        self.label("b", role="db")
        self.assertEqual(self.machines(), 1)

    def test_refused(self) -> None:
        """A write that the store refuses is repeated after a pause."""
        self.machines()
        real = self.storage.update
        self.storage.update = lambda *_: fail(ServiceUnavailable("full"))  # type: ignore[method-assign]
        vm = new_machine("a")
        vm["metadata"]["labels"] = {"role": "db"}
        self.answer("POST", MACHINES, vm, code=201)
        self.assertEqual(self.machines(), 0)
        self.storage.update = real  # type: ignore[method-assign]
        self.clock.advance(FIRST_PAUSE_SECONDS)
        self.assertEqual(self.machines(), 1)

    def test_deleted(self) -> None:
        """A deleted runbook leaves nothing behind."""
        self.answer("DELETE", f"{PATH}/disks")
        self.make_machine("a")
        self.clock.advance(60)
        self.assertEqual(self.controller._runbooks, {})
