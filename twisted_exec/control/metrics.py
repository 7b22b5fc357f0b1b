"""Metrics of queues, by the names of client-go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from weakref import WeakSet

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BUCKETS = (0.001, 0.01, 0.1, 1, 10, 100, 1000)


class Busy(Protocol):
    """A queue with workers."""

    def at_work_seconds(self) -> Iterable[float]:
        """Return how long each worker has been at its key."""


class QueueMetrics:
    """The metrics of one controller's queues."""

    def __init__(self, depth: Gauge, duration: Histogram, retries: Counter) -> None:
        self._depth, self._duration, self._retries = depth, duration, retries
        self._queues: WeakSet[Busy] = WeakSet()

    def add(self, queue: Busy) -> None:
        """Look at the workers of a queue, as long as it exists."""
        self._queues.add(queue)

    def unfinished_seconds(self) -> float:
        """Return how long all running workers have been at their keys, in total."""
        return sum(self._at_work())

    def longest_seconds(self) -> float:
        """Return how long the worker that began first has been at its key."""
        return max(self._at_work(), default=0.0)

    def _at_work(self) -> Iterable[float]:
        return (seconds for queue in self._queues for seconds in queue.at_work_seconds())

    def queued(self) -> None:
        """A key waits for a worker."""
        self._depth.inc()

    def dropped(self, number: int = 1) -> None:
        """Keys do not wait any more."""
        self._depth.dec(number)

    def begun(self, seconds: float) -> None:
        """A worker has taken a key, which waited so long."""
        self._depth.dec()
        self._duration.observe(seconds)

    def retried(self) -> None:
        """A key waits for its back-off."""
        self._retries.inc()


class WorkQueueMetrics:
    """
    The metrics of the queues of all controllers, where ``name`` is the controller.

    ``workqueue_depth{name}``, ``workqueue_queue_duration_seconds{name}``,
    ``workqueue_retries_total{name}``, ``workqueue_unfinished_work_seconds{name}`` and
    ``workqueue_longest_running_processor_seconds{name}``.

    :param registry: ``None`` if nobody reads them.
    """

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self._depth = Gauge(
            "workqueue_depth", "Keys that wait for a worker.", ["name"], registry=registry
        )
        self._duration = Histogram(
            "workqueue_queue_duration_seconds",
            "How long keys waited for a worker, without delays and back-off.",
            ["name"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._retries = Counter(
            "workqueue_retries", "Keys that failed and were retried.", ["name"], registry=registry
        )
        self._unfinished = Gauge(
            "workqueue_unfinished_work_seconds",
            "How long the running workers have been at their keys, in total.",
            ["name"],
            registry=registry,
        )
        self._longest = Gauge(
            "workqueue_longest_running_processor_seconds",
            "How long the worker that began first has been at its key.",
            ["name"],
            registry=registry,
        )
        self._is_read = registry is not None
        self._of: dict[str, QueueMetrics] = {}

    def of(self, name: str) -> QueueMetrics:
        """Return the metrics of a controller."""
        if name in self._of:
            return self._of[name]
        made = QueueMetrics(
            self._depth.labels(name), self._duration.labels(name), self._retries.labels(name)
        )
        if self._is_read:
            self._of[name] = made
            self._unfinished.labels(name).set_function(made.unfinished_seconds)
            self._longest.labels(name).set_function(made.longest_seconds)
        return made


UNREAD = WorkQueueMetrics(None)
"""For programs without a registry, and for tests."""
