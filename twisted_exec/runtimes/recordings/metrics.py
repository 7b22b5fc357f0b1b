"""
Metrics of the recordings of a runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from twisted_exec.api.kinds.consolerecordings import PHASES
from twisted_exec.runtimes.recordings.service import ConsoleRecordings


class RecordingMetrics(Collector):
    """Numbers of recordings, their heads and failures, and the size of what only they retain."""

    def __init__(
        self, registry: CollectorRegistry, recordings: Callable[[], ConsoleRecordings | None]
    ) -> None:
        self._recordings = recordings
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        recordings = self._recordings()
        states = GaugeMetricFamily(
            "twisted_exec_recordings", "Recordings of consoles, by state.", labels=["state"]
        )
        for state in PHASES:
            count = 0 if recordings is None else recordings.count(state)
            states.add_metric([state.lower()], count)
        yield states
        yield GaugeMetricFamily(
            "twisted_exec_recording_retained_bytes",
            "Size of the segments of journals that only recordings retain.",
            0 if recordings is None else recordings.retained.bytes,
        )
        yield CounterMetricFamily(
            "twisted_exec_recording_heads",
            "Signed heads of recordings.",
            0 if recordings is None else recordings.heads,
        )
        yield CounterMetricFamily(
            "twisted_exec_recording_failures",
            "Recordings that could not begin, could not be written, or have failed.",
            0 if recordings is None else recordings.failures,
        )
