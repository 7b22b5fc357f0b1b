"""
Tests for :mod:`twisted_exec.apiserver.endings`; more of them go through sockets, in ``test_connect``.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.test.requesthelper import DummyChannel

from tests.streaming.test_sessions import Records
from twisted_exec.api.status import ServiceUnavailable, Unauthorized
from twisted_exec.apiserver.endings import RECHECK_SECONDS, Revocation
from twisted_exec.apiserver.filters import APIRequest
from twisted_exec.auth.interfaces import Attributes, User
from twisted_exec.observe.audit import Trail
from twisted_exec.streaming.interfaces import REVOKED, Ending, Subject
from twisted_exec.streaming.sessions import Sessions

JANE = User("jane")


class Gate:
    """Lets everyone pass, unless there is a problem."""

    def __init__(self) -> None:
        self.problem: Exception | None = None

    async def authenticate(self, request: object) -> User:
        if self.problem is not None:
            raise self.problem
        return JANE

    async def authorize(self, attributes: Attributes) -> None:
        """They may."""


class RevocationTests(SynchronousTestCase):
    """Tests for :class:`Revocation`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.gate: Any = Gate()
        self.sessions = Sessions(Trail(Records(), "apiserver", self.clock))
        self.revocation = Revocation(self.gate, self.sessions, self.clock)
        self.revocation.startService()
        self.addCleanup(self.revocation.stopService)
        self.endings: list[Ending] = []
        for name in ("a", "b"):
            self.sessions.open(Subject(name)).carry(self.endings.append, lambda: None)
            request = APIRequest(DummyChannel())  # type: ignore[arg-type]
            self.revocation.opened(request, name, Attributes(JANE, "create"))

    def test_withdrawn(self) -> None:
        """A credential that is no more ends the session at the next look."""
        self.gate.problem = Unauthorized("expired")
        self.clock.advance(RECHECK_SECONDS)
        self.assertEqual(self.endings, [Ending(REVOKED, "expired")] * 2)

    def test_cannot_be_found_out(self) -> None:
        """Then nobody loses a session; the log has one line for as long as it lasts."""
        self.gate.problem = ServiceUnavailable("away")
        with capturedLogs() as events:
            self.clock.pump([RECHECK_SECONDS] * 3)
        self.assertEqual(
            [formatEvent(event) for event in events], ["sessions cannot be rechecked: away"]
        )
        self.assertEqual(self.endings, [])

    def test_bug(self) -> None:
        """What goes wrong is logged; the next look is taken nevertheless."""
        self.gate.problem = LookupError("ours")
        self.clock.advance(RECHECK_SECONDS)
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)
        self.test_withdrawn()
