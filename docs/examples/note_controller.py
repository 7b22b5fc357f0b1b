"""
A complete controller: the condition MachineFound of each MachineNote, and an Event when it changes to False.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.conditions import with_conditions
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.kinds.events import WARNING
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, Conflict, NotFound
from twisted_exec.api.times import timestamp
from twisted_exec.apiserver.serving.client import own_recorder
from twisted_exec.apiserver.serving.query import WriteOptions
from twisted_exec.apiserver.serving.verbs import OURSELVES, RequestTarget, Verbs
from twisted_exec.control.queue import WorkQueue
from twisted_exec.program.tasks import ShortTurns
from twisted_exec.storage.follower import Followed, StoreFollower, listed_as_added
from twisted_exec.storage.history import Key, key_of
from twisted_exec.storage.interfaces import DELETED, MODIFIED, Event, IStorage

COMPONENT = "note-controller"
FOUND, NOT_FOUND = "MachineFound", "MachineNotFound"


def plan(note: Object, found: bool, now: str) -> Object | None:
    """Return the note with its new status; ``None`` if nothing changes."""
    status, machine = note.get("status", {}), note["spec"]["machine"]
    value = ("True", "Found", "the machine exists")
    if not found:
        value = ("False", NOT_FOUND, f'there is no machine "{machine}"')
    conditions = with_conditions(status.get("conditions", []), {FOUND: value}, now)
    if conditions == status.get("conditions"):
        return None
    return {**note, "status": {**status, "conditions": conditions}}


class NoteController(StoreFollower):
    """
    Keeps the condition MachineFound of all notes.

    :param machines: the resources of machines, one for each dialect.
    :param verbs: without admissions.
    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(
        self,
        notes: Kind,
        machines: Sequence[Resource],
        storage: IStorage,
        verbs: Verbs,
        clock: IReactorTime,
        now: Callable[[], float],
    ) -> None:
        super().__init__(storage, clock)
        self._notes, self._machines = notes, machines
        self._verbs, self._clock, self._now = verbs, clock, now
        self._recorder = own_recorder(verbs, clock, now, about=notes.resource, component=COMPONENT)
        self._by_machine: dict[Key, dict[Key, Object]] = {}
        self._queue: WorkQueue[Key] = WorkQueue(self._look, clock, self._failed)

    def followed(self) -> list[Followed]:
        """See :meth:`StoreFollower.followed`."""
        notes = Followed(
            self._notes.resource, self._note_changed, listed_as_added(self._note_changed)
        )
        return [notes, *(Followed(each, self._machine_changed) for each in self._machines)]

    def stopService(self) -> Deferred[None]:
        """Stop following the store; fires when no work is under way."""
        super().stopService()
        stopping = DeferredList([self._queue.stop(), self._recorder.stop()])
        return stopping.addCallback(lambda _: None)

    def _note_changed(self, event: Event) -> None:
        note = event.obj
        machine = note["metadata"]["namespace"], note["spec"]["machine"]
        notes = self._by_machine.setdefault(machine, {})
        if event.type != DELETED:
            notes[key_of(note)] = note
            self._queue.add(machine)
        else:
            notes.pop(key_of(note), None)
            if not notes:
                del self._by_machine[machine]

    def _machine_changed(self, event: Event) -> None:
        if event.type != MODIFIED and key_of(event.obj) in self._by_machine:
            self._queue.hurry(key_of(event.obj))

    async def _look(self, machine: Key) -> None:
        """Compare all notes of one machine with what exists now."""
        found, turns = await self._exists(machine), ShortTurns(self._clock)
        for note in list(self._by_machine.get(machine, {}).values()):
            await turns.breathe()
            changed = plan(note, found, timestamp(self._now()))
            if changed is not None:
                await self._write(changed, found)

    async def _exists(self, machine: Key) -> bool:
        for resource in self._machines:
            try:
                await self._storage.get(resource, *machine)
            except NotFound:
                continue
            return True
        return False

    async def _write(self, note: Object, found: bool) -> None:
        target = RequestTarget(self._notes, *key_of(note), "status")
        try:
            await self._verbs.update(OURSELVES, target, note, WriteOptions(manager=COMPONENT))
        except (Conflict, NotFound):
            return  # it has changed meanwhile, and that change queues its machine again
        if not found:
            message = f'there is no machine "{note["spec"]["machine"]}"'
            self._recorder.record(note, WARNING, NOT_FOUND, message)

    def _failed(self, machine: Key, error: APIError, failures: int) -> None:
        if failures == 1:
            name = "/".join(machine)
            self._log.warn("notes of {name} wait: {why}", name=name, why=error.message)
