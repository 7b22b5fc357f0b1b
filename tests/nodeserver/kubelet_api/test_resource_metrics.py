"""Tests for :mod:`twisted_exec.nodeserver.kubelet_api.resource_metrics`."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.nodeserver.kubelet_api.counters import Counter, Sample
from twisted_exec.nodeserver.kubelet_api.resource_metrics import exposition
from twisted_exec.nodeserver.kubelet_api.usage import LeafUsage, PodUsage

SECOND = 10**9
NOON = 1_795_176_000
ROOT = {"metadata": {"name": "web", "namespace": "default", "uid": "u"}, "spec": {"nodeName": "n"}}


def counted(core_seconds: float, memory_bytes: int) -> Counter:
    sample = Sample(NOON * SECOND + 250_000_000, 15 * SECOND, 1, memory_bytes)
    return Counter((NOON - 60) * SECOND, int(core_seconds * SECOND), sample)


USAGE = LeafUsage(
    (PodUsage(ROOT, counted(3, 300), {"main": counted(1, 100), "two": counted(2, 200)}),),
    {"n": counted(7, 700)},
)

WHOLE = """\
# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the container in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="main",namespace="default",pod="web"} 1.0 1795176000250
container_cpu_usage_seconds_total{container="two",namespace="default",pod="web"} 2.0 1795176000250
# HELP container_memory_working_set_bytes [STABLE] Current working set of the container in bytes
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="main",namespace="default",pod="web"} 100.0 1795176000250
container_memory_working_set_bytes{container="two",namespace="default",pod="web"} 200.0 1795176000250
# HELP container_start_time_seconds [STABLE] Start time of the container since unix epoch in seconds
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="main",namespace="default",pod="web"} 1.79517594e+09
container_start_time_seconds{container="two",namespace="default",pod="web"} 1.79517594e+09
# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 7.0 1795176000250
# HELP node_memory_working_set_bytes [STABLE] Current working set of the node in bytes
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 700.0 1795176000250
# HELP pod_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the pod in core-seconds
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="default",pod="web"} 3.0 1795176000250
# HELP pod_memory_working_set_bytes [STABLE] Current working set of the pod in bytes
# TYPE pod_memory_working_set_bytes gauge
pod_memory_working_set_bytes{namespace="default",pod="web"} 300.0 1795176000250
# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise
# TYPE resource_scrape_error gauge
resource_scrape_error 0.0
"""


class ExpositionTests(SynchronousTestCase):
    """Tests for :func:`exposition`."""

    def test_whole(self) -> None:
        """Names, help, types, labels, units and times are a kubelet's own."""
        self.assertEqual(exposition("n", USAGE).decode(), WHOLE)
        self.assertTrue(list(text_string_to_metric_families(WHOLE)))

    def test_no_node(self) -> None:
        """A request for several Nodes gets no node metrics: one value cannot stand for all."""
        text = exposition("", USAGE).decode()
        self.assertNotIn("node_", text)
        self.assertIn("pod_cpu_usage_seconds_total{", text)

    def test_problem(self) -> None:
        """Without usage only the error metric is present."""
        lines = exposition("n", LeafUsage(problem="no such API")).decode().splitlines()
        self.assertEqual(lines[-1], "resource_scrape_error 1.0")
        self.assertEqual(len(lines), 3)
