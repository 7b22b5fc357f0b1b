"""
The controller of Runbooks in the API server: it keeps ``status.machines``, how many machines each selects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api import selectors
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, Conflict, NotFound
from twisted_exec.apiserver.serving.client import VerbsClient
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.queue import WorkQueue
from twisted_exec.kube.informers import Key, key_of
from twisted_exec.program.turns import ShortTurns
from twisted_exec.storage.follower import Followed, StoreFollower, listed_as_added
from twisted_exec.storage.interfaces import DELETED, Event, IStorage


def labels_of(obj: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = obj["metadata"].get("labels", {})
    return labels


def may_be_selected_anew(event: Event) -> bool:
    """Return whether a change of a machine may change which objects select it."""
    if event.type == DELETED or event.previous is None:
        return True
    return labels_of(event.previous) != labels_of(event.obj)


async def selected(obj: Object, machines: Iterable[Object], clock: IReactorTime) -> list[Object]:
    """
    Return the selected machines.

    :param machines: those of the object's namespace.
    :raises ValueError: an earlier release has stored a selector that is refused now.
    """
    selector = selectors.of_object(obj["spec"].get("machineSelector"))
    turns, matching = ShortTurns(clock), []
    for machine in machines:
        await turns.breathe()
        if selector.matches(labels_of(machine)):
            matching.append(machine)
    return matching


def plan(runbook: Object, machines: int) -> Object | None:
    """Return the runbook with its new status; ``None`` if nothing changes."""
    status = runbook.get("status", {})
    if status.get("machines") == machines:
        return None
    return {**runbook, "status": {**status, "machines": machines}}


class RunbookController(StoreFollower):
    """
    Counts the machines of each Runbook again when the Runbook or a machine's labels change.

    :param machines: the resources of machines, one for each dialect.
    :param verbs: without admission.
    """

    def __init__(
        self,
        runbooks: Kind,
        machines: Sequence[Resource],
        storage: IStorage,
        verbs: Verbs,
        clock: IReactorTime,
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        super().__init__(storage, clock)
        self._resource, self._machines, self._clock = runbooks.resource, machines, clock
        self._client = VerbsClient(verbs, [runbooks])
        self._runbooks: dict[str, dict[str, Object]] = {}  # by namespace and name
        self._queue: WorkQueue[Key] = WorkQueue(
            self._look, clock, self._refused, metrics=metrics.of("runbooks")
        )
        self.add_part(self._queue)

    def followed(self) -> list[Followed]:
        """See :meth:`StoreFollower.followed`."""
        runbooks = Followed(self._resource, self._on_runbook, listed_as_added(self._on_runbook))
        return [runbooks, *(Followed(each, self._on_machine) for each in self._machines)]

    def _on_runbook(self, event: Event) -> None:
        namespace, name = key = key_of(event.obj)
        runbooks = self._runbooks.setdefault(namespace, {})
        if event.type != DELETED:
            runbooks[name] = event.obj
            self._queue.add(key)
            return
        runbooks.pop(name, None)
        self._queue.forget(key)
        if not runbooks:
            del self._runbooks[namespace]

    def _on_machine(self, event: Event) -> None:
        if may_be_selected_anew(event):
            # All of the namespace: a runbook that selected the machine before is affected, too.
            namespace, _ = key_of(event.obj)
            for name in list(self._runbooks.get(namespace, ())):  # the worker may begin at once
                self._queue.add((namespace, name))

    async def _look(self, key: Key) -> None:
        namespace, name = key
        runbook = self._runbooks.get(namespace, {}).get(name)
        if runbook is None:
            return  # deleted while the queue waited to try again
        count = 0
        for resource in self._machines:
            # Stale: it has the change that queued the key.
            listing = await self._storage.list(resource, namespace, stale=True)
            count += len(await selected(runbook, listing.items, self._clock))
        changed = plan(runbook, count)
        if changed is not None:
            with suppress(Conflict, NotFound):  # it has changed, and that change queues it again
                await self._client.update(self._resource, changed, namespace, subresource="status")

    def _refused(self, key: Key, error: APIError, failures: int) -> None:
        if failures == 1:  # the queue tries again, with back-off
            self._log.warn("runbook {name} waits: {why}", name="/".join(key), why=error.message)
