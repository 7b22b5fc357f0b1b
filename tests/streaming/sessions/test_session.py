"""
Tests for :mod:`twisted_exec.streaming.sessions.registry`.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.audits import AuditList
from twisted_exec.program.audit import Trail
from twisted_exec.streaming.interfaces import (
    REVOKED,
    Ending,
    Subject,
)
from twisted_exec.streaming.sessions.registry import Sessions
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
        self.session.carry(lambda _: None, lambda: None, hold_to=self.held.append)

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
        self.session.carry(lambda _: None, lambda: None, hold_to=self.held.append)
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
        self.session.carry(endings.append, lambda: None)
        self.session.hold_to(FULL)
        self.assertEqual([each.reason for each in endings], [REVOKED])
