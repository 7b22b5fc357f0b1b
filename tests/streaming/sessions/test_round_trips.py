"""
Tests for :mod:`twisted_exec.streaming.sessions.round_trips`.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.audits import AuditList
from tests.streaming.session_streams import StreamDouble
from twisted_exec.program.audit import Trail
from twisted_exec.program.metrics import new_registry
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.streaming.sessions.registry import Session, Sessions
from twisted_exec.streaming.sessions.round_trips import MOST_SESSIONS, RoundTripMetrics
from twisted_exec.streaming.subject import Subject


class RoundTripTests(SynchronousTestCase):
    """
    Sessions whose transports are their round trips.

    :ivar measured: transports that were measured.
    """

    def setUp(self) -> None:
        trail = Trail(AuditList(), "poollet", Clock())
        self.sessions = Sessions(trail, limits=SessionLimits(10_000, 10_000))
        self.registry = new_registry(process=False)
        self.measured: list[object] = []
        RoundTripMetrics(self.registry, self.sessions, self.measure)

    def measure(self, transport: object) -> float | None:
        self.measured.append(transport)
        return transport if isinstance(transport, float) else None

    def carry(self, user: object, machine: object) -> Session:
        session = self.sessions.open(Subject(f"s{len(self.sessions)}"))
        session.carry(StreamDouble(transports=lambda: (user, machine)))
        return session

    def values(self, side: str) -> list[float | None]:
        name = "twisted_exec_tcp_round_trip_seconds"
        return [
            self.registry.get_sample_value(name, {"side": side, "quantile": each})
            for each in ("0.5", "0.9", "1")
        ]

    def test_quantiles(self) -> None:
        """Each side has the median, the slowest of 90 %, and the slowest."""
        for number in range(1, 12):
            self.carry(number / 8, number * 2.0)
        self.assertEqual(self.values("user"), [0.75, 1.25, 1.375])
        self.assertEqual(self.values("machine"), [12, 20, 22])

    def test_unknown(self) -> None:
        """A side without TCP connections has no value; neither has a program without sessions."""
        self.assertEqual(self.values("user"), [None] * 3)
        session = self.carry(0.5, "a UNIX socket")
        self.carry(None, None)
        self.assertEqual(self.values("user"), [0.5] * 3)
        self.assertEqual(self.values("machine"), [None] * 3)
        session.over("client closed")
        self.assertEqual(self.values("user"), [None] * 3)

    def test_many(self) -> None:
        """A scrape measures a limited number of sessions."""
        for _ in range(MOST_SESSIONS + 100):
            self.carry(0.5, 0.25)
        self.assertEqual(self.values("machine"), [0.25] * 3)
        self.assertEqual(len(self.measured), 3 * 2 * MOST_SESSIONS)  # three scrapes
