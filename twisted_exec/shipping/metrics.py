"""Metrics of shipping."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_PREFIX = "twisted_exec_shipping_"
KINDS = ("unreachable", "refused", "answer", "disk")
"""Values of the label ``kind`` of failures."""


class Lagging(Protocol):
    """Anything with a lag."""

    def lag(self) -> tuple[int, float]:
        """See :meth:`.Shipper.lag`."""


class ShippingMetrics(Collector):
    """Metrics of all sinks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lagging: dict[str, Lagging] = {}
        self._counters = {
            name: Counter(_PREFIX + name, text, labels, registry=registry)
            for name, text, labels in (
                ("lines", "Lines that a sink has accepted.", ["sink"]),
                ("bytes", "Bytes of the journals that a sink has accepted.", ["sink"]),
                ("rejected_lines", "Lines that a receiver discarded or refused.", ["sink"]),
                ("missing_bytes", "Bytes that the journal no longer had.", ["sink"]),
                ("failures", "Failed attempts, by their kind.", ["sink", "kind"]),
            )
        }
        registry.register(self)

    def of(self, sink: str) -> SinkMetrics:
        """Return the metrics of one sink, which exist from then on with 0."""
        return SinkMetrics(self._counters, sink)

    def watch(self, sink: str, lagging: Lagging) -> None:
        self._lagging[sink] = lagging

    def describe(self) -> Iterable[Metric]:
        return self._families()

    def collect(self) -> Iterable[Metric]:
        sizes, ages = self._families()
        for sink, lagging in self._lagging.items():
            size, age = lagging.lag()
            sizes.add_metric([sink], size)
            ages.add_metric([sink], age)
        return [sizes, ages]

    def _families(self) -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        return (
            GaugeMetricFamily(
                _PREFIX + "lag_bytes", "Bytes that a sink has not accepted yet.", labels=["sink"]
            ),
            GaugeMetricFamily(
                _PREFIX + "lag_seconds",
                "Age of the oldest line that a sink has not accepted yet.",
                labels=["sink"],
            ),
        )


class SinkMetrics:
    """The counters of one sink."""

    def __init__(self, counters: dict[str, Counter], sink: str) -> None:
        self._failures = {kind: counters["failures"].labels(sink, kind) for kind in KINDS}
        self._lines = counters["lines"].labels(sink)
        self._bytes = counters["bytes"].labels(sink)
        self._rejected = counters["rejected_lines"].labels(sink)
        self._missing = counters["missing_bytes"].labels(sink)

    def lines(self, count: int) -> None:
        self._lines.inc(count)

    def bytes(self, count: int) -> None:
        self._bytes.inc(count)

    def rejected(self, count: int) -> None:
        """The receiver discarded or refused lines."""
        self._rejected.inc(count)

    def gap(self, count: int) -> None:
        self._missing.inc(count)

    def failed(self, kind: str) -> None:
        self._failures[kind].inc()
