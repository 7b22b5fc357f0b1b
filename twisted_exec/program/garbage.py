"""
Garbage collection of a program: in small steps, so that no session waits for it.

CPython's collector stops the program while it visits every container, and little of ours needs it:
sessions and connections are freed by their reference counts. So:
* Objects that exist when the program starts are frozen: collections leave them out.
* Young objects are collected often, a few thousand at a time.
* Old objects are collected while they are few, and frozen once they are many.
* Everything is collected if there are many more frozen objects than the open descriptors explain:
  there may be a cycle among them.

The policy concerns the whole process: an application that embeds our services keeps its own, unless
it starts :class:`GarbagePolicy` itself.
"""

from __future__ import annotations

import gc
import time
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from twisted_exec.program.descriptors import open_descriptors

YOUNG = 3_000
"""New containers after which the young ones are collected: about 2 ms."""
YOUNG_ROUNDS = 2
"""Collections of young objects before those that have survived one are collected."""
OLD = 15_000
"""Most old objects that are collected at once: about 10 ms."""
TICK_SECONDS = 1.0
"""
Interval of collecting young objects, because allocations that equal deallocations do not start the
collector.
"""
_MIDDLE_TICKS, _OLD_TICKS, _REVIEW_TICKS = 10, 60, 600
_NEVER = 1 << 30
_EXPLAINED = 100
"""Containers that are normal for one open descriptor."""
_LEAST_SLACK = 50_000


class GarbagePolicy:
    """
    The collector's settings while a program runs.

    :param clock: the reactor.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        # Not a PokedLoop: a tick neither waits nor fails, and leaves no garbage of its own.
        self._ticking = LoopingCall(self.tick)
        self._ticking.clock = clock
        self._ticks = 0
        self._thresholds = gc.get_threshold()
        self._baseline = self._descriptors = 0

    def start(self) -> None:
        """Freeze what exists, and collect in small steps from now on."""
        if any(isinstance(getattr(each, "__self__", None), GarbagePolicy) for each in gc.callbacks):
            return
        self._thresholds = gc.get_threshold()
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG, YOUNG_ROUNDS, _NEVER)
        gc.callbacks.append(self._collected)
        self._baseline, self._descriptors = gc.get_freeze_count(), open_descriptors()
        self._ticking.start(TICK_SECONDS, now=False)

    def settle(self, _result: None = None) -> None:
        """Freeze what the start of the services has added."""
        if not self._ticking.running:
            return
        gc.freeze()
        self._baseline, self._descriptors = gc.get_freeze_count(), open_descriptors()

    def stop(self) -> None:
        """Restore the collector's settings."""
        if self._ticking.running:
            self._ticking.stop()
            gc.callbacks.remove(self._collected)
            gc.set_threshold(*self._thresholds)
            gc.unfreeze()

    def tick(self) -> None:
        """Collect what is young, and now and then what is older."""
        self._ticks += 1
        if self._ticks % _REVIEW_TICKS == 0 and self.is_beyond_explanation():
            self.collect_everything()
        elif self._ticks % _OLD_TICKS == 0 and len(gc.get_objects(generation=2)) <= OLD:
            gc.collect()
        else:
            gc.collect(1 if self._ticks % _MIDDLE_TICKS == 0 else 0)

    def is_beyond_explanation(self) -> bool:
        """Return whether many more objects are frozen than the open descriptors explain."""
        opened = max(0, open_descriptors() - self._descriptors)
        slack = max(_LEAST_SLACK, self._baseline // 2)
        return gc.get_freeze_count() > self._baseline + _EXPLAINED * opened + slack

    def collect_everything(self) -> None:
        """Collect frozen objects, too; the program stands still for that time."""
        began = time.perf_counter()
        gc.unfreeze()
        collected = gc.collect()
        gc.freeze()
        self._baseline, self._descriptors = gc.get_freeze_count(), open_descriptors()
        self._log.info(
            "collected {collected} of {all} objects in {milliseconds:.0f} ms",
            collected=collected,
            all=collected + self._baseline,
            milliseconds=(time.perf_counter() - began) * 1e3,
        )

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        # Survivors of a middle collection are old now.
        if phase == "stop" and info["generation"] and len(gc.get_objects(generation=2)) > OLD:
            gc.freeze()
