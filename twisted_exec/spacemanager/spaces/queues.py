"""
The queues of the controller of Spaces.

Spaces of one provider share a queue, and so do imported Spaces of one namespace, so that a dead
provider or server does not delay the others.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.status import APIError
from twisted_exec.control.metrics import QueueMetrics
from twisted_exec.control.queue import WorkQueue
from twisted_exec.control.runs import StoppingParts
from twisted_exec.kube.informers import Key
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
    """Work queues of Spaces and discovered physical spaces."""

    def __init__(
        self,
        work: Callable[[Work], Awaitable[None]],
        clock: IReactorTime,
        is_there: Callable[[str], bool],
        rng: random.Random,
        metrics: QueueMetrics | None = None,
        refused: Callable[[Work, APIError, int], None] = lambda *_: None,
    ) -> None:
        self._work, self._clock, self._is_there, self._random = work, clock, is_there, rng
        self._metrics, self._refused = metrics, refused
        self._queues: dict[str, WorkQueue[Work]] = {}
        self._delayed: dict[Key, str] = {}
        """The queues in which Spaces wait for their next look."""
        self._stopping = StoppingParts()
        self._stopped = False

    def __len__(self) -> int:
        return sum(queue.unsettled for queue in self._queues.values())

    def add(self, provider: str, work: Work, *, hurry: bool = False) -> None:
        """
        Queue an item.

        :param hurry: skip the back-off after failures.
        """
        if self._stopped:
            return
        queue = self._queues[self._open(provider, "" if isinstance(work, Discovered) else work[0])]
        if hurry:
            queue.hurry(work)
        else:
            queue.add(work)

    def look_in(self, provider: str, key: Key, seconds: float | None) -> None:
        """Queue a Space after a delay; ``None`` is the regular interval."""
        if self._stopped:
            return
        spread = RESYNC_SECONDS * self._random.uniform(0.8, 1.2)
        name = self._open(provider, key[0])
        if self._delayed.get(key, name) != name:
            self.forget(key)
        self._delayed[key] = name
        self._queues[name].add_after(key, spread if seconds is None else min(seconds, spread))

    def forget(self, key: Key) -> None:
        queue = self._queues.get(self._delayed.pop(key, ""))
        if queue is not None:
            queue.forget(key)

    def drop(self, provider: str) -> None:
        if provider in self._queues and not self._is_there(provider):
            self._stopping.add(self._queues.pop(provider).stop())

    def stop(self) -> Deferred[Any]:
        """Stop all queues; fires when no work is under way."""
        self._stopped = True
        ending = [queue.stop() for queue in self._queues.values()]
        return DeferredList([*ending, self._stopping.over()])

    def _open(self, provider: str, namespace: str) -> str:
        """Return the name of the queue for a Space, which exists then."""
        name = provider if provider and self._is_there(provider) else f"/{namespace}"
        if name not in self._queues:
            self._tidy()
            self._queues[name] = WorkQueue(
                self._work, self._clock, self._refused, metrics=self._metrics
            )
        return name

    def _tidy(self) -> None:
        """Remove idle queues of namespaces: deleted namespaces would accumulate."""
        for name, queue in list(self._queues.items()):
            if name.startswith("/") and not len(queue):
                del self._queues[name]
