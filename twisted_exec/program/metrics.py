"""
Metrics in the format of Prometheus.

Each program has its own registry, not the global one: one process may run several programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
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


REVOCATION_CAUSES = ("permission", "credential", "expired", "object")
"""
Rules forbid the session, authenticators refuse its credentials, these have expired, or its machine or
pool is gone.
"""
_REVOCATION_BUCKETS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 2, 5, 10, 30)


def state_gauge(
    registry: CollectorRegistry, name: str, description: str, is_true: Callable[[], bool]
) -> None:
    """Add a gauge that is 1 while a condition holds."""
    gauge = Gauge(name, description, registry=registry)
    gauge.set_function(lambda: float(is_true()))


class SessionMetrics:
    """
    Metrics of the sessions of one hop.

    ``sessions_opened_total``, ``sessions_resumed_total``, ``sessions_refused_total{code}``,
    ``sessions_active``, ``bytes_total{direction}``, ``log_outages_total{result}``,
    ``revocation_seconds{cause}`` and ``revocations_unobserved_total{cause}``, each with the prefix
    ``twisted_exec_``.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        def named(name: str) -> str:
            return f"twisted_exec_{name}"

        self._opened = Counter(named("sessions_opened"), "Sessions that began.", registry=registry)
        self._resumed = Counter(
            named("sessions_resumed"),
            "Sessions that went on over another connection.",
            registry=registry,
        )
        self._refused = Counter(
            named("sessions_refused"),
            "Sessions that were refused, by HTTP status.",
            ["code"],
            registry=registry,
        )
        self._active = Gauge(named("sessions_active"), "Sessions that are open.", registry=registry)
        self._bytes = Counter(
            named("bytes"),
            "Bytes carried, counted when a session ends.",
            ["direction"],
            registry=registry,
        )
        outages = Counter(
            named("log_outages"),
            "Logs that lost their backend, by whether they continued or ended.",
            ["result"],
            registry=registry,
        )
        self._continued, self._lost = outages.labels("continued"), outages.labels("ended")
        self._revocations = Histogram(
            named("revocation_seconds"),
            "Time from the withdrawal of a right, or from its discovery, to the end of the session.",
            ["cause"],
            buckets=_REVOCATION_BUCKETS,
            registry=registry,
        )
        self._unobserved = Counter(
            named("revocations_unobserved"),
            "Sessions whose right was withdrawn and found so only by a periodic review.",
            ["cause"],
            registry=registry,
        )
        for cause in REVOCATION_CAUSES:
            self._revocations.labels(cause)
            self._unobserved.labels(cause)
        # Present with 0 before the first session, so that rates have a start value.
        self._to_machine = self._bytes.labels("to_machine")
        self._to_user = self._bytes.labels("to_user")

    def opened(self) -> None:
        """A session began."""
        self._opened.inc()
        self._active.inc()

    def resumed(self) -> None:
        """A session went on over another connection."""
        self._resumed.inc()

    def ended(self, *, bytes_to_machine: int = 0, bytes_to_user: int = 0) -> None:
        """A session that had been opened is over."""
        self._active.dec()
        self._to_machine.inc(bytes_to_machine)
        self._to_user.inc(bytes_to_user)

    def revoked(self, cause: str, seconds: float, *, observed: bool) -> None:
        """
        A session whose right was withdrawn is over.

        :param seconds: from the withdrawal to the end of the session.
        :param observed: something reported the withdrawal; otherwise a periodic review found it,
            and the time counts from then.
        """
        self._revocations.labels(cause).observe(seconds)
        if not observed:
            self._unobserved.labels(cause).inc()

    def refused(self, code: int) -> None:
        """A session was refused with an HTTP status."""
        self._refused.labels(str(code)).inc()

    def log_outage(self, *, continued: bool) -> None:
        """The outage of a log is over."""
        (self._continued if continued else self._lost).inc()


class LatencyMetrics:
    """
    The latency of consoles: ``twisted_exec_echo_seconds`` and ``twisted_exec_ping_seconds``.

    Only the machine's end of the sessions, which is in the runtime, can measure these.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._echo = Histogram(
            "twisted_exec_echo_seconds",
            "Time from input to the next output of the machine; later output than after 2 s is no echo.",
            buckets=_ECHO_BUCKETS,
            registry=registry,
        )
        self._ping = Histogram(
            "twisted_exec_ping_seconds",
            "Time of a ping from here to the user's client and back, across all hops.",
            buckets=_PING_BUCKETS,
            registry=registry,
        )

    def echoed(self, seconds: float) -> None:
        """The machine has printed something after input."""
        self._echo.observe(seconds)

    def pinged(self, seconds: float) -> None:
        """A client has answered a ping; a late answer of a suspended client does not count."""
        if seconds <= _LONGEST_PING_SECONDS:
            self._ping.observe(seconds)


_ECHO_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2)
_PING_BUCKETS = (*_ECHO_BUCKETS, 5, 10)
_LONGEST_PING_SECONDS = 20.0


class QueueMetrics:
    """
    Metrics of requests that are too expensive for the reactor thread.

    ``twisted_exec_expensive_requests_waiting`` and
    ``twisted_exec_expensive_requests_refused_total``.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._waiting = Gauge(
            "twisted_exec_expensive_requests_waiting",
            "Requests with large objects that wait for their user's turn.",
            registry=registry,
        )
        self._refused = Counter(
            "twisted_exec_expensive_requests_refused",
            "Requests with large objects that were refused because too many were waiting.",
            registry=registry,
        )

    def waiting(self, count: int) -> None:
        """Set the number of requests that wait."""
        self._waiting.set(count)

    def refused(self) -> None:
        """A request was refused."""
        self._refused.inc()


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
