"""
Contract of the parts of controllers, over each store and over a client.

The controller is the example of ``docs/howto/add-a-controller.rst``, with an election. Its time is a ``Clock``,
which passes only while no request is under way: the answers of real stores take real time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from twisted.internet.defer import Deferred, fail, gatherResults
from twisted.internet.task import Clock

from tests import soak
from tests.examples.test_controller import example, notes_with_status
from tests.examples.test_kind import list_notes
from tests.runtimes.support import pause
from twisted_exec.api.conditions import condition_of
from twisted_exec.api.kinds import EVENTS, LEASES, MACHINES, NAMESPACES, Kind
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    Conflict,
    Expired,
    ServiceUnavailable,
    TooManyRequests,
)
from twisted_exec.apiserver.controllers.leader_election import LeaderElectedServices
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.control.backoff import FIRST_PAUSE_SECONDS
from twisted_exec.storage.delegating import DelegatingStorage
from twisted_exec.storage.interfaces import DELETED, Event, IStorage, Listing, Object

EPOCH = 1_700_000_000.0
STEP_SECONDS = 0.25
YEAR_SECONDS = 365 * 86400.0

Fault = Callable[[str, Resource, Object], "Deferred[Any] | None"]
"""Returns the answer to a request, or ``None`` to pass it on; the object of a list is empty."""


def passed_on(verb: str, resource: Resource, obj: Object) -> None:
    """A fault that does nothing."""


class FaultyStorage(DelegatingStorage):
    """
    A store whose answers a test can replace.

    :ivar pending: requests of the controller that the store has not answered.
    :ivar has_hung: whether it has left one without an answer on purpose.
    """

    def __init__(self, storage: IStorage) -> None:
        super().__init__(storage)
        self.fault: Fault = passed_on
        self.pending, self.has_hung = 0, False

    def hang(self) -> Deferred[Any]:
        """Return an answer that never comes."""
        self.has_hung = True
        return Deferred()

    def list(self, resource: Resource, *arguments: Any, **more: Any) -> Deferred[Listing]:
        """As :meth:`IStorage.list`."""
        answer = self.fault("list", resource, {})
        return answer or self._counted(super().list(resource, *arguments, **more))

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """As :meth:`IStorage.create`."""
        return self._counted(super().create(resource, obj))

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """As :meth:`IStorage.update`."""
        answer = self.fault("update", resource, obj)
        return answer or self._counted(super().update(resource, obj))

    def _counted(self, answer: Deferred[Any]) -> Deferred[Any]:
        def answered(result: Any) -> Any:
            self.pending -= 1
            return result

        self.pending += 1
        return answer.addBoth(answered)


class Candidate:
    """
    A replica of the controller.

    :ivar services: those of its term; none while another replica leads.
    """

    def __init__(self, elected: Any, stop: Callable[[], Deferred[Any]]) -> None:
        self._elected, self._stop = elected, stop
        self.is_stopped = False

    @property
    def services(self) -> Any:
        return self._elected.services

    async def stop(self) -> None:
        """Stop once."""
        if not self.is_stopped:
            self.is_stopped = True
            await self._stop()


class ControllerContract:
    """Mix into a ``TestCase`` that makes a store."""

    async def make_storage(self: Any) -> IStorage:
        """An empty store, which is ready and stopped after the test."""
        raise NotImplementedError

    async def make_ready(self: Any) -> None:
        """Prepare for candidates."""
        self.verbs = Verbs(self.faulty, [], self.now)

    def candidate(self: Any, name: str) -> Candidate:
        """A started replica, which is stopped after the test."""

        def make() -> list[Any]:
            parts = ([MACHINES.resource], self.faulty, self.verbs, self.clock, self.now)
            return [example("note_controller").NoteController(self.kind, *parts)]

        elected = LeaderElectedServices(make, self.faulty, self.verbs, name, self.clock, self.now)
        elected.startService()
        return self.stopped_in_the_end(Candidate(elected, elected.stopService))

    def is_busy(self: Any) -> bool:
        """Whether an answer is still to come."""
        return bool(self.faulty.pending)

    def stopped_in_the_end(self: Any, candidate: Candidate) -> Candidate:
        self.addCleanup(lambda: Deferred.fromCoroutine(candidate.stop()))
        self.candidates.append(candidate)
        return candidate

    async def setUp(self: Any) -> None:
        self.kind = notes_with_status()
        list_notes(self, self.kind)
        self.clock, self.wall = Clock(), EPOCH
        self.candidates: list[Candidate] = []
        self.notes: dict[str, Object] = {}
        self.writes: dict[str, int] = {}
        self.events: dict[str, Object] = {}
        self.storage = await self.make_storage()
        self.faulty = FaultyStorage(self.storage)
        await self.make_ready()
        for namespace in ("default", "kube-system"):
            try:
                await self.make(NAMESPACES, namespace, "")
            except AlreadyExists:
                pass
        for resource, changed in (
            (self.kind.resource, self.note_changed),
            (EVENTS.resource, self.event_recorded),
        ):
            watch = self.storage.watch(resource, None, changed)
            self.addCleanup(watch.stop)

    def now(self: Any) -> float:
        return float(self.wall + self.clock.seconds())

    def note_changed(self: Any, event: Event) -> None:
        name = event.obj["metadata"]["name"]
        self.notes[name] = event.obj
        self.writes[name] = self.writes.get(name, -1) + 1

    def event_recorded(self: Any, event: Event) -> None:
        if event.type != DELETED and event.obj["involvedObject"]["kind"] == self.kind.resource.kind:
            self.events[event.obj["metadata"]["name"]] = event.obj

    def found(self: Any, name: str) -> str:
        """The status of a note's condition, or ``""``."""
        return str(condition_of(self.notes.get(name, {}), "MachineFound").get("status", ""))

    def reports(self: Any) -> list[str]:
        """The causes of failures that notes have as Events."""
        events = self.events.values()
        return [each["message"] for each in events if each["reason"] == "NotUpdated"]

    async def make(
        self: Any, kind: Kind, name: str, namespace: str = "default", **more: Any
    ) -> Object:
        metadata = {"name": name, "uid": f"uid-of-{name}", "generation": 1}
        if namespace:
            metadata["namespace"] = namespace
        obj = {
            "apiVersion": kind.resource.api_version,
            "kind": kind.resource.kind,
            "metadata": metadata,
            **more,
        }
        made: Object = await self.storage.create(kind.resource, obj)
        return made

    async def make_note(self: Any, name: str, machine: str = "vm") -> None:
        spec = {"machine": machine, "text": "full", "severity": "Info"}
        await self.make(self.kind, name, spec=spec)

    async def make_machine(self: Any) -> Object:
        spec = {"machineClassRef": {"name": "small"}, "power": "On"}
        made: Object = await self.make(MACHINES, "vm", spec=spec)
        return made

    async def until(self: Any, condition: Callable[[], object]) -> None:
        """Let time pass until a condition holds; the test's timeout bounds it."""
        while not condition():
            self.clock.advance(0 if self.is_busy() else STEP_SECONDS)
            leading = [each for each in self.candidates if each.services]
            self.assertLessEqual(len(leading), 1)
            await pause()

    async def leader(self: Any, name: str) -> Candidate:
        candidate: Candidate = self.candidate(name)
        await self.until(lambda: candidate.services)
        return candidate

    async def test_lost_lease(self: Any) -> None:
        """
        A leader that loses its Lease in the middle of a write stops before another leads, and its write, if it is
        made late, changes nothing.
        """
        writing: list[Object] = []

        def fault(verb: str, resource: Resource, obj: Object) -> Deferred[Any] | None:
            if verb != "update":
                return None
            if resource == self.kind.resource and not writing:
                writing.append(obj)
                return self.faulty.hang()
            if resource == LEASES.resource and obj["spec"]["holderIdentity"] == "a":
                return fail(ServiceUnavailable("cut off"))
            return None

        await self.leader("a")
        second = self.candidate("b")
        self.faulty.fault = fault
        await self.make_note("disk")
        await self.until(lambda: writing)
        self.assertEqual(second.services, ())
        await self.make_machine()
        await self.until(lambda: second.services and self.found("disk") == "True")
        with self.assertRaises(Conflict):
            await self.storage.update(self.kind.resource, writing[0])
        self.assertEqual((self.found("disk"), self.writes["disk"]), ("True", 1))

    async def test_refusals(self: Any) -> None:
        """
        A store that refuses lists and writes, and then hangs, delays the object of the write only; a controller
        that waits for it can stop.
        """
        refusals: dict[str, APIError] = {
            "list": Expired("too old"),
            "n409": Conflict("it has changed"),
            "n410": Expired("gone"),
            "n429": TooManyRequests("busy", 2),
            "n503": ServiceUnavailable("down"),
        }
        refused: list[str] = []

        async def conflict(obj: Object) -> None:
            current = await self.storage.get(self.kind.resource, "default", "n409")
            metadata = {**current["metadata"], "labels": {"changed": "meanwhile"}}
            await self.storage.update(self.kind.resource, {**current, "metadata": metadata})
            raise refusals["n409"]

        def fault(verb: str, resource: Resource, obj: Object) -> Deferred[Any] | None:
            if resource != self.kind.resource:
                return None
            name = "list" if verb == "list" else obj["metadata"]["name"]
            if name == "hangs":
                refused.append(name)
                return self.faulty.hang()
            if name in refused or name not in refusals:
                return None
            refused.append(name)
            if name == "n409":
                return Deferred.fromCoroutine(conflict(obj))
            return fail(refusals[name])

        self.faulty.fault = fault
        for name in ("hangs", "n409", "n410", "n429", "n503", "good"):
            await self.make_note(name)
        candidate = await self.leader("a")
        others = ("n409", "n410", "n429", "n503", "good")
        await self.until(lambda: all(self.found(each) == "False" for each in others))
        await self.until(lambda: "hangs" in refused)
        self.assertEqual(set(refused), {*refusals, "hangs"})
        self.assertEqual(self.found("hangs"), "")
        await self.until(lambda: any("no answer" in text for text in self.reports()))
        await candidate.stop()

    async def test_clock(self: Any) -> None:
        """
        A leader goes on when the wall clock jumps; after a process stood still, one replica leads and goes on. No
        jump causes a write.
        """
        leader, transitions = await self.leader("a"), 1
        self.candidate("b")
        await self.make_note("disk")
        await self.until(lambda: self.found("disk") == "False")
        for seconds in (-YEAR_SECONDS, 2 * YEAR_SECONDS):
            self.wall += seconds
            machine = await self.make_machine()
            await self.until(lambda: self.found("disk") == "True")
            await self.storage.delete(MACHINES.resource, machine)
            await self.until(lambda: self.found("disk") == "False")
            transitions += 2
            self.assertTrue(leader.services)
        self.clock.advance(3600)
        await self.until(lambda: any(each.services for each in self.candidates))
        await self.make_machine()
        await self.until(lambda: self.found("disk") == "True")
        self.assertEqual(self.writes["disk"], transitions + 1)

    async def test_one_fails(self: Any) -> None:
        """Of many notes, one fails for ever: the others settle; it is tried ever less often, and says so in an Event."""
        number, tried = soak.figure(self), []

        def fault(verb: str, resource: Resource, obj: Object) -> Deferred[Any] | None:
            if resource != self.kind.resource or verb != "update":
                return None
            if obj["metadata"]["name"] != "n0":
                return None
            tried.append(self.clock.seconds())
            return fail(ServiceUnavailable("its disk is broken"))

        self.faulty.fault = fault
        for begin in range(0, number, 100):
            some = range(begin, begin + 100)
            await gatherResults(
                [Deferred.fromCoroutine(self.make_note(f"n{each}")) for each in some]
            )
        await self.leader("a")
        await self.until(lambda: sum(self.writes.values()) == number - 1)
        self.assertEqual({self.found(name) for name in self.notes if name != "n0"}, {"False"})
        await self.until(lambda: len(tried) > 6)
        pauses = [after - before for before, after in pairwise(tried)]
        for failures, seconds in enumerate(pauses):
            self.assertGreaterEqual(seconds, FIRST_PAUSE_SECONDS / 2 * 2**failures)

        await self.until(self.reports)
        (message,) = self.reports()
        self.assertIn("its disk is broken", message)
        self.assertEqual(self.writes, {name: int(name != "n0") for name in self.notes})
        self.faulty.fault = passed_on
        await self.until(lambda: self.found("n0") == "False")
