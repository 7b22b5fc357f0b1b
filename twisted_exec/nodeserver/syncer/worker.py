"""Keep the Pods of one leaf in line with the root, and their status in the root with the leaf."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.kinds.pods.machine_pods import PODS
from twisted_exec.api.kinds.pods.node_pods import CONTAINER_LISTS
from twisted_exec.api.status import AlreadyExists, APIError, Conflict, NotFound
from twisted_exec.api.times import timestamp
from twisted_exec.control.metrics import QueueMetrics
from twisted_exec.control.queue import WorkQueue
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.nodeserver.interfaces import ILeaf, ILeaves, IRootPods, LeafNode, LeafPod
from twisted_exec.nodeserver.ownership import NAME, NAMESPACE, UID
from twisted_exec.nodeserver.syncer import plan as plans
from twisted_exec.nodeserver.syncer.leaf_pods import (
    Reference,
    is_excluded,
    leaf_ephemeral_container,
    leaf_pod,
    references,
    renamed_in_leaf,
)
from twisted_exec.nodeserver.syncer.objects import Copies, RootObjects, make_namespace

POD, OBJECTS = "pod", "objects"
Key = tuple[str, str]
"""``pod`` and a UID of the root, or ``objects`` and a namespace of the root."""

WARN_AFTER_FAILURES = 3
"""Consecutive failures before the user gets an Event: shorter troubles pass by themselves."""

Report = Callable[[Object, str, str], None]
"""Called with a Pod of the root, a reason and a message."""


@dataclass
class SyncContext:
    """
    Collaborators of every leaf worker.

    :param now: seconds since the epoch.
    """

    client: IKubeClient
    leaves: ILeaves
    roots: IRootPods
    originals: RootObjects
    clock: IReactorTime
    tell: Report = lambda *_: None
    now: Callable[[], float] = time.time
    metrics: QueueMetrics | None = None


@dataclass(frozen=True)
class _Written:
    status: Object
    answer: Any
    version: str


class LeafWorker:
    """Keeps one leaf."""

    _log = Logger()

    def __init__(self, leaf: ILeaf, context: SyncContext) -> None:
        self.leaf, self._context, self.unswept = leaf, context, True
        self._labels = leaf.marks({"metadata": {"uid": "", "name": "", "namespace": ""}})["labels"]
        self.queue: WorkQueue[Key] = WorkQueue(
            self._look, context.clock, self._failed, metrics=context.metrics
        )
        self._copies = Copies(
            leaf.client,
            context.originals,
            context.clock,
            self._labels,
            self.objects_changed,
            leaf.name,
            lambda: {each.name for each in context.leaves.all()},
        )
        self._written: dict[str, _Written] = {}
        self._unfollow: Callable[[], None] = lambda: None
        self._uses: dict[str, str] = {}  # the root's namespaces by UID of Pods with references

    def start(self) -> None:
        """Start; nothing is changed before both sides are completely known."""
        self._unfollow = self.leaf.follow(self.look_at)
        self._copies.start()

    def stop(self) -> Deferred[Any]:
        """Stop; fires when nothing is under way."""
        self._unfollow()
        return DeferredList([self.queue.stop(), self._copies.stop()])

    def look_at(self, uid: str) -> None:
        """Plan a Pod of the root again."""
        self.queue.add((POD, uid))

    def objects_changed(self, namespace: str) -> None:
        """Compare the copies for a namespace of the root again."""
        self.queue.add((OBJECTS, namespace))

    @property
    def is_known(self) -> bool:
        return bool(self.leaf.synced and self._context.roots.synced)

    def sweep(self) -> Iterator[None]:
        """Plan everything, one Pod per step, so that the reactor gets its turn in between."""
        self.unswept = False
        for root in self._roots():
            self.look_at(root["metadata"]["uid"])
            if references(root):
                self.objects_changed(root["metadata"]["namespace"])
            yield
        for pod in list(self.leaf.strays()):
            self.look_at(root_uid(pod))
            yield
        for namespace in self.used() | self._copies.sources():
            self.objects_changed(namespace)

    def used(self) -> set[str]:
        """Return the root's namespaces with Pods that name objects."""
        return set(self._uses.values())

    def _roots(self) -> Iterable[Object]:
        # An empty list would select all Nodes.
        names = [node.name for node in self.leaf.nodes]
        return list(self._context.roots.on(names)) if names else ()

    def _failed(self, key: Key, refused: APIError, failures: int) -> None:
        if failures != WARN_AFTER_FAILURES:
            return
        self._log.warn(
            "leaf cluster {leaf}: {kind} {what}: {why}",
            leaf=self.leaf.name,
            kind=key[0],
            what=key[1],
            why=refused.message,
        )
        root = self._context.roots.by_uid(key[1]) if key[0] == POD else None
        if root is not None:
            self._context.tell(
                root, "LeafRefused", f'leaf cluster "{self.leaf.name}": {refused.message}'
            )

    async def _look(self, key: Key) -> None:
        if not self.is_known:
            self.unswept = True
            return
        kind, what = key
        if kind == POD:
            await self._pod(what)
        else:
            await self._objects(what)

    # One Pod.

    async def _pod(self, uid: str) -> None:
        root = self._context.roots.by_uid(uid)
        if root is None:
            await self._gone(uid)
            return
        node = self._context.leaves.nodes().get(root["spec"].get("nodeName", ""))
        if node is None or node.leaf != self.leaf.name:
            return
        work = PodWorker(self, root, node)
        for step in plans.plan(root, await work.find(), work.marks, self.leaf.name, self._moment()):
            await work.do(step)

    def _moment(self) -> str:
        return timestamp(self._context.now())

    async def _gone(self, uid: str) -> None:
        self._written.pop(uid, None)
        namespace = self._uses.pop(uid, None)
        if namespace is not None:
            self.objects_changed(namespace)
        for pod in [each for each in self.leaf.strays() if root_uid(each) == uid]:
            if plans.is_created_by_syncer(pod) and not await self._is_elsewhere(pod, uid):
                await self.delete(pod, None)

    async def _is_elsewhere(self, pod: Object, uid: str) -> bool:
        metadata = pod["metadata"]
        annotations = metadata.get("annotations") or {}
        name, namespace = annotations.get(NAME, metadata["name"]), annotations.get(NAMESPACE)
        try:
            root = await self._context.client.get(
                PODS.resource, name, namespace or metadata["namespace"]
            )
        except NotFound:
            return False
        return bool(root["metadata"]["uid"] == uid)

    async def delete(self, pod: Object, grace_seconds: int | None) -> None:
        """Delete this Pod of the leaf, and no other of its name."""
        metadata = pod["metadata"]
        try:
            await self.leaf.client.delete(
                PODS.resource,
                metadata["name"],
                metadata["namespace"],
                uid=metadata["uid"],
                grace_seconds=grace_seconds,
            )
        except (NotFound, Conflict):
            pass  # deleted or replaced already

    # ConfigMaps and Secrets.

    async def _objects(self, namespace: str) -> None:
        needed: set[Reference] = set()
        for root in self._roots():
            if root["metadata"]["namespace"] == namespace and not is_excluded(root):
                needed |= self._note_references(root)
        try:
            target = self.leaf.namespace(namespace)
        except NotFound:  # the namespace has no counterpart any more: its copies may go
            await self._copies.clear(namespace, "", ())
            return
        if needed:
            try:
                await self._copies.ensure(namespace, target, needed)
            except NotFound:
                return  # the namespace does not exist in the leaf, so no Pod does either
        await self._copies.clear(namespace, target, needed)

    def _note_references(self, root: Object) -> frozenset[Reference]:
        """Note the namespace of a Pod that needs copies, and return what it refers to."""
        referenced = references(root)
        if referenced:
            self._uses[root["metadata"]["uid"]] = root["metadata"]["namespace"]
        return referenced

    async def ensure_copies(self, root: Object, target: str) -> None:
        await self._copies.ensure(
            root["metadata"]["namespace"], target, self._note_references(root)
        )

    async def make_namespace(self, target: str) -> None:
        await make_namespace(self.leaf.client, target, self._labels)

    # The root's side.

    async def write_status(self, root: Object, status: Object) -> None:
        """
        Write the status, unless it was the last one written and the Pod has not changed since.
        """
        metadata = root["metadata"]
        uid, version = metadata["uid"], metadata["resourceVersion"]
        last = self._written.get(uid)
        if (
            last is not None
            and last.status == status
            and (last.version == version or last.answer == root.get("status"))
        ):
            return
        # The UID makes the patch fail for another Pod of the same name.
        patch = {"metadata": {"uid": uid}, "status": status}
        answer = await self._context.client.patch(
            PODS.resource, metadata["name"], patch, metadata["namespace"], subresource="status"
        )
        self._written[uid] = _Written(status, answer.get("status"), version)

    async def delete_root(self, root: Object) -> None:
        metadata = root["metadata"]
        try:
            await self._context.client.delete(
                PODS.resource,
                metadata["name"],
                metadata["namespace"],
                uid=metadata["uid"],
                grace_seconds=0,
            )
        except (NotFound, Conflict):
            pass  # deleted or replaced already


class PodOperations(Protocol):
    """The methods of :class:`LeafWorker` that :class:`PodWorker` needs."""

    leaf: ILeaf

    async def ensure_copies(self, root: Object, target: str) -> None: ...
    async def make_namespace(self, target: str) -> None: ...
    async def delete(self, pod: Object, grace_seconds: int | None) -> None: ...
    async def delete_root(self, root: Object) -> None: ...
    async def write_status(self, root: Object, status: Object) -> None: ...


class PodWorker:
    """Carries out one plan for one Pod."""

    def __init__(self, sync: PodOperations, root: Object, node: LeafNode) -> None:
        self._sync, self._leaf, self._root, self._node = sync, sync.leaf, root, node
        self.marks = sync.leaf.marks(root)
        self._found: LeafPod | None = None

    async def find(self) -> Object | None:
        """Return the leaf's Pod; ``None`` only if there certainly is none."""
        try:
            self._found = await self._leaf.pod(self._root)
        except NotFound:
            return None
        return self._found.pod

    async def do(self, step: plans.Step) -> None:
        """Carry out one step; a concurrent change only leads to another look."""
        sync, root = self._sync, self._root
        if isinstance(step, plans.CreateInLeaf):
            await self._create()
        elif isinstance(step, plans.DeleteInRoot):
            await sync.delete_root(root)
        elif isinstance(step, plans.WriteStatus):
            await sync.write_status(root, step.status)
        else:
            await self._in_leaf(step)

    async def _in_leaf(
        self, step: plans.DeleteInLeaf | plans.UpdateInLeaf | plans.AddEphemeral
    ) -> None:
        assert self._found is not None and self._found.pod is not None
        if isinstance(step, plans.DeleteInLeaf):
            await self._sync.delete(self._found.pod, step.grace_seconds)
        elif isinstance(step, plans.UpdateInLeaf):
            await self._change(lambda pod: _updated(pod, step))
        else:
            await self._change(lambda pod: self._with_ephemeral(pod, step), "ephemeralcontainers")

    async def _create(self) -> None:
        namespace, name = self._leaf.names(self._root)
        try:
            await self._sync.ensure_copies(self._root, namespace)
            await self._create_as(namespace, name)
        except NotFound:
            await self._sync.make_namespace(namespace)
            await self._sync.ensure_copies(self._root, namespace)
            await self._create_as(namespace, name)

    async def _create_as(self, namespace: str, name: str) -> None:
        try:
            await self._create_once(namespace, name)
        except AlreadyExists:
            if await self._is_there(namespace, name):
                return  # ours already: the copy is late
            other = renamed_in_leaf(self._root)
            try:
                await self._create_once(namespace, other)
            except AlreadyExists:
                if not await self._is_there(namespace, other):
                    raise  # this name contains the UID, so only a mistake or an attack takes it

    async def _create_once(self, namespace: str, name: str) -> None:
        pod = leaf_pod(self._root, self._node, self.marks, namespace, name)
        await self._leaf.client.create(PODS.resource, pod, namespace)

    async def _is_there(self, namespace: str, name: str) -> bool:
        try:
            pod = await self._leaf.client.get(PODS.resource, name, namespace)
        except NotFound:
            return False
        return bool(root_uid(pod) == self._root["metadata"]["uid"])

    async def _change(self, change: Callable[[Object], Object], subresource: str = "") -> None:
        assert self._found is not None
        client, target = self._leaf.client, self._found
        pod = await client.get(PODS.resource, target.name, target.namespace)
        if root_uid(pod) == self._root["metadata"]["uid"]:
            await client.update(
                PODS.resource, change(pod), target.namespace, subresource=subresource
            )

    def _with_ephemeral(self, pod: Object, step: plans.AddEphemeral) -> Object:
        there = {each["name"] for each in pod["spec"].get("ephemeralContainers") or []}
        desired = self._root["spec"].get("ephemeralContainers") or []
        more = [
            leaf_ephemeral_container(each)
            for each in desired
            if each["name"] in step.names and each["name"] not in there
        ]
        pod["spec"].setdefault("ephemeralContainers", []).extend(more)
        return pod


def _updated(pod: Object, step: plans.UpdateInLeaf) -> Object:
    labels = pod["metadata"].setdefault("labels", {})
    for key, value in step.labels:
        if value is None:
            labels.pop(key, None)
        else:
            labels[key] = value
    pod["metadata"].setdefault("annotations", {}).update(step.annotations)
    images = dict(step.images)
    for kind in CONTAINER_LISTS:
        for container in pod["spec"].get(kind) or []:
            container["image"] = images.get(container["name"], container.get("image"))
    return pod


def root_uid(pod: Object) -> str:
    """Return the UID of the root Pod that a leaf Pod copies; empty without the annotation."""
    return str((pod["metadata"].get("annotations") or {}).get(UID, ""))
