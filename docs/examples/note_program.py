"""
The controller of MachineNotes as a program of its own, a client of an API server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from note_queue import COMPONENT, NoteQueue
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.kinds import Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.queue import Again
from twisted_exec.kube.informers import Key, Reflector, key_of
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.leases import LeaderElected
from twisted_exec.kube.recorder import Recorder


class NoteFollower(NoteQueue, Service):
    """
    Follows an API server through a client.

    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        notes: Resource,
        machines: Resource,
        client: IKubeClient,
        clock: IReactorTime,
        now: Callable[[], float],
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        super().__init__(clock, now, metrics)
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
        if not self._machines.synced:  # a machine that was not read yet is not gone
            if self._machines.problem:
                raise ServiceUnavailable(f"cannot list machines: {self._machines.problem}")
            raise Again(longest_seconds=1)
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
    metrics: WorkQueueMetrics = UNREAD,
) -> LeaderElected:
    """
    Return the controller as a program: of several replicas, only the leader works.

    :param name: of this replica, by default a new one.
    """

    def make() -> list[Service]:
        return [NoteFollower(notes, machines, client, clock, now, metrics)]

    return LeaderElected(
        client, make, clock, now, namespace="kube-system", lease=COMPONENT, name=name
    )
