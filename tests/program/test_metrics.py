"""
Tests for :mod:`twisted_exec.program.metrics`.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec import COMMIT, __version__
from twisted_exec.program.metrics import (
    ExpiryMetrics,
    LatencyMetrics,
    SessionMetrics,
    metrics_text,
    new_registry,
)


class SessionMetricsTests(SynchronousTestCase):
    """Tests for :class:`SessionMetrics`."""

    def setUp(self) -> None:
        self.registry = new_registry(process=False)
        self.metrics = SessionMetrics(self.registry)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"twisted_exec_{name}", labels)

    def test_34_a_session(self) -> None:
        """A session counts as opened, is active until it ends, and its bytes are counted."""
        self.metrics.opened()
        self.assertEqual(self.value("sessions_active"), 1)
        self.metrics.ended(bytes_to_machine=3, bytes_to_user=70)
        self.assertEqual(self.value("sessions_active"), 0)
        self.assertEqual(self.value("sessions_opened_total"), 1)
        self.assertEqual(self.value("bytes_total", direction="to_machine"), 3)
        self.assertEqual(self.value("bytes_total", direction="to_user"), 70)

    def test_refused(self) -> None:
        """Refusals count by their code."""
        for code in (403, 403, 404):
            self.metrics.refused(code)
        self.assertEqual(self.value("sessions_refused_total", code="403"), 2)
        self.assertEqual(self.value("sessions_refused_total", code="404"), 1)

    def test_log_outages(self) -> None:
        """Outages of logs count by their result, from 0 on."""
        self.metrics.log_outage(continued=True)
        self.assertEqual(self.value("log_outages_total", result="continued"), 1)
        self.assertEqual(self.value("log_outages_total", result="ended"), 0)

    def test_two_programs(self) -> None:
        """Two programs in one process count separately."""
        other = new_registry(process=False)
        SessionMetrics(other)
        self.metrics.opened()
        self.assertEqual(other.get_sample_value("twisted_exec_sessions_active"), 0)

    def test_text(self) -> None:
        """Figures are shown from the start, as Prometheus reads them."""
        text = metrics_text(self.registry).decode()
        self.assertIn("twisted_exec_sessions_opened_total 0.0\n", text)
        self.assertIn('twisted_exec_bytes_total{direction="to_user"} 0.0\n', text)

    def test_process(self) -> None:
        """The process's own figures can be had as well."""
        self.assertIn(b"process_open_fds", metrics_text(new_registry()))

    def test_build(self) -> None:
        """A program says which release it is, once."""
        registry = new_registry()
        labels = {"version": __version__, "commit": COMMIT}
        self.assertEqual(registry.get_sample_value("twisted_exec_build_info", labels), 1)
        self.assertNotIn(b"build_info", metrics_text(new_registry(process=False)))


class ExpiryMetricsTests(SynchronousTestCase):
    """Tests for :class:`ExpiryMetrics`."""

    def test_seconds(self) -> None:
        """How long each is good yet, or for how long it has been no more."""
        registry, ends = CollectorRegistry(), {"tls-cert-file": 130.0, "client-ca-file": 70.0}
        ExpiryMetrics(registry, lambda: ends, lambda: 100.0)
        text = metrics_text(registry).decode()
        name = "twisted_exec_certificate_expiry_seconds"
        self.assertIn(f'{name}{{file="tls-cert-file"}} 30.0\n', text)
        self.assertIn(f'{name}{{file="client-ca-file"}} -30.0\n', text)

    def test_nothing_yet(self) -> None:
        """Nobody looks for files before somebody asks: programs are made before they start."""

        def look() -> dict[str, float]:
            raise AssertionError("asked too early")

        ExpiryMetrics(CollectorRegistry(), look)


class LatencyMetricsTests(SynchronousTestCase):
    """Tests for :class:`LatencyMetrics`."""

    def setUp(self) -> None:
        self.registry = new_registry(process=False)
        self.metrics = LatencyMetrics(self.registry)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"twisted_exec_{name}", labels)

    def test_echo(self) -> None:
        """Echoes count by their time."""
        for seconds in (0.003, 0.004, 1.5):
            self.metrics.echoed(seconds)
        self.assertEqual(self.value("echo_seconds_count"), 3)
        self.assertEqual(self.value("echo_seconds_bucket", le="0.005"), 2)
        self.assertEqual(self.value("echo_seconds_bucket", le="2.0"), 3)

    def test_ping(self) -> None:
        """Pings count by their time, without those of clients that were suspended."""
        for seconds in (0.03, 3600):
            self.metrics.pinged(seconds)
        self.assertEqual(self.value("ping_seconds_count"), 1)
        self.assertEqual(self.value("ping_seconds_sum"), 0.03)


class ReactorLagTests(SynchronousTestCase):
    """How late the reactor's timers are."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.registry = new_registry(self.clock, process=False)

    def lag(self, *turns: float) -> float | None:
        """Scrape while the reactor takes turns of some length; return the lag in the answer."""
        scraped = Deferred.fromCoroutine(self.registry.scrape())
        self.assertNoResult(scraped)
        for seconds in turns:
            self.clock.advance(seconds)
        answer = self.successResultOf(scraped).decode()
        (line,) = (each for each in answer.splitlines() if each.startswith("twisted_exec_reactor"))
        return float(line.split()[1])

    def test_idle(self) -> None:
        """An idle reactor has no lag."""
        self.assertAlmostEqual(self.lag(*[0.01] * 5) or 0.0, 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_busy(self) -> None:
        """The longest turn counts, and only those of this scrape."""
        self.assertAlmostEqual(self.lag(0.01, 0.51, 0.01, 0.21, 0.01) or 0.0, 0.5)
        self.assertAlmostEqual(self.lag(*[0.02] * 5) or 0.0, 0.01)

    def test_without_a_clock(self) -> None:
        """Without a reactor there is no lag, and nothing to wait for."""
        scraped = Deferred.fromCoroutine(new_registry(process=False).scrape())
        self.assertNotIn(b"twisted_exec_reactor", self.successResultOf(scraped))
