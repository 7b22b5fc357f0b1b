"""Tests for :mod:`twisted_exec.streaming.sessions.idleness`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.audits import AuditList
from tests.retained import entries
from tests.streaming.session_streams import StreamDouble
from twisted_exec.program.audit import Trail
from twisted_exec.streaming.interfaces import IDLE, Ending
from twisted_exec.streaming.sessions.idleness import Idleness
from twisted_exec.streaming.sessions.registry import Session, Sessions
from twisted_exec.streaming.subject import Subject

HOUR = 3600.0


class IdleTests(SynchronousTestCase):
    """Tests for :class:`Idleness`."""

    def setUp(self) -> None:
        self.clock, self.records = Clock(), AuditList()
        self.sessions = Sessions(Trail(self.records, "nodeserver", self.clock))
        self.counts = {"a": (0, 0), "b": (0, 0)}
        self.endings: dict[str, list[Ending]] = {}

    def open(self, name: str, subresource: str = "exec") -> Session:
        session = self.sessions.open(Subject(name, subresource=subresource))
        told = self.endings[name] = []
        session.carry(StreamDouble(told.append, counts=lambda: self.counts[name]))
        return session

    def start(self, seconds: float = 4 * HOUR) -> Idleness:
        idleness = Idleness(self.sessions, self.clock, seconds)
        idleness.start()
        self.addCleanup(idleness.stop)
        return idleness

    def pass_by(self, hours: float) -> None:
        for _ in range(int(hours * 12)):
            self.clock.advance(HOUR / 12)

    def test_idle(self) -> None:
        """After four silent hours a session ends, once, with a reason."""
        self.start()
        self.open("a")
        self.pass_by(3.9)
        self.assertEqual(self.endings["a"], [])
        self.pass_by(2)
        told = "nothing was sent or received for 14400 seconds"
        self.assertEqual(self.endings["a"], [Ending(IDLE, told)])

    def test_alive(self) -> None:
        """Bytes in either direction count; another's do not."""
        self.start()
        self.open("a")
        self.open("b")
        for hour in range(8):
            self.counts["a"] = (hour // 2, hour)
            self.pass_by(1)
        self.assertEqual(self.endings["a"], [])
        self.assertEqual(len(self.endings["b"]), 1)

    def test_spared(self) -> None:
        """Sessions that follow logs have no limit; neither have those of commands."""
        self.start()
        for name, subresource in (("a", "log"), ("b", "run")):
            self.open(name, subresource)
        self.pass_by(30)
        self.assertEqual(self.endings, {"a": [], "b": []})

    def test_off(self) -> None:
        """With 0 no session is checked."""
        self.start(0)
        self.open("a")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stopped(self) -> None:
        """After the stop no timer is left."""
        idleness = self.start()
        self.successResultOf(idleness.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_goes_on(self) -> None:
        """An error during a check is logged, and does not end the checks."""
        self.start()
        session = self.open("a")
        counts, session.counts = session.counts, lambda: (1 // 0, 0)
        self.pass_by(1)
        self.assertTrue(self.flushLoggedErrors(ZeroDivisionError))
        session.counts = counts
        self.pass_by(6)
        self.assertEqual(len(self.endings["a"]), 1)

    def test_forgotten(self) -> None:
        """A session that is over is no longer tracked."""
        idleness = self.start()
        before = entries(idleness, beside=[self.sessions])
        session = self.open("a")
        self.pass_by(1)
        session.over("client closed")
        del session
        self.assertEqual(entries(idleness, beside=[self.sessions]), before)
