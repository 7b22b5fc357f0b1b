"""
The controller of ``docs/howto/add-a-controller.rst``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, fail

from tests.apiserver.support import EVENTS, MACHINES, machine
from tests.examples.test_examples import EXAMPLES
from tests.examples.test_kind import NOTES, NoteTestCase
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.kinds.validation import CONDITIONS
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import struct
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.control.backoff import FIRST_PAUSE_SECONDS
from twisted_exec.program.tasks import REST_SECONDS, TURN_SECONDS


class NoteControllerTests(NoteTestCase):
    """``note_controller.py``, with an API server in memory."""

    def notes(self) -> Kind:
        """Return the kind of the notes, with a status."""
        notes = super().notes()
        status = struct({"conditions": CONDITIONS}, description="status is the observed state.")
        return replace(notes, has_status=True, schema={**notes.schema, "status": status})

    def setUp(self) -> None:
        super().setUp()
        self.module: dict[str, Any] = {"__name__": "note_controller"}
        exec((EXAMPLES / "note_controller.py").read_text(), self.module)
        machines = [dialect.workload for dialect in self.dialects]
        parts = (self.storage, self.parts.verbs, self.clock, self.clock.seconds)
        controller = self.module["NoteController"](self.kind, machines, *parts)
        controller.startService()
        self.addCleanup(controller.stopService)
        self.create("disk")

    def create(self, name: str) -> None:
        note = {"metadata": {"name": name}, "spec": {"machine": "vm", "text": "full"}}
        self.answer("POST", NOTES, note, code=201)

    def found(self) -> str:
        self.clock.advance(0)
        (condition,) = self.answer("GET", f"{NOTES}/disk")["status"]["conditions"]
        return str(condition["status"])

    def test_machine(self) -> None:
        """The condition follows the machine, and each loss of it is an Event."""
        self.assertEqual(self.found(), "False")
        self.answer("POST", MACHINES, machine("vm"), code=201)
        self.assertEqual(self.found(), "True")
        self.answer("DELETE", f"{MACHINES}/vm")
        self.assertEqual(self.found(), "False")
        (event,) = self.answer("GET", EVENTS)["items"]
        self.assertEqual((event["reason"], event["count"]), ("MachineNotFound", 2))

    def test_nothing_new(self) -> None:
        """A change that leaves the status right causes no write."""
        self.found()
        changed = self.answer("GET", f"{NOTES}/disk")
        changed["spec"]["text"] = "nearly full"
        version = self.answer("PUT", f"{NOTES}/disk", changed)["metadata"]["resourceVersion"]
        self.clock.advance(60)
        self.assertEqual(str(self.storage.version()), version)

    def test_refused(self) -> None:
        """A write that the store refuses is repeated after a pause."""
        real = self.storage.update

        def refuse(resource: Resource, obj: Object) -> Deferred[Object]:
            return fail(ServiceUnavailable("the disk is full"))

        self.found()
        self.storage.update = refuse  # type: ignore[method-assign]
        self.answer("POST", MACHINES, machine("vm"), code=201)
        self.assertEqual(self.found(), "False")
        self.storage.update = real  # type: ignore[method-assign]
        self.assertEqual(self.found(), "False")
        self.clock.advance(FIRST_PAUSE_SECONDS)
        self.assertEqual(self.found(), "True")

    def test_short_turns(self) -> None:
        """After 2 ms of work on the notes of a machine, others have their turn."""
        looked_at = []

        def slow(note: Object, found: bool, now: str) -> None:
            self.clock.rightNow += 0.75 * TURN_SECONDS
            looked_at.append(note)

        for number in range(5):
            self.create(f"disk-{number}")
        self.found()
        self.module["plan"] = slow
        self.answer("POST", MACHINES, machine("vm"), code=201)
        self.clock.advance(0)
        self.assertEqual(len(looked_at), 2)
        self.clock.advance(REST_SECONDS)
        self.assertEqual(len(looked_at), 4)
