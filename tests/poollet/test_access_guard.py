"""
The session guard of a poollet: its reviewer is the gate of
:func:`~twisted_exec.poollet.access.gate_of`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.contracts.session_guard import POOL, Permissions, SessionGuardContract, Tokens
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.auth.credentials import NO_HEADERS
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.interfaces import IAuthenticator, PresentedCredentials, User
from twisted_exec.poollet.access import PoolAccess, gate_of
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.interfaces import REVOKED
from twisted_exec.streaming.sessions.guard import REVIEW_SECONDS
from twisted_exec.streaming.subject import Subject


class SessionGuardTests(SessionGuardContract, SynchronousTestCase):
    """Users who come with a token of their own."""

    resource = IRONCORE.workload.qualified

    def make_reviewer(self) -> Gate:
        """As :meth:`SessionGuardContract.make_reviewer`."""
        self.access = PoolAccess(IRONCORE, POOL)
        self.gate = gate_of(self.access, self.proxies(), [self.tokens], self.permissions)
        return self.gate

    def proxies(self) -> Any:
        """Who knows users that a proxy forwards."""
        return None

    async def admit(self, request: Any, subject: Subject) -> object:
        """As :meth:`SessionGuardContract.admit`, as the dispatcher and an admission do it."""
        request.subject = subject
        context = RequestContext(request)
        await self.gate.identify(context)
        await self.gate.authorize_session(context, *self.access.permissions(context))
        return context.evidence


@implementer(IAuthenticator)
class Proxy:
    """A proxy speaks for everybody who has a token at first."""

    credential_headers = NO_HEADERS

    def authenticate(self, presented: PresentedCredentials) -> Deferred[User | None]:
        """As :meth:`IAuthenticator.authenticate`."""
        name = (presented.bearer_token() or b"").decode().removeprefix("t-")
        return succeed(User(name, forwarded_by=User("proxy")))


class ForwardedTests(SessionGuardTests):
    """Users for whom a proxy speaks: it reviews their credentials, and the poollet its permission."""

    def proxies(self) -> Any:
        """As :meth:`SessionGuardTests.proxies`."""
        return Proxy()

    def test_proxy(self) -> None:
        """A proxy that may not reach the pool any more loses all sessions that it opened."""
        self.open("ann")
        self.open("bob")
        self.permissions.refused.add("proxy")
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.reasons(), {"ann": REVOKED, "bob": REVOKED})

    def test_token_withdrawn(self) -> None:
        """The poollet has no token of such a user; a session goes on until the proxy ends it."""
        self.open("ann")
        self.tokens.users.clear()
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.endings, {})

    test_token_of_another = test_token_withdrawn

    def test_expired(self) -> None:
        """The poollet knows no end of such a user's credential; the proxy ends the session."""
        self.tokens.expires = self.began + 5
        self.open("ann")
        self.clock.advance(100)
        self.assertEqual(self.endings, {})

    def sources(self) -> Sequence[Tokens | Permissions]:
        """As :meth:`SessionGuardContract.sources`."""
        return [self.permissions]
