"""
Machines of a twisted-exec API server, shown as Pods of the root.

Machines of a leaf with ``pods: machines`` get a Pod in the root if they are labelled
``console.twisted-exec.dev/exposed: "true"``. Nothing is written to the leaf: deleting such a Pod
does not touch the machine. The Pod has none of the machine's labels: a controller of the root might
adopt it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.kinds.pods.machine_pods import EXPOSED_LABEL, PODS
from twisted_exec.api.status import AlreadyExists, APIError, Conflict, NotFound
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.queue import WorkQueue
from twisted_exec.control.runs import StoppingParts
from twisted_exec.kube.informers import Key, Reflector, key_of
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.nodeserver.interfaces import ILeaf, ILeaves, LeafNode
from twisted_exec.nodeserver.nodes.plan import KEPT_BY, LEAF
from twisted_exec.nodeserver.ownership import MACHINE, MACHINE_UID
from twisted_exec.nodeserver.syncer.status import desired_status, is_status_current

_CONTAINER_FIELDS = ("name", "image", "stdin", "tty")
_NO_IMAGE = "none"


@dataclass(frozen=True)
class Create:
    """Create the Pod of a machine."""


@dataclass(frozen=True)
class Delete:
    """Delete a Pod which no longer shows its machine."""


@dataclass(frozen=True, eq=False)
class UpdateStatus:
    """Update the status of a Pod."""

    status: Object


Step = Create | Delete | UpdateStatus | None


def plan(machine: Object | None, node: str, there: Object | None) -> Step:
    """
    Return the next step.

    :param machine: the leaf's Pod that represents the machine; ``None`` if there is nothing to
        show.
    """
    if there is None:
        return Create() if machine is not None else None
    if machine is None or not _shows(there, machine, node):
        return Delete()
    status = desired_status(there, machine)
    return None if is_status_current(there, status) else UpdateStatus(status)


def _shows(there: Object, machine: Object, node: str) -> bool:
    metadata = there["metadata"]
    annotations = metadata.get("annotations") or {}
    return (
        not metadata.get("deletionTimestamp")
        and annotations.get(MACHINE_UID) == machine["metadata"]["uid"]
        and there["spec"].get("nodeName") == node
    )


def node_for(machine: Object, nodes: tuple[LeafNode, ...]) -> str:
    """Return the Node of the root for a machine; empty if none stands for its pool."""
    pool = machine["spec"].get("nodeName", "")
    for node in nodes:
        if pool in node.leaf_nodes:
            return node.name
    return next((node.name for node in nodes if not node.leaf_nodes and not node.selector), "")


def form(machine: Object, key: Key, node: str, leaf: str, keeper: str) -> Object:
    """Return the Pod to create."""
    containers = [
        {"image": _NO_IMAGE, **{name: each[name] for name in _CONTAINER_FIELDS if each.get(name)}}
        for each in machine["spec"].get("containers") or []
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": key[0],
            "name": key[1],
            "labels": {MACHINE: "true"},
            "annotations": {
                LEAF: leaf,
                KEPT_BY: keeper,
                MACHINE_UID: machine["metadata"]["uid"],
            },
        },
        "spec": {
            "nodeName": node,
            "containers": containers,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
        },
    }


class MachinePods(Service):
    """Keeps the Pods of machines in the root."""

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        leaves: ILeaves,
        clock: IReactorTime,
        keeper: str,
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        self._client, self._leaves, self._clock, self._keeper = client, leaves, clock, keeper
        self._machines: dict[str, tuple[ILeaf, Reflector]] = {}
        self._queue: WorkQueue[Key] = WorkQueue(
            self._look, clock, self._failed, metrics=metrics.of("machine-pods")
        )
        self._stopping = StoppingParts()
        self._unfollow: Callable[[], None] = lambda: None
        self._pods = Reflector(
            client,
            PODS.resource,
            clock,
            label_selector=f"{MACHINE}=true",
            on_change=lambda before, after: self._add(after or before),
        )

    def startService(self) -> None:
        super().startService()
        self._unfollow = self._leaves.follow(self._leaves_changed)
        # Before the Pods: a Pod whose leaf is not watched yet would look like one without a
        # machine.
        self._leaves_changed()
        self._pods.when_synced().addCallback(lambda _: self._all())
        self._pods.start()

    def stopService(self) -> Deferred[Any]:
        """Stop all work; fires when none is left."""
        super().stopService()
        self._unfollow()
        for name in list(self._machines):
            self._end(name)
        ending = [self._stopping.over(), self._pods.stop(), self._queue.stop()]
        return DeferredList(ending, consumeErrors=True)

    def _leaves_changed(self) -> None:
        leaves = {leaf.name: leaf for leaf in self._leaves.all() if leaf.machines}
        for name, (leaf, _) in list(self._machines.items()):
            if leaves.get(name) is not leaf:
                self._end(name)
        for name, leaf in leaves.items():
            if name not in self._machines:
                self._begin(name, leaf)
        self._all()

    def _begin(self, name: str, leaf: ILeaf) -> None:
        copy = Reflector(
            leaf.client,
            PODS.resource,
            self._clock,
            label_selector=f"{EXPOSED_LABEL}=true",
            of=f'leaf cluster "{name}"',
            on_change=lambda before, after: self._machine_changed(leaf, after or before),
        )
        self._machines[name] = leaf, copy
        copy.when_synced().addCallback(lambda _: self._all())
        copy.start()

    def _end(self, name: str) -> None:
        self._stopping.add(self._machines.pop(name)[1].stop())

    def _machine_changed(self, leaf: ILeaf, pod: Object | None) -> None:
        key = leaf.root_names(*key_of(pod)) if pod is not None else None
        if key is not None:
            self._queue.add(key)

    def _add(self, pod: Object | None) -> None:
        if pod is not None:
            self._queue.add(key_of(pod))

    def _all(self) -> None:
        if not self.running:
            return
        for leaf, copy in list(self._machines.values()):
            for pod in copy:
                self._machine_changed(leaf, pod)
        for pod in self._pods:
            self._add(pod)

    @property
    def _is_known(self) -> bool:
        return bool(self._leaves.synced and self._pods.synced)

    def _failed(self, key: Key, refused: APIError, failures: int) -> None:
        # Only the log says it: the object that would say it in the root is the one that is missing.
        if failures == 1:
            self._log.warn(
                "the machine {namespace}/{name} has no pod in the root: {why}",
                namespace=key[0],
                name=key[1],
                why=refused.message,
            )

    async def _look(self, key: Key) -> None:
        if not self._is_known:
            return  # _all() plans everything once the lists are complete
        there = self._pods.get(key[1], key[0])
        if there is not None and not self._is_ours(there):
            return
        leaf, machine = self._source_of(key)
        if there is not None and machine is None and not self._is_read(there):
            return
        node = node_for(machine, tuple(leaf.nodes)) if machine and leaf else ""
        step = plan(machine if node else None, node, there)
        if isinstance(step, Create):
            assert machine is not None and leaf is not None
            await self._create(form(machine, key, node, leaf.name, self._keeper))
        elif there is not None and step is not None:
            await self._change(there, step)

    def _is_ours(self, pod: Object) -> bool:
        return (pod["metadata"].get("annotations") or {}).get(KEPT_BY) == self._keeper

    def _source_of(self, key: Key) -> tuple[ILeaf | None, Object | None]:
        for leaf, copy in self._machines.values():
            machine = self._machine(leaf, copy, key)
            if machine is not None:
                return leaf, machine
        return None, None

    def _is_read(self, there: Object) -> bool:
        name = there["metadata"]["annotations"].get(LEAF, "")
        return name not in self._machines or self._machines[name][1].synced

    def _machine(self, leaf: ILeaf, copy: Reflector, key: Key) -> Object | None:
        try:
            namespace, name = leaf.names({"metadata": {"namespace": key[0], "name": key[1]}})
        except NotFound:
            return None
        return copy.get(name, namespace)

    async def _create(self, pod: Object) -> None:
        namespace, name = key_of(pod)
        try:
            await self._client.create(PODS.resource, pod, namespace)
        except AlreadyExists:
            # Our own Pod that the copy does not have yet is no failure.
            current = await self._client.get(PODS.resource, name, namespace)
            if not self._is_ours(current):
                raise

    async def _change(self, there: Object, step: Step) -> None:
        namespace, name = key_of(there)
        uid = there["metadata"]["uid"]
        try:
            if isinstance(step, UpdateStatus):
                patch = {"metadata": {"uid": uid}, "status": step.status}
                await self._client.patch(
                    PODS.resource, name, patch, namespace, subresource="status"
                )
            else:
                await self._client.delete(PODS.resource, name, namespace, uid=uid, grace_seconds=0)
        except (NotFound, Conflict):
            pass  # deleted or replaced: the watch will report it
