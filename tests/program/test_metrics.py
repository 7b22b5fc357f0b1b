"""
Tests for :mod:`twisted_exec.program.metrics`.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.metrics import ExpiryMetrics, metrics_text, new_registry


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
