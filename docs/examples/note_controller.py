"""
The controller of MachineNotes in the API server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from note_queue import COMPONENT, NoteQueue
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.kinds.events import WARNING
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import NotFound
from twisted_exec.apiserver.serving.client import VerbsClient, own_recorder
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.kube.informers import Key, key_of
from twisted_exec.storage.follower import Followed, StoreFollower, listed_as_added
from twisted_exec.storage.interfaces import DELETED, MODIFIED, Event, IStorage


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
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        NoteQueue.__init__(self, clock, now, metrics)
        StoreFollower.__init__(self, storage, clock)
        self._resource, self._machines = notes.resource, machines
        self._client = VerbsClient(verbs, [notes])
        self._recorder = own_recorder(verbs, clock, now, about=notes.resource, component=COMPONENT)
        self.add_part(self._recorder)
        self.add_part(self.queue)

    def followed(self) -> list[Followed]:
        """See :meth:`StoreFollower.followed`."""
        notes = Followed(self._resource, self._on_note, listed_as_added(self._on_note))
        return [notes, *(Followed(each, self._on_machine) for each in self._machines)]

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
        namespace, _ = key_of(note)
        await self._client.update(self._resource, note, namespace, subresource="status")

    async def tell(self, note: Object, reason: str, message: str) -> None:
        self._recorder.record(note, WARNING, reason, message)
