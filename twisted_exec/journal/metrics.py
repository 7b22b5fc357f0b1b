"""
Metrics of the journals of a runtime.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from .store import JournalStore


class JournalMetrics(Collector):
    """``twisted_exec_journals_failing`` and ``twisted_exec_journal_lost_bytes_total``."""

    def __init__(self, registry: CollectorRegistry, store: JournalStore) -> None:
        self._store = store
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return the present values; called by the registry."""
        yield GaugeMetricFamily(
            "twisted_exec_journals_failing",
            "Consoles whose output is in memory only, because their disk fails or does not answer.",
            self._store.failing,
        )
        yield CounterMetricFamily(
            "twisted_exec_journal_lost_bytes",
            "Console output that was lost because the disk failed or did not answer.",
            self._store.lost_bytes,
        )
