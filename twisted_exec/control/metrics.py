"""Metrics of queues, by the names of client-go."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BUCKETS = (0.001, 0.01, 0.1, 1, 10, 100, 1000)


class QueueMetrics:
    """The metrics of one controller's queues."""

    def __init__(self, depth: Gauge, duration: Histogram, retries: Counter) -> None:
        self._depth, self._duration, self._retries = depth, duration, retries

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
    ``workqueue_depth{name}``, ``workqueue_queue_duration_seconds{name}`` and
    ``workqueue_retries_total{name}``, where ``name`` is the controller.

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

    def of(self, name: str) -> QueueMetrics:
        """Return the metrics of a controller."""
        return QueueMetrics(
            self._depth.labels(name), self._duration.labels(name), self._retries.labels(name)
        )


UNREAD = WorkQueueMetrics(None)
"""For programs without a registry, and for tests."""
