"""Sessions end when their Pod is gone, or their Node no longer stands for its leaf."""

from __future__ import annotations

from collections.abc import Callable

from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.interfaces import ILeaf, ILeaves, IRootPods
from twisted_exec.streaming.interfaces import POOL_DELETED, Ending
from twisted_exec.streaming.sessions.endings import POD_ENDINGS, MachineKey, PoolKey
from twisted_exec.streaming.sessions.guard import SessionGuard


class Endings:
    """
    Ends the sessions of Pods that are gone in the root, and of Nodes that no longer stand for their
    leaf.
    """

    def __init__(self, guard: SessionGuard, root_pods: IRootPods, leaves: ILeaves) -> None:
        self._guard, self._root_pods, self._leaves = guard, root_pods, leaves
        self._leaf_of: dict[str, ILeaf] = {}
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        self._leaf_of = self._current()
        self._ends = [
            self._root_pods.follow(self._pod_changed),
            self._leaves.follow(self._leaves_changed),
        ]

    def stop(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            end()

    def _current(self) -> dict[str, ILeaf]:
        return {name: self._leaves.get(node.leaf) for name, node in self._leaves.nodes().items()}

    def _pod_changed(self, before: Object | None, after: Object | None) -> None:
        ending = POD_ENDINGS.machine_ending(before, after)
        if ending is not None and before is not None:
            self._guard.end(MachineKey(before["metadata"]["uid"]), ending)

    def _leaves_changed(self) -> None:
        before, self._leaf_of = self._leaf_of, self._current()
        for node, leaf in before.items():
            if self._leaf_of.get(node) is not leaf:
                why = f": {leaf.gone}" if leaf.gone else ""
                message = f'node "{node}" does not stand for leaf "{leaf.name}" now{why}'
                self._guard.end(PoolKey(node), Ending(POOL_DELETED, message))
