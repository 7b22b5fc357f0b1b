"""
Namespaces: keep the permanent ones, empty and remove deleted ones.
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.conditions import ConditionValue, with_conditions
from twisted_exec.api.kinds import NAMESPACES, Kind, Object
from twisted_exec.api.status import AlreadyExists, APIError, Conflict, Forbidden, NotFound
from twisted_exec.api.times import timestamp
from twisted_exec.apiserver.interfaces import DELETE, Change, IAdmission
from twisted_exec.apiserver.serving.query import MANAGER, WriteOptions
from twisted_exec.apiserver.serving.registry import KindRegistry
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.apiserver.serving.verbs import OURSELVES, Verbs
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.queue import WorkQueue
from twisted_exec.control.runs import Failures, readable
from twisted_exec.storage.follower import Followed, StoreFollower, listed_as_added
from twisted_exec.storage.interfaces import Event, IStorage, IWatch

PERMANENT = ("default", "kube-system")
"""Namespaces that the server creates, and that nobody may delete."""


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


@dataclass
class Remains:
    """What is left of the content of a namespace after its deletion was asked for."""

    objects: Counter[str] = field(default_factory=Counter)
    """Numbers of objects by resource."""
    finalizers: Counter[str] = field(default_factory=Counter)
    """Numbers of these objects by finalizer."""
    failures: dict[str, str] = field(default_factory=dict)
    """By resource: why objects could not be deleted."""


def plan(remains: Remains) -> dict[str, ConditionValue]:
    """
    Return the conditions of a namespace that is being deleted, as Kubernetes has them.

    Source: ``pkg/controller/namespace/deletion/status_condition_utils.go``.
    """
    failed = ("False", "ContentDeleted", "All content is deleted, or waits for finalizers")
    remaining = ("False", "ContentRemoved", "All content successfully removed")
    finalized = ("False", "ContentHasNoFinalizers", "No finalizers remain")
    if remains.failures:
        why = "; ".join(f"{what}: {each}" for what, each in sorted(remains.failures.items()))
        failed = ("True", "ContentDeletionFailed", f"Failed to delete: {why}")
    if remains.objects:
        listed = ", ".join(f"{what} has {n}" for what, n in sorted(remains.objects.items()))
        text = f"Some resources are remaining: {listed}"
        remaining = ("True", "SomeResourcesRemain", text)
    if remains.finalizers:
        listed = ", ".join(f"{each} in {n}" for each, n in sorted(remains.finalizers.items()))
        text = f"Some content in the namespace has finalizers remaining: {listed}"
        finalized = ("True", "SomeFinalizersRemain", text)
    return {
        "NamespaceDeletionContentFailure": failed,
        "NamespaceContentRemaining": remaining,
        "NamespaceFinalizersRemaining": finalized,
    }


class NamespaceLifecycle(StoreFollower):
    """
    Empties namespaces that are being deleted, then removes them.

    :param verbs: without admission: permission to delete a namespace includes its content.
    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(
        self,
        storage: IStorage,
        registry: KindRegistry,
        verbs: Verbs,
        clock: IReactorTime,
        metrics: WorkQueueMetrics = UNREAD,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(storage, clock)
        self._now = now
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
        self.add_part(self._queue)

    def followed(self) -> list[Followed]:
        listed = listed_as_added(self._namespace_event)
        return [Followed(NAMESPACES.resource, self._namespace_event, listed)]

    def stopService(self) -> Deferred[None]:
        for name in list(self._terminating):
            self._forget(name)
        return super().stopService()

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
            # Before the first look: a change between look and watch would be lost.  Not by StoreFollower:
            # it follows all the time, so this controller would hear of every write in every namespace.
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
        remains, failures = Remains(), Failures()
        for kind in self._kinds:
            of_kind = Failures()
            with of_kind.noted():
                await self._empty_of(kind, name, remains, of_kind)
            if of_kind.first is not None:
                remains.failures[kind.resource.qualified] = readable(of_kind.first).message
            with failures.noted():
                of_kind.raise_first()
        if remains.objects or remains.failures:
            await self._show(name, remains)
        else:
            await self._finish(name)
        failures.raise_first()

    async def _empty_of(self, kind: Kind, name: str, remains: Remains, failures: Failures) -> None:
        for obj in (await self._storage.list(kind.resource, name)).items:
            is_deleted = False
            with failures.noted():
                is_deleted = await self._delete(kind, obj)
            if not is_deleted:
                remains.objects[kind.resource.qualified] += 1
                remains.finalizers.update(obj["metadata"].get("finalizers", ()))

    async def _show(self, name: str, remains: Remains) -> None:
        """Write why the namespace is still there."""
        try:
            old = await self._storage.get(NAMESPACES.resource, "", name)
            status = old.get("status", {})
            before, moment = status.get("conditions", []), timestamp(self._now())
            conditions = with_conditions(before, plan(remains), moment)
            if conditions != before:
                changed = {**old, "status": {**status, "conditions": conditions}}
                target = RequestTarget(NAMESPACES, "", name, "status")
                await self._verbs.update(OURSELVES, target, changed, WriteOptions(manager=MANAGER))
        except (NotFound, Conflict):
            return  # changed meanwhile; that event triggers the next run

    async def _delete(self, kind: Kind, obj: Object) -> bool:
        metadata = obj["metadata"]
        target = RequestTarget(kind, metadata["namespace"], metadata["name"])
        only = {"uid": metadata["uid"]}
        try:
            _, deleted = await self._verbs.delete(OURSELVES, target, WriteOptions(), only)
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
            OURSELVES, RequestTarget(NAMESPACES), body, WriteOptions(manager=MANAGER)
        )
    except AlreadyExists:
        return False  # another server created it first
    return True
