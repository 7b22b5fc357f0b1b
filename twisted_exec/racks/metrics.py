"""Metrics of ``exec-racks``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

LISTED, WAITING, MISSING = "listed", "waiting", "missing"
"""Servers with a row; those without a row, or without a Machine that uses it; those that have one, and are missing in the cluster."""


class RackMetrics(Collector):
    """``twisted_exec_racks_servers{state}``."""

    def __init__(
        self, registry: CollectorRegistry, counts: Callable[[], Mapping[str, int]]
    ) -> None:
        self._counts = counts
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        family = self._family()
        for state, count in self._counts().items():
            family.add_metric([state], count)
        return [family]

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(
            "twisted_exec_racks_servers", "Servers of metal-operator, by state.", labels=["state"]
        )
