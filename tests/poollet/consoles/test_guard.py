"""The session guard of a poollet: its reviewer is :class:`twisted_exec.poollet.consoles.exec_route.Gate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.session_guard import POOL, Permissions, SessionGuardContract, Tokens
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.auth.interfaces import User
from twisted_exec.poollet.consoles.exec_route import Asking, Gate
from twisted_exec.streaming.interfaces import REVOKED, Subject
from twisted_exec.streaming.sessions.guard import REVIEW_SECONDS


class SessionGuardTests(SessionGuardContract, SynchronousTestCase):
    """Users who come with a token of their own."""

    resource = IRONCORE.workload.qualified

    def make_reviewer(self) -> Gate:
        """As :meth:`SessionGuardContract.make_reviewer`."""
        self.gate = Gate(IRONCORE, POOL, None, self.tokens, self.permissions)
        return self.gate

    async def admit(self, request: Any, subject: Subject) -> Asking:
        """As :meth:`SessionGuardContract.admit`, as a locator does it."""
        asking = await self.gate.who(request)
        await self.gate.admit(asking, subject)
        return asking


class ForwardedTests(SessionGuardTests):
    """Users for whom a proxy speaks: it reviews their credentials, and the poollet its permission."""

    async def admit(self, request: Any, subject: Subject) -> Asking:
        """As :meth:`SessionGuardContract.admit`."""
        asking = Asking(User(subject.user), User("proxy"))
        await self.gate.admit(asking, subject)
        return asking

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

    def sources(self) -> Sequence[Tokens | Permissions]:
        """As :meth:`SessionGuardContract.sources`."""
        return [self.permissions]
