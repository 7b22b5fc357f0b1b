"""Metrics of the Space Manager."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twisted_exec.api import times
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.interfaces import IProviders, ISpaces

_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0)
_GOOD, _CANCELLED = 0, 499

State = Callable[[], "tuple[IProviders, ISpaces] | None"]
"""Returns the leader's providers and Spaces; ``None`` while another replica leads."""


class ProviderCallMetrics:
    """
    ``twisted_exec_space_provider_call_seconds{provider,call}`` and
    ``twisted_exec_space_provider_call_failures_total{provider,call,code}``.

    See :class:`~twisted_exec.spacemanager.bounded.CallMetrics`.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "twisted_exec_space_provider_call_seconds",
            "Duration of calls to providers.",
            ["provider", "call"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._failures = Counter(
            "twisted_exec_space_provider_call_failures",
            "Failed calls to providers, by error code.",
            ["provider", "call", "code"],
            registry=registry,
        )

    def called(self, provider: str, call: str, seconds: float, code: int) -> None:
        if code == _CANCELLED:
            return  # the caller has cancelled it
        self._seconds.labels(provider, call).observe(seconds)
        if code != _GOOD:
            self._failures.labels(provider, call, str(code)).inc()


class SpaceMetrics(Collector):
    """
    ``twisted_exec_spaces{provider,type,phase}``,
    ``twisted_exec_space_provider_reachable{provider}`` and
    ``twisted_exec_space_credentials_expiry_seconds{namespace,space}``.

    :param now: seconds since the epoch.
    """

    def __init__(self, registry: CollectorRegistry, state: State, now: Callable[[], float]) -> None:
        self._state, self._now = state, now
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return _families()

    def collect(self) -> Iterable[Metric]:
        count, reached, ends = families = _families()
        state = self._state()
        if state is None:
            return families
        providers, spaces = state
        for view in providers.all():
            reached.add_metric([view.name], 1 if view.reachable.status == "True" else 0)
        every = spaces.all()
        for labels, number in sorted(Counts(map(_labels, every)).items()):
            count.add_metric(labels, number)
        for space in every:
            end = _end(space)
            if end is not None:
                metadata = space["metadata"]
                ends.add_metric([metadata["namespace"], metadata["name"]], end - self._now())
        return families


def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
    return (
        GaugeMetricFamily(
            "twisted_exec_spaces",
            "Spaces by provider, type and phase.",
            labels=["provider", "type", "phase"],
        ),
        GaugeMetricFamily(
            "twisted_exec_space_provider_reachable",
            "Whether the provider answered its last request for a list.",
            labels=["provider"],
        ),
        GaugeMetricFamily(
            "twisted_exec_space_credentials_expiry_seconds",
            "Remaining validity of a Space's credentials, if known.",
            labels=["namespace", "space"],
        ),
    )


def _labels(space: Object) -> tuple[str, str, str]:
    spec: dict[str, Any] = space.get("spec") or {}
    phase = (space.get("status") or {}).get("Phase")
    return (
        str(spec.get("SpaceProviderDescName") or ""),
        str(spec.get("Type") or ""),
        str(phase or ""),
    )


def _end(space: Object) -> float | None:
    expiry = (space.get("status") or {}).get("credentialsExpireTime")
    return times.seconds(expiry) if isinstance(expiry, str) and times.is_moment(expiry) else None
