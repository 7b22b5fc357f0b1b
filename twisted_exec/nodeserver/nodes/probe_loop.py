"""
Schedule of probes, and their last results.

Each leaf is probed every 30 seconds, once for all Nodes that stand for it; so is the path from the
root to each Node.  Probes of one target never overlap, several targets run concurrently, and a
silent leaf delays no other: the last result counts until there is a new one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.conditions import ConditionValue
from twisted_exec.api.kinds.nodes import NODES
from twisted_exec.kube.informers.reflector import Reflector
from twisted_exec.nodeserver.interfaces import ILeaf
from twisted_exec.nodeserver.nodes.conditions import UNPROBED
from twisted_exec.nodeserver.nodes.leaf_nodes import trimmed
from twisted_exec.nodeserver.nodes.probe import LeafProbe
from twisted_exec.program.tasks import BackgroundTask, as_deferred

PROBE_SECONDS = 30.0
AT_ONCE = 8
"""Limit of concurrent probes."""


class ProbeLoop(BackgroundTask):
    """
    Repeats a probe.

    :param slots: limits concurrent probes.
    """

    _log = Logger()

    def __init__(
        self,
        look: Callable[[], Awaitable[None]],
        clock: IReactorTime,
        slots: DeferredSemaphore,
        seconds: float = PROBE_SECONDS,
    ) -> None:
        self._look, self._clock, self._slots, self._seconds = look, clock, slots, seconds

    def start(self, after_seconds: float = 0.0) -> None:
        """Probe now, or after a delay, then periodically until :meth:`stop`."""
        self._begin(self._run(after_seconds))

    async def _run(self, after_seconds: float) -> None:
        if after_seconds:
            await deferLater(self._clock, after_seconds)
        while True:
            await self._slots.run(lambda: Deferred.fromCoroutine(self._once()))
            await deferLater(self._clock, self._seconds)

    async def _once(self) -> None:
        try:
            await self._look()
        except CancelledError:
            raise
        except Exception:  # a bug; the next probe may fare better
            self._log.failure("a probe failed")

    def _crashed(self, failure: Failure) -> None:
        self._log.failure("repeating a probe ended", failure)


class LeafProbeResult:
    """
    The last results of probing one leaf.

    :param changed: called when a result has changed.
    """

    def __init__(self, probe: LeafProbe, clock: Any, changed: Callable[[], None]) -> None:
        self._probe, self._clock, self._changed = probe, clock, changed
        self.ready: ConditionValue = UNPROBED
        self.allowed: ConditionValue = UNPROBED
        self._answered = clock.seconds()

    @property
    def version(self) -> str:
        """Version of the leaf's API server, or empty."""
        return self._probe.version

    @property
    def silent_seconds(self) -> float:
        """Seconds since the leaf stopped answering; 0 while it answers."""
        return 0.0 if self.ready[0] == "True" else self._clock.seconds() - self._answered

    async def look(self) -> None:
        """Probe now."""
        self.ready, self.allowed = await self._probe.look()
        if self.ready[0] == "True":
            self._answered = self._clock.seconds()
        self._changed()


ProbeOf = Callable[[ILeaf, Any], LeafProbe]


class LeafWatch:
    """
    Watches the nodes of one leaf and probes it.

    :param slots: limits concurrent probes.
    :param changed: called when nodes or results have changed.
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
        self.result = LeafProbeResult(probe_of(leaf, clock), clock, changed)
        self._looking = ProbeLoop(self.result.look, clock, slots)

    def start(self) -> None:
        """Start watching and probing."""
        # A leaf of machines has no nodes that we may read; asking would be refused and logged.
        if not self.machines:
            self.nodes.start()
        self._looking.start()

    @as_deferred
    async def stop(self) -> None:
        """Stop; the Deferred fires when nothing is under way."""
        for ending in (self._looking.stop(), self.nodes.stop()):
            await ending
