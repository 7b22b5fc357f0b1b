"""Metrics of sessions."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REVOCATION_CAUSES = ("permission", "credential", "expired", "object")
"""
Rules forbid the session, authenticators refuse its credentials, these have expired, or its machine or
pool is gone.
"""
_REVOCATION_BUCKETS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 2, 5, 10, 30)
_ECHO_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2)
_PING_BUCKETS = (*_ECHO_BUCKETS, 5, 10)
_LONGEST_PING_SECONDS = 20.0


class SessionMetrics:
    """
    Metrics of the sessions of one hop.

    ``sessions_opened_total``, ``sessions_resumed_total``, ``sessions_refused_total{code}``,
    ``sessions_active``, ``bytes_total{direction}``, ``log_outages_total{result}``,
    ``revocation_seconds{cause}`` and ``revocations_unobserved_total{cause}``, each with the prefix
    ``twisted_exec_``.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        def named(name: str) -> str:
            return f"twisted_exec_{name}"

        self._opened = Counter(named("sessions_opened"), "Sessions that began.", registry=registry)
        self._resumed = Counter(
            named("sessions_resumed"),
            "Sessions that went on over another connection.",
            registry=registry,
        )
        self._refused = Counter(
            named("sessions_refused"),
            "Sessions that were refused, by HTTP status.",
            ["code"],
            registry=registry,
        )
        self._active = Gauge(named("sessions_active"), "Sessions that are open.", registry=registry)
        self._bytes = Counter(
            named("bytes"),
            "Bytes carried, counted when a session ends.",
            ["direction"],
            registry=registry,
        )
        outages = Counter(
            named("log_outages"),
            "Logs that lost their backend, by whether they continued or ended.",
            ["result"],
            registry=registry,
        )
        self._continued, self._lost = outages.labels("continued"), outages.labels("ended")
        self._revocations = Histogram(
            named("revocation_seconds"),
            "Time from the withdrawal of a right, or from its discovery, to the end of the session.",
            ["cause"],
            buckets=_REVOCATION_BUCKETS,
            registry=registry,
        )
        self._unobserved = Counter(
            named("revocations_unobserved"),
            "Sessions whose right was withdrawn and found so only by a periodic review.",
            ["cause"],
            registry=registry,
        )
        for cause in REVOCATION_CAUSES:
            self._revocations.labels(cause)
            self._unobserved.labels(cause)
        # Present with 0 before the first session, so that rates have a start value.
        self._to_machine = self._bytes.labels("to_machine")
        self._to_user = self._bytes.labels("to_user")

    def opened(self) -> None:
        """A session began."""
        self._opened.inc()
        self._active.inc()

    def resumed(self) -> None:
        """A session went on over another connection."""
        self._resumed.inc()

    def ended(self, *, bytes_to_machine: int = 0, bytes_to_user: int = 0) -> None:
        """A session that had been opened is over."""
        self._active.dec()
        self._to_machine.inc(bytes_to_machine)
        self._to_user.inc(bytes_to_user)

    def revoked(self, cause: str, seconds: float, *, observed: bool) -> None:
        """
        A session whose right was withdrawn is over.

        :param seconds: from the withdrawal to the end of the session.
        :param observed: something reported the withdrawal; otherwise a periodic review found it,
            and the time counts from then.
        """
        self._revocations.labels(cause).observe(seconds)
        if not observed:
            self._unobserved.labels(cause).inc()

    def refused(self, code: int) -> None:
        """A session was refused with an HTTP status."""
        self._refused.labels(str(code)).inc()

    def log_outage(self, *, continued: bool) -> None:
        """The outage of a log is over."""
        (self._continued if continued else self._lost).inc()


class LatencyMetrics:
    """
    The latency of consoles: ``twisted_exec_echo_seconds`` and ``twisted_exec_ping_seconds``.

    Only the machine's end of the sessions, which is in the runtime, can measure these.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._echo = Histogram(
            "twisted_exec_echo_seconds",
            "Time from input to the next output of the machine; later output than after 2 s is no echo.",
            buckets=_ECHO_BUCKETS,
            registry=registry,
        )
        self._ping = Histogram(
            "twisted_exec_ping_seconds",
            "Time of a ping from here to the user's client and back, across all hops.",
            buckets=_PING_BUCKETS,
            registry=registry,
        )

    def echoed(self, seconds: float) -> None:
        """The machine has printed something after input."""
        self._echo.observe(seconds)

    def pinged(self, seconds: float) -> None:
        """A client has answered a ping; a late answer of a suspended client does not count."""
        if seconds <= _LONGEST_PING_SECONDS:
            self._ping.observe(seconds)
