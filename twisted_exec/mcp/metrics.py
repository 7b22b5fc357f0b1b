"""Metrics of ``exec-mcp``."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twisted_exec.mcp.sessions import Sessions


class AgentMetrics(Collector):
    """``twisted_exec_mcp_sessions`` and ``twisted_exec_mcp_calls``."""

    def __init__(self, registry: CollectorRegistry, sessions: Sessions) -> None:
        self._sessions = sessions
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        return [
            GaugeMetricFamily(
                "twisted_exec_mcp_sessions", "Sessions of agents.", value=len(self._sessions)
            ),
            GaugeMetricFamily(
                "twisted_exec_mcp_calls", "Calls of tools under way.", value=self._sessions.calls
            ),
        ]
