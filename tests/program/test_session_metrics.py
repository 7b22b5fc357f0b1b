"""Tests for :mod:`twisted_exec.program.session_metrics`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec import COMMIT, __version__
from twisted_exec.program.metrics import metrics_text, new_registry
from twisted_exec.program.session_metrics import LatencyMetrics, SessionMetrics


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
