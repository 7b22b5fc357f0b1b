"""
When the ways are probed, and what was found out last.

Each leaf is looked at every half a minute, once for all Nodes that stand for it, and so is each Node's
way from the root.  A look is under way once at most, several at a time, and none waits for another
leaf's silence: what was found out last counts until something else is.

A leaf, as upkeep of Nodes sees it: its own nodes, and whether it lets us work there.
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
from twisted_exec.program.tasks import Running

PROBE_SECONDS = 30.0
AT_ONCE = 8
"""Looks under way."""


class Repeated(Running):
    """
    Looks again and again.

    :param slots: those who look share them.
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
        """Look now, or a moment later, then again and again until :meth:`stop`."""
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
        except Exception:  # a bug; the next look may be about something else
            self._log.failure("something that is done again and again failed")

    def _crashed(self, failure: Failure) -> None:
        self._log.failure("something that is done again and again ended", failure)


class LeafProbeResult:
    """
    What is known about the way to one leaf.

    :param changed: called when something was found out.
    """

    def __init__(self, probe: LeafProbe, clock: Any, changed: Callable[[], None]) -> None:
        self._probe, self._clock, self._changed = probe, clock, changed
        self.ready: ConditionValue = UNPROBED
        self.allowed: ConditionValue = UNPROBED
        self._answered = clock.seconds()

    @property
    def version(self) -> str:
        """Of the leaf's API server, or empty."""
        return self._probe.version

    @property
    def silent_seconds(self) -> float:
        """Since when it does not answer; 0 while it does."""
        return 0.0 if self.ready[0] == "True" else self._clock.seconds() - self._answered

    async def look(self) -> None:
        """Find out."""
        self.ready, self.allowed = await self._probe.look()
        if self.ready[0] == "True":
            self._answered = self._clock.seconds()
        self._changed()


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
        self.result = LeafProbeResult(probe_of(leaf, clock), clock, changed)
        self._looking = Repeated(self.result.look, clock, slots)

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
