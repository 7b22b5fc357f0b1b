"""The metric of TCP round trips of sessions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.tcp_info import round_trip_seconds

MOST_SESSIONS = 500
"""A scrape measures so many sessions at most, chosen at random."""

QUANTILES = ((0.5, "0.5"), (0.9, "0.9"), (1.0, "1"))
SIDES = ("user", "machine")


class RoundTripMetrics(Collector):
    """
    ``twisted_exec_tcp_round_trip_seconds{side, quantile}``, by the kernel's figures.

    :param measure: see :func:`~twisted_exec.streaming.tcp_info.round_trip_seconds`.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        sessions: Sessions,
        measure: Callable[[object], float | None] = round_trip_seconds,
    ) -> None:
        self._sessions, self._measure = sessions, measure
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return [_family()]

    def collect(self) -> Iterable[Metric]:
        live = self._sessions.live()
        if len(live) > MOST_SESSIONS:
            live = random.sample(live, MOST_SESSIONS)
        family = _family()
        connections = zip(*(session.transports() for session in live), strict=True)
        for side, transports in zip(SIDES, connections, strict=False):
            measured = (self._measure(each) for each in transports if each is not None)
            times = sorted(each for each in measured if each is not None)
            for share, quantile in QUANTILES if times else ():
                family.add_metric([side, quantile], _quantile(times, share))
        return [family]


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[round(share * (len(ordered) - 1))]


def _family() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "twisted_exec_tcp_round_trip_seconds",
        "TCP round trips of the connections of sessions, measured for each scrape.",
        labels=["side", "quantile"],
    )
