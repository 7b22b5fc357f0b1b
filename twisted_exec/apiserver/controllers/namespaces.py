"""
Namespaces: keep the permanent ones, empty and remove deleted ones.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.kinds import NAMESPACES, Kind, Object
from twisted_exec.api.status import AlreadyExists, Conflict, Forbidden, NotFound
from twisted_exec.api.users import MASTERS
from twisted_exec.apiserver.interfaces import DELETE, Change, IAdmission
from twisted_exec.apiserver.serving.query import MANAGER, WriteOptions
from twisted_exec.apiserver.serving.registry import KindRegistry
from twisted_exec.apiserver.serving.verbs import RequestTarget, Verbs
from twisted_exec.auth.interfaces import User
from twisted_exec.storage.follower import Followed, StoreFollower, listed_as_added, log_failure
from twisted_exec.storage.interfaces import Event, IStorage, IWatch

PERMANENT = ("default", "kube-system")
"""Namespaces that the server creates, and that nobody may delete."""

_OURSELVES = User("system:apiserver", (MASTERS,))
_RETRY_SECONDS = 5.0


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
        self, storage: IStorage, registry: KindRegistry, verbs: Verbs, clock: IReactorTime
    ) -> None:
        super().__init__(storage, clock)
        self._clock = clock
        self._kinds = [
            kind
            for kind in registry.kinds
            if kind.stored and not kind.kept_as and kind.resource.namespaced
        ]
        self._verbs = verbs
        self._terminating: dict[str, list[IWatch]] = {}
        self._looking: set[str] = set()
        self._again: set[str] = set()
        self._retries: dict[str, IDelayedCall] = {}

    def followed(self) -> list[Followed]:
        listed = listed_as_added(self._namespace_event)
        return [Followed(NAMESPACES.resource, self._namespace_event, listed)]

    def stopService(self) -> None:
        super().stopService()
        for name in list(self._terminating):
            self._forget(name)
        for retry in self._retries.values():
            retry.cancel()
        self._retries.clear()

    def _namespace_event(self, event: Event) -> None:
        if event.type == "DELETED":
            self._forget(event.obj["metadata"]["name"])
        else:
            self._notice(event.obj)

    def _content_event(self, event: Event) -> None:
        self._look(event.obj["metadata"]["namespace"])

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
        self._look(name)

    def _forget(self, name: str) -> None:
        for watch in self._terminating.pop(name, ()):
            watch.stop()

    def _look(self, name: str) -> None:
        if not self.running:
            return
        if name in self._looking:
            self._again.add(name)
            return
        self._looking.add(name)
        Deferred.fromCoroutine(self._empty(name)).addBoth(self._looked, name)

    def _looked(self, result: object, name: str) -> None:
        self._looking.discard(name)
        if name in self._again:
            self._again.discard(name)
            self._look(name)
        elif isinstance(result, Failure):
            log_failure(self._log, "cannot empty namespace {name}", result, name=name)
            self._retries[name] = self._clock.callLater(_RETRY_SECONDS, self._retry, name)

    def _retry(self, name: str) -> None:
        del self._retries[name]
        self._look(name)

    async def _empty(self, name: str) -> None:
        left = 0
        for kind in self._kinds:
            for obj in (await self._storage.list(kind.resource, name)).items:
                if not self.running:
                    return  # another server finishes it
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
