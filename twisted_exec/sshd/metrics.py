"""Metrics of ``exec-sshd``."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twisted_exec.sshd.limits import Admission

BEFORE_LOGIN, LOGGED_IN = "before_login", "logged_in"
_FAILURES = {True: "refused", False: "unknown_key"}


class Refusal(StrEnum):
    """Why a connection was ended."""

    CONNECTIONS = "connections"
    """There are too many at this server."""
    EVICTED = "evicted"
    """It was the oldest of those that had not logged in, from its address or in all, and there are too many."""
    GRACE = "grace"
    """It did not log in in time."""
    USER = "user"
    """Its user has too many."""
    WITHDRAWN = "withdrawn"
    """The key, the certificate or the user may not log in any more."""


class DoorMetrics:
    """``twisted_exec_sshd_logins_total``, ``twisted_exec_sshd_login_failures_total{reason}`` and ``twisted_exec_sshd_refusals_total{reason}``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._logins = Counter(
            "twisted_exec_sshd_logins", "Logins by ssh that succeeded.", registry=registry
        )
        self._refusals = Counter(
            "twisted_exec_sshd_refusals",
            "Connections of ssh that the door has ended, by reason.",
            ["reason"],
            registry=registry,
        )
        for each in Refusal:
            self._refusals.labels(each)

        self._failures = Counter(
            "twisted_exec_sshd_login_failures",
            "Logins by ssh that failed, by reason: unknown_key once for a connection, refused for each known key.",
            ["reason"],
            registry=registry,
        )
        for reason in _FAILURES.values():
            self._failures.labels(reason)

    def failed(self, is_known: bool) -> None:
        """Count a login that failed, with a key or certificate that is known, or is not."""
        self._failures.labels(_FAILURES[is_known]).inc()

    def logged_in(self) -> None:
        self._logins.inc()

    def refused(self, reason: Refusal) -> None:
        self._refusals.labels(reason).inc()


class ConnectionMetrics(Collector):
    """``twisted_exec_sshd_connections{state}`` and ``twisted_exec_sshd_sessions``."""

    def __init__(self, registry: CollectorRegistry, admission: Admission) -> None:
        self._admission = admission
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return self._families()

    def collect(self) -> Iterable[Metric]:
        connections, sessions = self._families()
        connections.add_metric([BEFORE_LOGIN], self._admission.strangers)
        connections.add_metric([LOGGED_IN], self._admission.logged_in)
        sessions.add_metric([], self._admission.sessions)
        return connections, sessions

    def _families(self) -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        return (
            GaugeMetricFamily(
                "twisted_exec_sshd_connections",
                "Connections of ssh at a time, by state.",
                labels=["state"],
            ),
            GaugeMetricFamily("twisted_exec_sshd_sessions", "Sessions of ssh at a time."),
        )
