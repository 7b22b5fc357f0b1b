"""
Tests for :mod:`twisted_exec.apiserver.consoles.endings`; more of them go through sockets, in ``test_connect``.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.support import AuditList
from tests.auth.support import FakeRequest, credentials
from twisted_exec.api.status import Forbidden, ServiceUnavailable, Unauthorized
from twisted_exec.apiserver.consoles.endings import (
    AT_ONCE,
    RECHECK_SECONDS,
    SOON_SECONDS,
    Revocation,
)
from twisted_exec.auth.credentials import PresentedCredentials
from twisted_exec.auth.interfaces import Attributes, User
from twisted_exec.observe.audit import Trail
from twisted_exec.streaming.interfaces import REVOKED, Ending, Subject
from twisted_exec.streaming.sessions.registry import Sessions


class Gate:
    """Knows users by token, and lets in whom the test lets in."""

    def __init__(self) -> None:
        self.users = {"t-ann": "ann", "t-bob": "bob"}
        self.problems: dict[str, Exception] = {}
        self.asked: list[str] = []

    async def review(self, credentials: PresentedCredentials, sender: User | None = None) -> User:
        token = (credentials.bearer_token() or b"").decode()
        if token not in self.users:
            raise Unauthorized("the token is not known")
        return User(self.users[token])

    async def authorize(self, attributes: Attributes) -> None:
        self.asked.append(attributes.user.name)
        if attributes.user.name in self.problems:
            raise self.problems[attributes.user.name]


class RevocationTests(SynchronousTestCase):
    """Tests for :class:`Revocation`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.gate = Gate()
        self.sessions = Sessions(Trail(AuditList(), "apiserver", self.clock))
        self.endings: dict[str, Ending] = {}
        gate: Any = self.gate
        self.revocation = Revocation(gate, self.sessions, self.clock)
        self.revocation.startService()
        self.addCleanup(self.revocation.stopService)
        for name in ("ann", "bob"):
            self.open(name)

    def open(self, name: str) -> None:
        def end(ending: Ending) -> None:
            self.endings[name] = ending

        request: Any = FakeRequest({"X-Remote-User": ["x"]}, None)
        request.credentials = credentials({"Authorization": [f"Bearer t-{name}"]})
        request.sender = User(name)
        self.revocation.opened(request, f"s-{name}", Attributes(User(name), "create"))
        self.sessions.open(Subject(f"s-{name}", user=name)).carry(end, lambda: None)

    def test_within_half_a_minute(self) -> None:
        """A permission that is no more ends its session in less than 30 seconds, by itself."""
        self.assertLess(RECHECK_SECONDS, 30)
        self.gate.problems["ann"] = Forbidden("ann may not")
        self.clock.advance(RECHECK_SECONDS)
        self.assertEqual(self.endings, {"ann": Ending(REVOKED, "ann may not")})

    def test_at_once(self) -> None:
        """After a change of the rules nobody waits for that; a burst of them is one look."""
        self.gate.problems["ann"] = Forbidden("ann may not")
        for _ in range(10):
            self.revocation.soon()
        self.clock.advance(SOON_SECONDS)
        self.assertEqual(self.endings, {"ann": Ending(REVOKED, "ann may not")})
        self.assertEqual(self.gate.asked, ["ann", "bob"])

    def test_token(self) -> None:
        """A token that is no more, or another's now, ends its session."""
        del self.gate.users["t-ann"]
        self.gate.users["t-bob"] = "eve"
        self.clock.advance(RECHECK_SECONDS)
        self.assertEqual(
            self.endings,
            {
                "ann": Ending(REVOKED, "the token is not known"),
                "bob": Ending(REVOKED, "the credential is now another user's"),
            },
        )

    def test_cannot_be_found_out(self) -> None:
        """Then nobody loses a session; the log has one line for as long as it lasts."""
        self.gate.problems["ann"] = ServiceUnavailable("away")
        with capturedLogs() as events:
            self.clock.pump([RECHECK_SECONDS] * 3)
        self.assertEqual(
            [formatEvent(event) for event in events], ["sessions cannot be rechecked: away"]
        )
        self.assertEqual(self.endings, {})
        self.assertEqual(self.gate.asked, ["ann", "bob"] * 3)

    def test_nobody_answers(self) -> None:
        """Where nobody can say who may, not everyone is asked about one after another."""
        names = [f"user-{number}" for number in range(3 * AT_ONCE)]
        for name in names:
            self.gate.users[f"t-{name}"] = name
            self.open(name)
        away = ServiceUnavailable("away")
        self.gate.problems = dict.fromkeys(["ann", "bob", *names], away)
        self.clock.advance(RECHECK_SECONDS)
        self.assertEqual(len(self.gate.asked), AT_ONCE)
        self.gate.problems = {names[-1]: Forbidden("no more")}
        self.clock.advance(RECHECK_SECONDS)
        self.assertEqual(list(self.endings), [names[-1]])

    def test_bug(self) -> None:
        """What goes wrong is logged; the next look is taken nevertheless."""
        self.gate.problems["ann"] = LookupError("ours")
        self.clock.advance(RECHECK_SECONDS)
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)
        self.test_within_half_a_minute()

    def test_bug_about_one(self) -> None:
        """What goes wrong about one session keeps no other from being ended."""
        names = [f"user-{number}" for number in range(AT_ONCE)]
        for name in names:
            self.gate.users[f"t-{name}"] = name
            self.open(name)
        self.gate.problems = {"ann": LookupError("ours")}
        self.gate.problems |= {name: Forbidden("no more") for name in ("bob", names[-1])}
        self.clock.advance(RECHECK_SECONDS)
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)
        self.assertEqual(sorted(self.endings), ["bob", names[-1]])

    def test_over(self) -> None:
        """Of sessions that are over nothing is kept."""
        self.sessions.end(lambda subject: subject.user == "ann", Ending("Completed"))
        for session in list(self.sessions._live):
            session.over("left")
        self.clock.advance(RECHECK_SECONDS)
        self.assertEqual((self.gate.asked, self.revocation._rights), ([], {}))

    def test_stopped(self) -> None:
        """After the stop nothing is asked."""
        self.revocation.soon()
        self.revocation.stopService()
        self.clock.advance(RECHECK_SECONDS)
        self.revocation.soon()
        self.assertEqual((self.gate.asked, self.clock.getDelayedCalls()), ([], []))
        self.revocation.startService()  # the clean-up stops it again
