"""
Garbage collection of a program: in small steps, so that no session waits for it.

CPython's full collection visits every container: 140 ms in an API server to which 10 000 objects were
added since its start, 0.4 s in a hop with 10 000 sessions.  Little of ours needs it: sessions and
connections are freed by their reference counts.  So objects that live long are frozen, and
collections leave them out, unless there are many more of them than the open descriptors explain:
there may be a cycle among them.

The policy concerns the whole process: an application that embeds our services keeps its own, unless
it starts :class:`GarbagePolicy` itself.
"""

from __future__ import annotations

import gc
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall

from twisted_exec.program.descriptors import open_descriptors

YOUNG = 3_000
"""New containers after which the young ones are collected: about 2 ms."""
YOUNG_ROUNDS = 2
"""Collections of young objects before those that have survived one are collected."""
OLD = 15_000
"""Most old objects that are collected at once: about 10 ms."""
TICK_SECONDS = 60.0
_REVIEW_TICKS = 10
_NEVER = 1 << 30
_EXPLAINED = 100
"""Containers that are normal for one open descriptor."""
_LEAST_SLACK = 50_000


class GarbagePolicy:
    """
    The collector's settings while a program runs.

    :param clock: the reactor.
    """

    def __init__(self, clock: IReactorTime) -> None:
        # Not a PokedLoop: a tick neither waits nor fails, and leaves no garbage of its own.
        self._ticking = LoopingCall(self.tick)
        self._ticking.clock = clock
        self._thresholds = gc.get_threshold()
        self._ticks = self._baseline = self._descriptors = 0

    def start(self) -> None:
        """Freeze what exists, and collect in small steps from now on."""
        if any(isinstance(getattr(each, "__self__", None), GarbagePolicy) for each in gc.callbacks):
            return
        self._thresholds = gc.get_threshold()
        gc.set_threshold(YOUNG, YOUNG_ROUNDS, _NEVER)
        gc.callbacks.append(self._collected)
        self._freeze()
        self._ticking.start(TICK_SECONDS, now=False)

    def stop(self) -> None:
        """Restore the collector's settings."""
        if self._ticking.running:
            self._ticking.stop()
            gc.callbacks.remove(self._collected)
            gc.set_threshold(*self._thresholds)
            gc.unfreeze()

    def tick(self) -> None:
        """Collect what is not frozen, now and then everything; the program stands still for that time."""
        self._ticks += 1
        if self._ticks % _REVIEW_TICKS == 0 and self.is_beyond_explanation():
            gc.unfreeze()
            gc.collect()
            self._freeze()
        else:
            gc.collect()

    def is_beyond_explanation(self) -> bool:
        """Return whether many more objects are frozen than the open descriptors explain."""
        opened = max(0, open_descriptors() - self._descriptors)
        slack = max(_LEAST_SLACK, self._baseline // 2)
        return gc.get_freeze_count() > self._baseline + _EXPLAINED * opened + slack

    def _freeze(self) -> None:
        gc.freeze()
        self._baseline, self._descriptors = gc.get_freeze_count(), open_descriptors()

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        # Survivors of a middle collection are old now.
        if phase == "stop" and info["generation"] and len(gc.get_objects(generation=2)) > OLD:
            gc.freeze()
