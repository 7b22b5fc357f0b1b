"""
The node controller: keeps the Nodes of all leaves in the root.

With ``--upkeep=full`` it deletes a Node once no leaf has had it for a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.kinds.nodes import NODES
from twisted_exec.api.status import APIError, Conflict, NotFound
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.runs import StoppingParts
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.recorder import Recorder
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.nodeserver.interfaces import ILeaf, ILeaves
from twisted_exec.nodeserver.leaves.kosmos import KOSMOS_LEAF
from twisted_exec.nodeserver.nodes.addresses import Address, addresses_of, is_virtual, root_family
from twisted_exec.nodeserver.nodes.plan import FULL, LEAF, orphans
from twisted_exec.nodeserver.nodes.probe import (
    AT_ONCE,
    LeafProbe,
    LeafWatch,
    ProbeOf,
    RootProbe,
    probe_loop,
)
from twisted_exec.nodeserver.nodes.worker import (
    BEAT_SECONDS,
    NodeContext,
    NodeWorker,
    PublishedEndpoint,
)

GRACE_SECONDS = 60.0
"""Delay before a Node without a leaf is deleted: sources of leaves are re-read now and then."""
WRITERS = 16
"""Limit of concurrent writes to Nodes."""


class NodeController(Service):
    """
    Keeps the Nodes of all leaves.

    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        leaves: ILeaves,
        published: PublishedEndpoint,
        clock: IReactorTime,
        now: Callable[[], float],
        *,
        root: RootProbe,
        probe_of: ProbeOf = LeafProbe,
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        self._client, self._leaves, self._published = client, leaves, published
        self._clock, self._probe_of = clock, probe_of
        self._probing = DeferredSemaphore(AT_ONCE)
        writing = DeferredSemaphore(WRITERS)
        self.recorder = Recorder(
            client, clock, about=NODES.resource, component=PROGRAM, host=published.keeper, now=now
        )
        self.nodes = Reflector(
            client, NODES.resource, clock, trim=trim_root_node, on_change=self._node_changed
        )
        self._watches: dict[str, LeafWatch] = {}
        self.workers: dict[str, NodeWorker] = {}
        self._gone: dict[str, float] = {}
        self._stopping = StoppingParts()
        self._family: int | None = None
        self._context = NodeContext(
            client,
            clock,
            now,
            published,
            root,
            writing,
            self._probing,
            self.nodes.get,
            self._watches.__getitem__,
            self._root_family,
            self.record,
            metrics.of("nodes"),
        )
        self._removing = probe_loop(self._remove, clock, writing, BEAT_SECONDS)
        self._unfollow: Callable[[], None] = lambda: None

    def startService(self) -> None:
        super().startService()
        self.nodes.start()
        self._unfollow = self._leaves.follow(self._leaves_changed)
        self._removing.start()
        self.nodes.when_synced().addCallbacks(lambda _: self._leaves_changed(), lambda _: None)

    def stopService(self) -> Deferred[None]:
        """Stop all work and leave the Nodes as they are; fires when none is left."""
        super().stopService()
        self._unfollow()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        ending: list[Deferred[Any]] = [
            self._stopping.over(),
            self._removing.stop(),
            self.nodes.stop(),
            self.recorder.stop(),
        ]
        ending += [worker.stop() for worker in self.workers.values()]
        ending += [watch.stop() for watch in self._watches.values()]
        self.workers.clear()
        self._watches.clear()
        for each in ending:
            await each

    @property
    def problems(self) -> Mapping[str, str]:
        """Nodes that cannot be kept, with the reason."""
        return {name: worker.problem for name, worker in self.workers.items() if worker.problem}

    def _leaves_changed(self) -> None:
        if not self.running or not self.nodes.synced:
            return
        leaves = {leaf.name: leaf for leaf in self._leaves.all()}
        nodes = {name: node for name, node in self._leaves.nodes().items() if node.leaf in leaves}
        for name, worker in list(self.workers.items()):
            if nodes.get(name) != worker.node:
                self._stopping.add(self.workers.pop(name).stop())
        for name, watch in list(self._watches.items()):
            if leaves.get(name) is not watch.leaf or watch.leaf.machines != watch.machines:
                self._stopping.add(self._watches.pop(name).stop())
        for name, leaf in leaves.items():
            if name not in self._watches:
                self._watch(name, leaf)
        for name, node in nodes.items():
            if name not in self.workers:
                self.workers[name] = worker = NodeWorker(self._context, node)
                worker.start()

    def _watch(self, name: str, leaf: ILeaf) -> None:
        def changed() -> None:
            for worker in self.workers.values():
                if worker.node.leaf == name:
                    worker.poke()

        self._watches[name] = watch = LeafWatch(
            leaf, self._clock, self._probing, changed, self._probe_of
        )
        watch.start()

    def _node_changed(self, before: Object | None, after: Object | None) -> None:
        if _addresses(before) != _addresses(after):
            self._family = None
        changed: Object = after if after is not None else before or {}
        worker = self.workers.get(changed["metadata"]["name"])
        if worker is not None:
            worker.poke()

    def _root_family(self) -> int:
        if self._family is None:
            self._family = root_family(self.nodes)
        return self._family

    async def _remove(self) -> None:
        if self._published.upkeep != FULL or not (self.nodes.synced and self._leaves.synced):
            return
        orphaned = {
            str(node["metadata"]["uid"]): node
            for node in orphans(self.nodes, self._leaves.nodes(), self._published.keeper)
        }
        now = self._clock.seconds()
        self._gone = {uid: self._gone.get(uid, now) for uid in orphaned}
        for uid, since in self._gone.items():
            if now - since >= GRACE_SECONDS:
                await self._delete(orphaned[uid])

    async def _delete(self, node: Object) -> None:
        name = node["metadata"]["name"]
        try:
            await self._client.delete(NODES.resource, name, uid=node["metadata"]["uid"])
        except APIError as error:
            if error.code not in (NotFound.code, Conflict.code):
                self._log.warn("node {name} is not removed: {why}", name=name, why=error.message)
            return
        leaf = (node["metadata"].get("annotations") or {}).get(LEAF, "")
        self._log.info('node {name} is removed: leaf "{leaf}" is gone', name=name, leaf=leaf)
        message = f'removed, because leaf "{leaf}" does not have this node any more'
        self.record(node, "Normal", "NodeRemoved", message)

    def record(self, node: Object, type: str, reason: str, message: str) -> None:
        """
        Write an Event about a Node. Its ``involvedObject.uid`` is the Node's name, as with
        kubelets: ``kubectl describe`` searches for that.
        """
        metadata = {**node["metadata"], "uid": node["metadata"]["name"]}
        self.recorder.record({"metadata": metadata}, type, reason, message)


def _addresses(node: Object | None) -> list[Address]:
    return addresses_of(node) if node is not None else []


def trim_root_node(node: Object) -> Object:
    """Remove large parts of a root's Node that are not read here."""
    annotations = node["metadata"].get("annotations") or {}
    status = node.get("status") or {}
    if is_virtual(node) or LEAF in annotations or KOSMOS_LEAF in annotations:
        status.pop("images", None)
        return node
    node["metadata"].pop("managedFields", None)
    return {"metadata": node["metadata"], "status": {"addresses": status.get("addresses") or []}}
