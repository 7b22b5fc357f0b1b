"""
Work queues: one per provider, one per namespace for other Spaces, and timers for regular checks.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall

from twisted_exec.kube.informers.reflector import Key
from twisted_exec.kube.informers.work_queue import WorkQueue
from twisted_exec.program.tasks import StoppingParts
from twisted_exec.spacemanager.interfaces import Physical

RESYNC_SECONDS = 600.0
"""Interval for checking a Space without events, randomised."""


@dataclass(frozen=True)
class Discovered:
    """A physical space that may need a Space."""

    provider: str
    physical: Physical


Work = Key | Discovered
"""A Space by namespace and name, or a discovered physical space."""


class SpaceQueues:
    """
    Work queues.

    :param work: processes one item.
    :param is_there: returns whether a provider exists.
    """

    def __init__(
        self,
        work: Callable[[Work], Awaitable[None]],
        clock: Any,
        is_there: Callable[[str], bool],
        rng: random.Random,
    ) -> None:
        self._work, self._clock, self._is_there, self._random = work, clock, is_there, rng
        self._queues: dict[str, WorkQueue[Work]] = {}
        self._timers: dict[Key, IDelayedCall] = {}
        self._stopping = StoppingParts()
        self._stopped = False

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def add(self, provider: str, work: Work, *, hurry: bool = False) -> None:
        """
        Queue an item.

        :param hurry: skip the back-off after failures.
        """
        queue = self._queue(provider, "" if isinstance(work, Discovered) else work[0])
        if hurry:
            queue.hurry(work)
        else:
            queue.add(work)

    def look_in(self, provider: str, key: Key, seconds: float | None) -> None:
        """Queue a Space after a delay; ``None`` for the regular interval."""
        if self._stopped:
            return
        spread = RESYNC_SECONDS * self._random.uniform(0.8, 1.2)
        pause = spread if seconds is None else min(seconds, spread)
        self.forget(key)
        self._timers[key] = self._clock.callLater(pause, self._due, provider, key)

    def forget(self, key: Key) -> None:
        """Cancel the timer of a Space."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def drop(self, provider: str) -> None:
        """Stop the queue of a removed provider."""
        if provider in self._queues and not self._is_there(provider):
            self._stopping.add(self._queues.pop(provider).stop())

    def stop(self) -> Deferred[Any]:
        """Stop all queues; fires when no work is under way."""
        self._stopped = True
        for key in list(self._timers):
            self.forget(key)
        ending = [queue.stop() for queue in self._queues.values()]
        return DeferredList([*ending, self._stopping.over()])

    def _due(self, provider: str, key: Key) -> None:
        del self._timers[key]
        self.add(provider, key)

    def _queue(self, provider: str, namespace: str) -> WorkQueue[Work]:
        """Return the queue of a provider; Spaces without an existing provider share one per namespace."""
        name = provider if provider and self._is_there(provider) else f"/{namespace}"
        if name not in self._queues:
            self._tidy()
            self._queues[name] = WorkQueue(self._work, self._clock)
        return self._queues[name]

    def _tidy(self) -> None:
        """Remove idle queues of namespaces, or deleted namespaces would accumulate."""
        for name, queue in list(self._queues.items()):
            if name.startswith("/") and not len(queue):
                del self._queues[name]
