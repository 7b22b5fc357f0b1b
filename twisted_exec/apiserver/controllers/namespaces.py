"""
Namespaces: keep the permanent ones, empty and remove deleted ones.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.kinds import NAMESPACES, Kind, Object
from twisted_exec.api.status import AlreadyExists, APIError, Conflict, Forbidden, NotFound
from twisted_exec.api.users import MASTERS
from twisted_exec.apiserver.interfaces import DELETE, Change, IAdmission
from twisted_exec.apiserver.serving.query import MANAGER, WriteOptions
from twisted_exec.apiserver.serving.registry import KindRegistry
from twisted_exec.apiserver.serving.verbs import RequestTarget, Verbs
from twisted_exec.auth.interfaces import User
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.queue import WorkQueue
from twisted_exec.storage.follower import Followed, StoreFollower, listed_as_added
from twisted_exec.storage.interfaces import Event, IStorage, IWatch

PERMANENT = ("default", "kube-system")
"""Namespaces that the server creates, and that nobody may delete."""

_OURSELVES = User("system:apiserver", (MASTERS,))


@implementer(IAdmission)
class NamespaceGuard:
    """Refuses to delete the permanent namespaces."""

    def admit(self, change: Change) -> Deferred[None]:
        name = change.obj["metadata"].get("name")
        if change.kind is NAMESPACES and change.operation == DELETE and name in PERMANENT:
            return defer.fail(
                Forbidden(f'namespaces "{name}" is forbidden: this namespace may not be deleted')
            )
        return defer.succeed(None)


class NamespaceLifecycle(StoreFollower):
    """
    Empties namespaces that are being deleted, then removes them.

    :param verbs: without admission: permission to delete a namespace includes its content.
    """

    _log = Logger()

    def __init__(
        self,
        storage: IStorage,
        registry: KindRegistry,
        verbs: Verbs,
        clock: IReactorTime,
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        super().__init__(storage, clock)
        self._kinds = [
            kind
            for kind in registry.kinds
            if kind.stored and not kind.kept_as and kind.resource.namespaced
        ]
        self._verbs = verbs
        self._terminating: dict[str, list[IWatch]] = {}
        self._queue: WorkQueue[str] = WorkQueue(
            self._empty, clock, self._refused, metrics=metrics.of("namespaces")
        )

    def startService(self) -> None:
        self._queue.start()
        super().startService()

    def followed(self) -> list[Followed]:
        listed = listed_as_added(self._namespace_event)
        return [Followed(NAMESPACES.resource, self._namespace_event, listed)]

    def stopService(self) -> Deferred[None]:
        super().stopService()
        for name in list(self._terminating):
            self._forget(name)
        return self._queue.stop()

    def _namespace_event(self, event: Event) -> None:
        if event.type == "DELETED":
            self._forget(event.obj["metadata"]["name"])
        else:
            self._notice(event.obj)

    def _content_event(self, event: Event) -> None:
        self._queue.add(event.obj["metadata"]["namespace"])

    def _notice(self, namespace: Object) -> None:
        name = namespace["metadata"]["name"]
        if "deletionTimestamp" not in namespace["metadata"]:
            return
        if name not in self._terminating:
            # Before the first look: a change between look and watch would be lost.
            self._terminating[name] = [
                self._storage.watch(kind.resource, None, self._content_event, name)
                for kind in self._kinds
            ]
        self._queue.add(name)

    def _forget(self, name: str) -> None:
        for watch in self._terminating.pop(name, ()):
            watch.stop()
        self._queue.forget(name)

    def _refused(self, name: str, error: APIError, failures: int) -> None:
        if failures == 1:
            self._log.warn("cannot empty namespace {name}: {why}", name=name, why=error.message)

    async def _empty(self, name: str) -> None:
        left = 0
        for kind in self._kinds:
            for obj in (await self._storage.list(kind.resource, name)).items:
                left += not await self._delete(kind, obj)
        if not left:
            await self._finish(name)

    async def _delete(self, kind: Kind, obj: Object) -> bool:
        metadata = obj["metadata"]
        target = RequestTarget(kind, metadata["namespace"], metadata["name"])
        only = {"uid": metadata["uid"]}
        try:
            _, deleted = await self._verbs.delete(_OURSELVES, target, WriteOptions(), only)
        except NotFound:
            return True
        except Conflict:
            return False  # that change triggers the next run
        return deleted

    async def _finish(self, name: str) -> None:
        resource = NAMESPACES.resource
        try:
            old = await self._storage.get(resource, "", name)
            new = copy.deepcopy(old)
            new["spec"]["finalizers"] = []
            if NAMESPACES.held_by(new):
                if new != old:
                    await self._storage.update(resource, new)
            else:
                await self._storage.delete(resource, old)
        except (NotFound, Conflict):
            return  # changed meanwhile; that event triggers the next run


async def ensure_namespaces(verbs: Verbs, storage: IStorage, others: Iterable[str] = ()) -> int:
    """
    Create the permanent namespaces that are missing.

    :param others: further namespaces to create; these may be deleted.
    :return: the number of created namespaces.
    """
    created = 0
    for name in (*PERMANENT, *others):
        try:
            await storage.get(NAMESPACES.resource, "", name)
        except NotFound:
            created += await _make(verbs, name)
    return created


async def _make(verbs: Verbs, name: str) -> bool:
    body = {"metadata": {"name": name}}
    try:
        await verbs.create(
            _OURSELVES, RequestTarget(NAMESPACES), body, WriteOptions(manager=MANAGER)
        )
    except AlreadyExists:
        return False  # another server created it first
    return True
