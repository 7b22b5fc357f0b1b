"""
Tests for :mod:`twisted_exec.streaming.sessions.registry`.
"""

from __future__ import annotations

from typing import ClassVar

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.audits import AuditList
from tests.streaming.session_streams import StreamDouble
from twisted_exec.program.audit import Trail
from twisted_exec.streaming.interfaces import REVOKED, Ending
from twisted_exec.streaming.sessions.registry import (
    SESSION_TRANSITIONS,
    Session,
    SessionLife,
    Sessions,
)
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.session_terms import FULL, Right, Terms

_OBSERVER = Terms(right=Right.OBSERVE)


class TermsTests(SynchronousTestCase):
    """Tests for the terms of a session."""

    def setUp(self) -> None:
        self.records = AuditList()
        self.sessions = Sessions(Trail(self.records, "apiserver", Clock()))
        self.session = self.sessions.open(Subject("s-1"), terms=_OBSERVER)
        self.held: list[Terms] = []

    def carry(self) -> None:
        self.session.carry(StreamDouble(hold_to=self.held.append))

    def test_changed(self) -> None:
        """The stream gets other terms, each once."""
        self.carry()
        for terms in (_OBSERVER, FULL, FULL, _OBSERVER):
            self.session.hold_to(terms)
        self.assertEqual(self.held, [FULL, _OBSERVER])
        self.session.over("client closed")
        self.session.hold_to(FULL)
        self.assertEqual(self.held, [FULL, _OBSERVER])

    def test_highest(self) -> None:
        """The audit record has the highest right that the session had."""
        self.session.carry(StreamDouble(hold_to=self.held.append))
        self.session.hold_to(Terms(right=Right.DRIVE))
        self.session.hold_to(_OBSERVER)
        self.session.over("client closed")
        self.assertEqual(self.records[-1]["right"], "drive")

    def test_before(self) -> None:
        """Terms that change before there is a stream reach the stream."""
        self.session.hold_to(FULL)
        self.carry()
        self.assertEqual((self.held, self.session.terms), ([FULL], FULL))

    def test_fixed(self) -> None:
        """A stream whose terms cannot change ends."""
        endings: list[Ending] = []
        self.session.carry(StreamDouble(endings.append))
        self.session.hold_to(FULL)
        self.assertEqual([each.reason for each in endings], [REVOKED])


class LifeTests(SynchronousTestCase):
    """Tests for the life of a session."""

    STEPS: ClassVar = {
        SessionLife.CARRIED: lambda session: session.carry(StreamDouble(supersede=lambda: None)),
        SessionLife.CALLED_OFF: lambda session: session.end(Ending(REVOKED)),
        SessionLife.ENDING: lambda session: (
            session.end(Ending(REVOKED)),
            session.carry(StreamDouble()),
        ),
        SessionLife.SUPERSEDED: lambda session: session.supersede(),
        SessionLife.OVER: lambda session: session.over("client closed"),
        SessionLife.LOST: lambda session: session.over("client lost", is_lost=True),
    }
    """What leads to each phase from those before it."""

    def open(self, name: str) -> Session:
        records = AuditList()
        return Sessions(Trail(records, "apiserver", Clock())).open(Subject(name))

    def reached(self, way: list[SessionLife]) -> Session:
        session = self.open("s-1")
        for life in way:
            self.STEPS[life](session)
        return session

    def test_transitions(self) -> None:
        """Each transition of the table happens, on each way to it."""
        ways = [[SessionLife.OPENING]]
        for way in ways:
            for following in SESSION_TRANSITIONS[way[-1]]:
                self.assertIs(self.reached([*way[1:], following]).life, following, way)
                ways.append([*way, following])
        self.assertEqual({life for way in ways for life in way}, set(SessionLife))

    def test_over(self) -> None:
        """Nothing changes a session that is over."""
        for last in (SessionLife.OVER, SessionLife.LOST):
            session = self.reached([SessionLife.CARRIED, last])
            for step in self.STEPS.values():
                step(session)
            self.assertIs(session.life, last)
            self.assertEqual((session.counts(), session.transports()), ((0, 0), (None, None)))

    def test_without_a_stream(self) -> None:
        """A session without a stream is neither cut nor superseded."""
        session = self.open("s-1")
        session.cut("stopped")
        session.supersede()
        self.assertIs(session.life, SessionLife.OPENING)

    def test_lost_while_opening(self) -> None:
        """A session whose connection is lost before its stream is up is over: nothing waits for its user."""
        for ways in ([], [SessionLife.CALLED_OFF]):
            session = self.reached(ways)
            session.over("client lost", is_lost=True)
            session.carry(StreamDouble())
            self.assertIs(session.life, SessionLife.OVER)

    def test_on_over(self) -> None:
        """All that wait for the end of a session are called once."""
        session, called = self.open("s-1"), []
        for name in ("a", "b"):
            session.on_over.append(lambda name=name: called.append(name))
        for _ in range(2):
            session.over("client closed")
        self.assertEqual(called, ["a", "b"])
