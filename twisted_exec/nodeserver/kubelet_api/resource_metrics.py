"""
Resource usage in the format of Prometheus, for ``/metrics/resource``.

Source: ``pkg/kubelet/metrics/collectors/resource_metrics.go`` of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from twisted_exec.nodeserver.kubelet_api.counters import NANOSECONDS, Counter
from twisted_exec.nodeserver.kubelet_api.usage import LeafUsage
from twisted_exec.program.metrics import metrics_text

_CONTAINER = ("container", "pod", "namespace")
_POD = ("pod", "namespace")

_Value = tuple[list[str], float, float | None]
"""Labels, value and timestamp of one sample."""


def exposition(node: str, usage: LeafUsage) -> bytes:
    """
    Return the metrics of ``/metrics/resource`` in Prometheus' text format.

    A sample of usage has the timestamp of the leaf's own measurement, so that a reader computes
    rates over the time that passed there.

    Source: ``pkg/kubelet/metrics/collectors/resource_metrics.go`` of Kubernetes.

    :param node: empty for all, without metrics of Nodes.
    """
    registry: Any = _Families(node, usage)  # metrics_text only calls collect
    return metrics_text(registry)


@dataclass(frozen=True)
class _Families:
    node: str
    usage: LeafUsage

    def collect(self) -> Iterable[Metric]:
        yield from self._containers()
        yield from self._nodes()
        yield from self._pods()
        yield _gauge(
            "resource_scrape_error",
            "1 if there was an error while getting container metrics, 0 otherwise",
            (),
            [([], 1.0 if self.usage.problem else 0.0, None)],
        )

    def _containers(self) -> Iterable[Metric]:
        rows = [
            ([name, *_names(pod.root)], counter)
            for pod in self.usage.pods
            for name, counter in pod.containers.items()
        ]
        if not rows:
            return
        yield from _usage("container", _CONTAINER, rows)
        yield _gauge(
            "container_start_time_seconds",
            "Start time of the container since unix epoch in seconds",
            _CONTAINER,
            [(labels, counter.started / NANOSECONDS, None) for labels, counter in rows],
        )

    def _nodes(self) -> Iterable[Metric]:
        counter = self.usage.nodes.get(self.node)
        if counter is not None:
            yield from _usage("node", (), [([], counter)])

    def _pods(self) -> Iterable[Metric]:
        rows = [(_names(pod.root), pod.whole) for pod in self.usage.pods]
        if rows:
            yield from _usage("pod", _POD, rows)


def _names(root: Any) -> list[str]:
    return [root["metadata"]["name"], root["metadata"]["namespace"]]


def _usage(
    what: str, labels: tuple[str, ...], rows: Sequence[tuple[list[str], Counter]]
) -> Iterable[Metric]:
    cpu = CounterMetricFamily(
        f"{what}_cpu_usage_seconds",
        f"[STABLE] Cumulative cpu time consumed by the {what} in core-seconds",
        labels=labels,
    )
    for values, counter in rows:
        cpu.add_metric(values, counter.core_nanoseconds / NANOSECONDS, timestamp=_time(counter))
    yield cpu
    yield _gauge(
        f"{what}_memory_working_set_bytes",
        f"Current working set of the {what} in bytes",
        labels,
        [(values, counter.sample.memory_bytes, _time(counter)) for values, counter in rows],
    )


def _time(counter: Counter) -> float:
    return counter.sample.at / NANOSECONDS


def _gauge(
    name: str, description: str, labels: tuple[str, ...], values: Iterable[_Value]
) -> Metric:
    family = GaugeMetricFamily(name, f"[STABLE] {description}", labels=labels)
    for each, value, time in values:
        family.add_metric(each, value, timestamp=time)
    return family
