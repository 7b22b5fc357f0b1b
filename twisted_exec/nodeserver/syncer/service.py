"""
The syncer: runs the Pods on our Nodes in their leaves.

Leave it off where Kosmos or another syncer creates the leaves' Pods. In leaves it deletes only what
it created, and no namespaces: others may use them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.kinds.pods.machine_pods import PODS
from twisted_exec.api.status import NotFound
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.runs import StoppingParts
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.recorder import Recorder
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.nodeserver.interfaces import ILeaves, IRootPods
from twisted_exec.nodeserver.syncer.leaf_pods import references
from twisted_exec.nodeserver.syncer.objects import RootObjects
from twisted_exec.nodeserver.syncer.worker import LeafWorker, Report, SyncContext
from twisted_exec.program.turns import ShortTurns

TICK_SECONDS = 1.0
"""Interval of checks whether a leaf needs a sweep; checks and sweeps read memory only."""
SWEEP_TICKS = 300


class Syncer(Service):
    """Copies the root's Pods on our Nodes to their leaves, and their status back."""

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        leaves: ILeaves,
        roots: IRootPods,
        clock: IReactorTime,
        *,
        host: str = "",
        tell: Report | None = None,
        now: Callable[[], float] = time.time,
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        self._client, self._leaves, self._roots, self._clock = client, leaves, roots, clock
        self._recorder: Recorder | None = None
        if tell is None:
            self._recorder = Recorder(
                client, clock, about=PODS.resource, component=PROGRAM, host=host, now=now
            )
        self._originals = RootObjects(client, clock, self._objects_changed)
        self._context = SyncContext(
            client,
            leaves,
            roots,
            self._originals,
            clock,
            tell or self._record,
            now,
            metrics.of("synced-objects"),
        )
        self._syncs: dict[str, LeafWorker] = {}
        self._swept: dict[str, int] = {}
        self._stopping = StoppingParts()
        self._unfollow: list[Callable[[], None]] = []
        self._loop = PokedLoop(self._look, clock, TICK_SECONDS, metrics=metrics.of("leaf-sweeps"))

    @property
    def syncs(self) -> list[LeafWorker]:
        return list(self._syncs.values())

    def startService(self) -> None:
        super().startService()
        self._unfollow = [
            self._leaves.follow(self._leaves_changed),
            self._roots.follow(self._root_changed),
        ]
        self._leaves_changed()
        self._loop.start()

    def stopService(self) -> Deferred[Any]:
        """Stop; the Pods stay as they are."""
        super().stopService()
        for each in self._unfollow:
            each()
        for name in list(self._syncs):
            self._end(name)
        ending = [self._loop.stop(), self._stopping.over(), self._originals.stop()]
        if self._recorder is not None:
            ending.append(self._recorder.stop())
        return DeferredList(ending)

    def _record(self, root: Object, reason: str, message: str) -> None:
        if self._recorder is not None:
            self._recorder.record(root, "Warning", reason, message)

    def _leaves_changed(self) -> None:
        leaves = {leaf.name: leaf for leaf in self._leaves.all() if not leaf.machines}
        for name, sync in list(self._syncs.items()):
            if leaves.get(name) is not sync.leaf:
                self._end(name)
        for name, leaf in leaves.items():
            if name not in self._syncs:
                self._syncs[name] = LeafWorker(leaf, self._context)
                self._syncs[name].start()
        self._swept.clear()  # Nodes may have changed

    def _end(self, name: str) -> None:
        self._stopping.add(self._syncs.pop(name).stop())
        self._swept.pop(name, None)

    def _root_changed(self, before: Object | None, after: Object | None) -> None:
        pod = after or before
        assert pod is not None
        try:
            name = self._leaves.of_node(pod["spec"].get("nodeName", "")).name
        except NotFound:
            return
        sync = self._syncs.get(name)
        if sync is None:
            return
        sync.look_at(pod["metadata"]["uid"])
        if after is not None and before is None and references(after):
            sync.objects_changed(after["metadata"]["namespace"])

    def _objects_changed(self, namespace: str) -> None:
        for sync in self._syncs.values():
            if namespace in sync.used():
                sync.objects_changed(namespace)

    async def _look(self) -> None:
        turns = ShortTurns(self._clock)
        for name, sync in list(self._syncs.items()):
            since = self._swept.get(name, SWEEP_TICKS)
            if sync.is_known and (sync.unswept or since >= SWEEP_TICKS):
                self._swept[name] = 0
                for _ in sync.sweep():
                    await turns.breathe()
            elif name in self._swept:
                self._swept[name] = since + 1
        self._originals.keep_only(set().union(*(sync.used() for sync in self._syncs.values())))
