"""
The controller of ``docs/howto/add-a-controller.rst``.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.support import EVENTS, MACHINES, machine
from tests.examples.test_examples import EXAMPLES
from tests.examples.test_kind import NOTES, NoteTestCase, notes
from twisted_exec.api import kinds
from twisted_exec.api.conditions import condition_of
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.kinds.validation import CONDITIONS
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import struct
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.control.backoff import FIRST_PAUSE_SECONDS
from twisted_exec.testing.cluster import MemoryCluster


def example(name: str) -> Any:
    """Return a module of ``docs/examples``, which may import others there."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EXAMPLES))


def notes_with_status() -> Kind:
    """Return the kind of ``note_kind.py``, with a status."""
    kind = notes()
    status = struct({"conditions": CONDITIONS}, description="status is the observed state.")
    return replace(kind, has_status=True, schema={**kind.schema, "status": status})


class NoteControllerTests(NoteTestCase):
    """``note_controller.py``, with an API server in memory."""

    def notes(self) -> Kind:
        """Return the kind of the notes, with a status."""
        return notes_with_status()

    def setUp(self) -> None:
        super().setUp()
        machines = [dialect.workload for dialect in self.dialects]
        parts = (self.storage, self.parts.verbs, self.clock, self.clock.seconds)
        controller = example("note_controller").NoteController(self.kind, machines, *parts)
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

    def test_bug(self) -> None:
        """A note whose plan raises has an Event that says so, once, and holds up no other."""
        module = example("note_queue")
        real = module.plan

        def plan(note: Object, *others: Any) -> Object | None:
            if note["metadata"]["name"] == "bad":
                raise ZeroDivisionError("secret")
            planned: Object | None = real(note, *others)
            return planned

        self.patch(module, "plan", plan)
        self.create("bad")
        self.create("good")
        self.clock.pump([30] * 4)
        (event,) = (each for each in self.answer("GET", EVENTS)["items"] if "bad" in str(each))
        self.assertEqual((event["reason"], event["count"]), ("NotUpdated", 1))
        self.assertNotIn("secret", event["message"])
        self.assertTrue(self.answer("GET", f"{NOTES}/good")["status"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class NoteProgramTests(SynchronousTestCase):
    """``note_program.py``, with a cluster in memory."""

    def setUp(self) -> None:
        kind, self.clock = notes_with_status(), Clock()
        self.cluster, self.notes = MemoryCluster((*kinds.ALL, kind)), kind.resource
        program = example("note_program").program(
            self.cluster.client(),
            self.notes,
            kinds.MACHINES.resource,
            self.clock,
            self.clock.seconds,
        )
        program.start()
        self.addCleanup(lambda: self.successResultOf(program.stop()))
        self.create(self.notes, {"metadata": {"name": "disk"}, "spec": {"machine": "vm"}})

    def create(self, resource: Resource, obj: Object) -> None:
        self.successResultOf(self.cluster.client().create(resource, obj, "default"))

    def found(self) -> str:
        self.clock.advance(0)
        note = self.successResultOf(self.cluster.client().get(self.notes, "disk", "default"))
        return str(condition_of(note, "MachineFound")["status"])

    def test_machine(self) -> None:
        """The condition follows the machine, and each loss of it is an Event."""
        self.assertEqual(self.found(), "False")
        self.create(kinds.MACHINES.resource, machine("vm"))
        self.assertEqual(self.found(), "True")
        self.successResultOf(self.cluster.client().delete(kinds.MACHINES.resource, "vm", "default"))
        self.assertEqual(self.found(), "False")
        events = self.successResultOf(self.cluster.client().list(kinds.EVENTS.resource))["items"]
        (event,) = (each for each in events if each["involvedObject"]["name"] == "disk")
        self.assertEqual((event["reason"], event["count"]), ("MachineNotFound", 2))
