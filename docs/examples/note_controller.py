"""
A complete controller: the condition MachineFound of each MachineNote, and an Event when it is False.

``NoteController`` runs in the API server; ``program`` is the same as a program of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.conditions import with_conditions
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, Conflict, NotFound
from twisted_exec.api.times import timestamp
from twisted_exec.apiserver.controllers.event_recorder import OURSELVES, WARNING, Reports
from twisted_exec.apiserver.serving.query import WriteOptions
from twisted_exec.apiserver.serving.verbs import RequestTarget, Verbs
from twisted_exec.control.queue import WorkQueue
from twisted_exec.kube.informers import Key, Reflector, key_of
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.leases import LeaderElected
from twisted_exec.kube.recorder import Recorder
from twisted_exec.storage.follower import Followed, StoreFollower, listed_as_added
from twisted_exec.storage.interfaces import DELETED, MODIFIED, Event, IStorage

COMPONENT = "note-controller"
FOUND, NOT_FOUND, FAILED = "MachineFound", "MachineNotFound", "NotUpdated"


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


def machine_of(note: Object) -> Key:
    """Return the key of the machine that a note is about."""
    return note["metadata"]["namespace"], note["spec"]["machine"]


class NoteQueue:
    """The work on notes, wherever it runs: each note is a key of a queue."""

    _log = Logger()

    def __init__(self, clock: IReactorTime, now: Callable[[], float]) -> None:
        self._now = now
        self._notes: dict[Key, Object] = {}
        self._by_machine: dict[Key, set[Key]] = {}
        self._problems: dict[Key, str] = {}
        """The failures that are reported already."""
        self.queue: WorkQueue[Key] = WorkQueue(self._look, clock)

    async def exists(self, machine: Key) -> bool:
        raise NotImplementedError

    async def write(self, note: Object) -> None:
        raise NotImplementedError

    async def tell(self, note: Object, reason: str, message: str) -> None:
        raise NotImplementedError

    def note_changed(self, note: Object) -> None:
        key = key_of(note)
        self._notes[key] = note
        self._by_machine.setdefault(machine_of(note), set()).add(key)
        self.queue.add(key)

    def note_gone(self, note: Object) -> None:
        key, machine = key_of(note), machine_of(note)
        self._notes.pop(key, None)
        self._problems.pop(key, None)
        notes = self._by_machine.get(machine, set())
        notes.discard(key)
        if not notes:
            self._by_machine.pop(machine, None)

    def machine_changed(self, machine: Key) -> None:
        for key in self._by_machine.get(machine, ()):
            self.queue.hurry(key)

    async def _look(self, key: Key) -> None:
        note = self._notes.get(key)
        if note is None:
            return
        try:
            await self._reconcile(note)
            self._problems.pop(key, None)
        except (Conflict, NotFound):
            pass  # it has changed meanwhile, and that change queues it again
        except CancelledError:
            raise
        except Exception as error:
            message = error.message if isinstance(error, APIError) else "see the controller's log"
            if self._problems.get(key) != message:
                self._problems[key] = message
                self._log.warn("note {name} waits: {why}", name="/".join(key), why=message)
                await self.tell(note, FAILED, message)
            raise  # the queue tries again, with back-off

    async def _reconcile(self, note: Object) -> None:
        found = await self.exists(machine_of(note))
        changed = plan(note, found, timestamp(self._now()))
        if changed is not None:
            await self.write(changed)
            if not found:
                await self.tell(note, NOT_FOUND, f'there is no machine "{note["spec"]["machine"]}"')


class NoteController(NoteQueue, StoreFollower):
    """
    Follows the store of the API server.

    :param machines: the resources of machines, one for each dialect.
    :param verbs: without admission.
    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        notes: Kind,
        machines: Sequence[Resource],
        storage: IStorage,
        verbs: Verbs,
        clock: IReactorTime,
        now: Callable[[], float],
    ) -> None:
        NoteQueue.__init__(self, clock, now)
        StoreFollower.__init__(self, storage, clock)
        self._kind, self._machines, self._verbs = notes, machines, verbs
        self._reports = Reports(verbs, COMPONENT, now)

    def followed(self) -> list[Followed]:
        """See :meth:`StoreFollower.followed`."""
        notes = Followed(self._kind.resource, self._on_note, listed_as_added(self._on_note))
        return [notes, *(Followed(each, self._on_machine) for each in self._machines)]

    def stopService(self) -> Deferred[None]:
        """Stop following the store; fires when no work is under way."""
        super().stopService()
        return self.queue.stop()

    def _on_note(self, event: Event) -> None:
        (self.note_gone if event.type == DELETED else self.note_changed)(event.obj)

    def _on_machine(self, event: Event) -> None:
        if event.type != MODIFIED:
            self.machine_changed(key_of(event.obj))

    async def exists(self, machine: Key) -> bool:
        for resource in self._machines:
            try:
                await self._storage.get(resource, *machine, stale=True)
                return True
            except NotFound:
                pass
        return False

    async def write(self, note: Object) -> None:
        target = RequestTarget(self._kind, *key_of(note), "status")
        await self._verbs.update(OURSELVES, target, note, WriteOptions(manager=COMPONENT))

    async def tell(self, note: Object, reason: str, message: str) -> None:
        await self._reports.tell(self._kind, note, WARNING, reason, message)


class NoteFollower(NoteQueue, Service):
    """Follows an API server through a client; the parameters are those of ``NoteController``."""

    def __init__(
        self,
        notes: Resource,
        machines: Resource,
        client: IKubeClient,
        clock: IReactorTime,
        now: Callable[[], float],
    ) -> None:
        super().__init__(clock, now)
        self._client, self._resource = client, notes
        self._recorder = Recorder(client, clock, about=notes, component=COMPONENT, host="", now=now)
        self._machines = Reflector(client, machines, clock, on_change=self._on_machine)
        self._reflector = Reflector(client, notes, clock, on_change=self._on_note)

    def startService(self) -> None:
        """Begin to list and watch."""
        super().startService()
        self._machines.start()
        self._reflector.start()

    def stopService(self) -> Deferred[Any]:
        """Fires when no request is under way."""
        super().stopService()
        parts = (self._reflector, self._machines, self.queue, self._recorder)
        return DeferredList([each.stop() for each in parts])

    def _on_note(self, before: Object | None, after: Object | None) -> None:
        if after is not None:
            self.note_changed(after)
        elif before is not None:
            self.note_gone(before)

    def _on_machine(self, before: Object | None, after: Object | None) -> None:
        if before is None or after is None:
            self.machine_changed(key_of(after or before or {}))

    async def exists(self, machine: Key) -> bool:
        await self._machines.when_synced()  # a machine that was not read yet is not gone
        namespace, name = machine
        return self._machines.get(name, namespace) is not None

    async def write(self, note: Object) -> None:
        namespace, _ = key_of(note)
        await self._client.update(self._resource, note, namespace, subresource="status")

    async def tell(self, note: Object, reason: str, message: str) -> None:
        self._recorder.record(note, "Warning", reason, message)


def program(
    client: IKubeClient,
    notes: Resource,
    machines: Resource,
    clock: IReactorTime,
    now: Callable[[], float],
    name: str = "",
) -> LeaderElected:
    """
    Return the controller as a program: of several replicas, only the leader works.

    :param name: of this replica, by default a new one.
    """

    def make() -> list[Service]:
        return [NoteFollower(notes, machines, client, clock, now)]

    return LeaderElected(
        client, make, clock, now, namespace="kube-system", lease=COMPONENT, name=name
    )
