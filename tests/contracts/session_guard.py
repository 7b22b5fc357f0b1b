"""
Contract of the session guard: the same rules for API server, poollet and node server.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs, formatEvent
from zope.interface import implementer
from zope.interface.verify import verifyObject

from tests.auth.support import FakeRequest
from tests.streaming.session_streams import StreamDouble
from twisted_exec.api.status import ServiceUnavailable, Unauthorized
from twisted_exec.auth.credentials import NO_HEADERS
from twisted_exec.auth.interfaces import (
    Decision,
    IAuthenticator,
    IAuthorizer,
    PresentedCredentials,
    User,
)
from twisted_exec.auth.rules import Attributes
from twisted_exec.program.audit import Trail
from twisted_exec.streaming.interfaces import (
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    REVOKED,
    Ending,
    ISessionReviewer,
)
from twisted_exec.streaming.sessions.endings import MachineKey, PoolKey
from twisted_exec.streaming.sessions.guard import HINT_SECONDS, REVIEW_SECONDS, SessionGuard
from twisted_exec.streaming.sessions.registry import Session, Sessions
from twisted_exec.streaming.subject import Subject

if TYPE_CHECKING:
    from twisted.trial.unittest import SynchronousTestCase
else:
    SynchronousTestCase = object

POOL = "pool-a"


@implementer(IAuthenticator)
class Tokens:
    """
    Knows users by their tokens.

    :ivar users: name by token.
    :ivar uids: UID by name, if known.
    :ivar expires: the end of all tokens, in seconds since 1970.
    """

    credential_headers = NO_HEADERS

    def __init__(self) -> None:
        self.users: dict[str, str] = {}
        self.uids: dict[str, str] = {}
        self.expires = math.inf
        self.is_away = False

    def authenticate(self, credentials: PresentedCredentials) -> Deferred[User | None]:
        async def user() -> User | None:
            if self.is_away:
                raise ServiceUnavailable("nobody knows tokens now")
            token = (credentials.bearer_token() or b"").decode()
            if token not in self.users:
                raise Unauthorized("the token is not known")
            name = self.users[token]
            return User(name, uid=self.uids.get(name, ""), expires=self.expires)

        return Deferred.fromCoroutine(user())


@implementer(IAuthorizer)
class Permissions:
    """
    Allows everything, except to the users in ``refused``.

    :ivar questions: the attributes of every call, in order.
    """

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.is_away = False
        self.questions: list[Attributes] = []

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        async def decision() -> Decision:
            self.questions.append(attributes)
            if self.is_away:
                raise ServiceUnavailable("nobody decides now")
            return Decision(attributes.user.name not in self.refused)

        return Deferred.fromCoroutine(decision())


class _NoAudit:
    def record(self, event: Any) -> None:
        pass


class SessionGuardContract(SynchronousTestCase):
    """
    Contract suite; the test case of each hop runs its own gate as reviewer.

    :cvar resource: of the objects that have sessions.
    """

    resource: str

    def setUp(self) -> None:
        self.clock = Clock()
        self.tokens, self.permissions = Tokens(), Permissions()
        self.sessions = Sessions(Trail(_NoAudit(), "hop", self.clock))  # type: ignore[arg-type]
        self.reviewer = self.make_reviewer()
        self.began = time.time()
        self.guard = SessionGuard(
            self.sessions, self.reviewer, self.clock, now=lambda: self.began + self.clock.seconds()
        )
        self.guard.startService()
        self.addCleanup(self.guard.stopService)
        self.endings: dict[str, Ending] = {}

    @abstractmethod
    def make_reviewer(self) -> Any:
        """The hop's own reviewer, with ``tokens`` and ``permissions``."""

    @abstractmethod
    async def admit(self, request: Any, subject: Subject) -> object:
        """Let a request in as the hop's own gate does; return its evidence."""

    def sources(self) -> Sequence[Tokens | Permissions]:
        """Return the sources that a review consults."""
        return [self.tokens, self.permissions]

    def open(self, user: str, subresource: str = "exec", pool: str = POOL) -> Session:
        """Open a session of a machine that is named after its user."""
        subject = self.subject(user, subresource, pool)
        return self.opened(subject, self.evidence(subject))

    def subject(self, user: str, subresource: str = "exec", pool: str = POOL) -> Subject:
        """The subject of a session of a machine that is named after its user."""
        return Subject(
            session=f"s-{user}",
            user=user,
            namespace="default",
            machine=user,
            uid=f"uid-{user}",
            pool=pool,
            resource=self.resource,
            subresource=subresource,
        )

    def evidence(self, subject: Subject) -> object:
        """Return the evidence of a session that the hop admits."""
        user = subject.user
        self.tokens.users[f"t-{user}"] = user
        request = FakeRequest({"Authorization": [f"Bearer t-{user}"]}, None)
        return self.successResultOf(Deferred.fromCoroutine(self.admit(request, subject)))

    def opened(self, subject: Subject, evidence: object) -> Session:
        """Open the session of a subject."""
        user, session = subject.user, self.sessions.open(subject, evidence)

        def end(ending: Ending) -> None:
            self.endings[user] = ending
            session.over(ending.reason)

        session.carry(StreamDouble(end))
        return session

    def reasons(self) -> dict[str, str]:
        """Reasons of the sessions that have ended so far, by user."""
        return {user: ending.reason for user, ending in self.endings.items()}

    def test_interface(self) -> None:
        """The reviewer provides its interface."""
        verifyObject(ISessionReviewer, self.reviewer)

    def test_goes_on(self) -> None:
        """A session with unchanged permissions continues; the review repeats the same checks."""
        self.open("ann")
        before = list(self.permissions.questions)
        self.permissions.questions.clear()
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.endings, {})
        self.assertTrue(before)
        self.assertEqual(self.permissions.questions, before)

    def test_same_questions(self) -> None:
        """A round decides about the same user and object once, and the next round anew."""
        for _ in range(3):
            self.open("ann")
        self.open("bob")
        self.permissions.questions.clear()
        self.clock.advance(REVIEW_SECONDS)
        questions = list(self.permissions.questions)
        self.assertEqual(len(questions), len(set(questions)))
        self.assertLessEqual({"ann", "bob"}, {each.user.name for each in questions})
        self.permissions.refused.add("ann")
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.reasons(), {"ann": REVOKED})
        self.assertEqual(len(self.sessions), 1)

    def test_permission_withdrawn(self) -> None:
        """A withdrawn permission ends its sessions, with a message that names the user."""
        self.open("ann")
        self.open("bob")
        self.permissions.refused.add("ann")
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.reasons(), {"ann": REVOKED})
        self.assertIn("ann", self.endings["ann"].message)

    def test_token_withdrawn(self) -> None:
        """A token that is not valid any more ends its sessions."""
        self.open("ann")
        self.open("bob")
        del self.tokens.users["t-ann"]
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.reasons(), {"ann": REVOKED})

    def test_expired(self) -> None:
        """The end of a credential ends its sessions at that moment."""
        self.open("ann")
        self.tokens.expires = self.began + 100
        self.open("bob")
        self.clock.pump([10] * 9 + [9.9])
        self.assertEqual(self.endings, {})
        self.clock.advance(0.2)
        self.assertEqual(self.reasons(), {"bob": REVOKED})
        self.assertIn("expired at 20", self.endings["bob"].message)

    def test_token_of_another(self) -> None:
        """A token that now belongs to another user ends the first user's session."""
        self.open("ann")
        self.tokens.users["t-ann"] = "eve"
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.reasons(), {"ann": REVOKED})

    def test_hint(self) -> None:
        """After a hint the review does not wait for the timer."""
        self.open("ann")
        self.permissions.refused.add("ann")
        self.guard.review_soon()
        self.clock.advance(HINT_SECONDS)
        self.assertEqual(self.reasons(), {"ann": REVOKED})

    def test_hint_while_opening(self) -> None:
        """A session is reviewed when it opens if there was a hint since its request."""
        subject = self.subject("ann")
        evidence = self.evidence(subject)
        self.permissions.refused.add("ann")
        self.guard.review_soon()
        self.clock.advance(HINT_SECONDS)
        self.opened(subject, evidence)
        self.assertEqual(self.reasons(), {"ann": REVOKED})

    def test_hint_before_the_request(self) -> None:
        """A session is not reviewed when it opens if the last hint came before its request."""
        self.guard.review_soon()
        self.clock.advance(HINT_SECONDS)
        subject = self.subject("ann")
        evidence = self.evidence(subject)
        self.permissions.questions.clear()
        self.opened(subject, evidence)
        self.assertEqual(self.permissions.questions, [])

    def test_no_answer(self) -> None:
        """A review that gets no answer ends no session; the log warns once."""
        self.open("ann")
        for source in self.sources():
            source.is_away = True
            with capturedLogs() as events:
                self.clock.pump([REVIEW_SECONDS] * 3)
            source.is_away = False
            lines = [formatEvent(each) for each in events if each["log_level"] == LogLevel.warn]
            self.assertEqual(sum("sessions cannot be reviewed" in each for each in lines), 1)
            self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.endings, {})

    def test_forgotten(self) -> None:
        """A session's credentials are dropped when it ends, and it is not reviewed again."""
        session = self.open("ann")
        self.assertIsNotNone(session.evidence)
        session.over("client closed")
        self.assertIsNone(session.evidence)
        self.permissions.questions.clear()
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.permissions.questions, [])

    def test_object_deleted(self) -> None:
        """The key of a deleted object ends its own sessions, with the given message."""
        self.open("ann")
        self.open("bob")
        ending = Ending(MACHINE_DELETED, "gone")
        self.assertEqual(self.guard.end(MachineKey("uid-ann"), ending), 1)
        self.assertEqual(self.endings, {"ann": ending})

    def test_powered_off(self) -> None:
        """Powering off a machine ends its console sessions, but not its log sessions."""
        self.open("ann")
        log = self.open("bob", "log")
        for user in ("ann", "bob"):
            self.guard.end(MachineKey(f"uid-{user}"), Ending(POWERED_OFF))
        self.assertEqual(self.reasons(), {"ann": POWERED_OFF})
        self.assertEqual(self.sessions.live(), [log])

    def test_pool_deleted(self) -> None:
        """The key of a deleted pool or Node ends the sessions there, but not those of another resource."""
        self.open("ann")
        self.open("bob", pool="pool-b")
        self.guard.end(PoolKey(POOL, "others.example.com"), Ending(POOL_DELETED))
        self.assertEqual(self.endings, {})
        self.guard.end(PoolKey(POOL, self.resource), Ending(POOL_DELETED))
        self.assertEqual(self.reasons(), {"ann": POOL_DELETED})
