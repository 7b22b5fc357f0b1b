"""
Metrics in the format of Prometheus.

Each program has its own registry, not the global one: one process may run several programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from twisted_exec import COMMIT, __version__
from twisted_exec.control.metrics import WorkQueueMetrics

CONTENT_TYPE = CONTENT_TYPE_LATEST
"""The media type of :func:`metrics_text`."""


_LAG_TIMERS = 5
_LAG_TIMER_SECONDS = 0.01


class MetricsRegistry(CollectorRegistry):
    """
    The metrics of one program.

    :param clock: the reactor, to measure its lag.
    """

    def __init__(self, clock: IReactorTime | None = None) -> None:
        super().__init__()
        self.queues = WorkQueueMetrics(self)
        self._clock = clock
        if clock is not None:
            self._lag = Gauge(
                "twisted_exec_reactor_lag_seconds",
                "How late the latest of a few timers of the reactor was, measured for each scrape.",
                registry=self,
            )

    async def scrape(self) -> bytes:
        """Measure, and return the metrics in Prometheus' text format."""
        if self._clock is not None:
            self._lag.set(await _lag_seconds(self._clock))
        return metrics_text(self)


async def _lag_seconds(clock: IReactorTime) -> float:
    latest = 0.0
    for _ in range(_LAG_TIMERS):
        due_at = clock.seconds() + _LAG_TIMER_SECONDS
        await deferLater(clock, _LAG_TIMER_SECONDS)
        latest = max(latest, clock.seconds() - due_at)
    return latest


def new_registry(clock: IReactorTime | None = None, *, process: bool = True) -> MetricsRegistry:
    """
    Return a registry for one program.

    :param process: whether to include the metrics of the build and of the process.
    """
    registry = MetricsRegistry(clock)
    if process:
        register_build(registry)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
    return registry


def register_build(registry: CollectorRegistry) -> None:
    """Add ``twisted_exec_build_info``, which is 1."""
    labels = ["version", "commit"]
    info = Gauge("twisted_exec_build_info", "Version and commit.", labels, registry=registry)
    info.labels(__version__, COMMIT).set(1)


def metrics_text(registry: CollectorRegistry) -> bytes:
    """Return the metrics in Prometheus' text format."""
    return generate_latest(registry)


def state_gauge(
    registry: CollectorRegistry, name: str, description: str, is_true: Callable[[], bool]
) -> None:
    """Add a gauge that is 1 while a condition holds."""
    gauge = Gauge(name, description, registry=registry)
    gauge.set_function(lambda: float(is_true()))


class ExpiryMetrics(Collector):
    """
    ``twisted_exec_certificate_expiry_seconds{file}``: remaining lifetime of certificates; negative
    after their expiry.

    :param ends: returns expiry times in seconds since the epoch, by names that are not secret.
    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        ends: Callable[[], Mapping[str, float]],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._ends, self._now = ends, now
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        family, now = self._family(), self._now()
        for name, end in self._ends().items():
            family.add_metric([name], end - now)
        return [family]

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(
            "twisted_exec_certificate_expiry_seconds",
            "How long a certificate is good yet, by the option that names it.",
            labels=["file"],
        )
