"""
A leaf, as upkeep of Nodes sees it: its own nodes, and whether it lets us work there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, DeferredSemaphore

from twisted_exec.api.kinds.nodes import NODES
from twisted_exec.kube.watch import Reflector
from twisted_exec.nodeserver.interfaces import ILeaf
from twisted_exec.nodeserver.leaf_nodes import trimmed
from twisted_exec.nodeserver.probe import LeafProbe
from twisted_exec.nodeserver.probing import LeafLook, Repeated

ProbeOf = Callable[[ILeaf, Any], LeafProbe]


class LeafWatch:
    """
    Follows one leaf; its nodes, unless its Pods are machines.

    :param slots: those who look share them.
    :param changed: called when something is known that was not known before.
    """

    def __init__(
        self,
        leaf: ILeaf,
        clock: Any,
        slots: DeferredSemaphore,
        changed: Callable[[], None],
        probe_of: ProbeOf = LeafProbe,
    ) -> None:
        self.leaf, self.machines = leaf, leaf.machines
        self.nodes = Reflector(
            leaf.client,
            NODES.resource,
            clock,
            of=f'leaf cluster "{leaf.name}"',
            trim=trimmed,
            on_change=lambda before, after: changed(),
        )
        self.seen = LeafLook(probe_of(leaf, clock), clock, changed)
        self._looking = Repeated(self.seen.look, clock, slots)

    def start(self) -> None:
        """Follow, and look."""
        # Machines run on no nodes that anybody could show us; to ask would be refused, and told.
        if not self.machines:
            self.nodes.start()
        self._looking.start()

    def stop(self) -> Deferred[None]:
        """Fires when nothing is under way."""
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        for ending in (self._looking.stop(), self.nodes.stop()):
            await ending
