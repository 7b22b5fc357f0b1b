"""
Tests for :mod:`twisted_exec.streaming.sessions.lingering`.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.audits import AuditList
from tests.streaming.session_streams import StreamDouble
from twisted_exec.program.audit import Trail
from twisted_exec.streaming.interfaces import SHUTTING_DOWN, Ending
from twisted_exec.streaming.sessions.lingering import LAST_WORD_SECONDS, linger
from twisted_exec.streaming.sessions.registry import Session, Sessions
from twisted_exec.streaming.subject import Subject


class LingerTests(SynchronousTestCase):
    """Sessions of a process that was replaced."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.sessions = Sessions(Trail(AuditList(), "apiserver", self.clock))
        self.endings: list[Ending] = []
        self.cut: list[str] = []
        self.lost: Deferred[str] = Deferred()

    def open(self, name: str, *, resumable_seconds: int = 0, by_hop: bool = False) -> Session:
        session = self.sessions.open(Subject(session=name, user="bob"))
        session.resumable_seconds, session.is_rejoined_by_hop = resumable_seconds, by_hop
        session.carry(StreamDouble(self.endings.append, lambda: self.cut.append(name)))
        return session

    def linger(self) -> Deferred[None]:
        waiting = linger(self.sessions, self.clock, 60, "it took too long", self.lost)
        return Deferred.fromCoroutine(waiting)

    def test_nothing(self) -> None:
        """Without sessions it is over at once."""
        self.successResultOf(self.linger())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_movable(self) -> None:
        """Sessions that go on elsewhere are cut once, also those that open later; others stay."""
        stays, one = self.open("stays"), self.open("one", resumable_seconds=60)
        two = self.open("two", by_hop=True)
        over = self.linger()
        self.assertEqual(self.cut, ["one", "two"])
        three = self.open("three", resumable_seconds=60)
        self.assertEqual(self.cut, ["one", "two"])  # its stream is being set up
        self.clock.advance(0)
        self.open("four").over("client closed")
        self.clock.advance(0)
        self.assertEqual((self.cut, self.endings), (["one", "two", "three"], []))
        # Nothing looks at the sessions again and again.
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        for each in (one, two, three):
            each.over("cut", is_lost=True)
        self.assertNoResult(over)
        stays.over("client closed")
        self.successResultOf(over)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_one_fails(self) -> None:
        """A session that cannot be cut does not stop the others; those that stay are served."""

        def fail() -> None:
            raise RuntimeError("a bug")

        stays = self.open("stays")
        broken = self.sessions.open(Subject(session="broken", user="bob"))
        broken.resumable_seconds = 60
        broken.carry(StreamDouble(self.endings.append, fail))
        one = self.open("one", resumable_seconds=60)
        over = self.linger()
        self.assertEqual((self.cut, len(self.flushLoggedErrors(RuntimeError))), (["one"], 1))
        self.assertNoResult(over)
        for each in (one, broken, stays):
            each.over("client closed")
        self.successResultOf(over)

    def test_too_long(self) -> None:
        """A session that is left after its time ends with the reason, and is cut if it does not end."""
        self.open("stays")
        over = self.linger()
        self.clock.advance(59)
        self.assertEqual(self.endings, [])
        self.clock.advance(1)
        self.assertEqual(self.endings, [Ending(SHUTTING_DOWN, "it took too long")])
        self.clock.advance(LAST_WORD_SECONDS)
        self.assertEqual(self.cut, ["stays"])
        self.successResultOf(over)

    def test_lost(self) -> None:
        """Sessions end when nobody watches over them any more."""
        session = self.open("stays")
        over = self.linger()
        self.lost.callback("the successor is gone")
        self.assertEqual(self.endings, [Ending(SHUTTING_DOWN, "the successor is gone")])
        session.over("ended")
        self.successResultOf(over)
        self.assertEqual(self.clock.getDelayedCalls(), [])
