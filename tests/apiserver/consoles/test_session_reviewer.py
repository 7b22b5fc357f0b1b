"""Tests for :mod:`twisted_exec.apiserver.consoles.session_reviewer`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import succeed
from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.session_guard import SessionGuardContract
from twisted_exec.apiserver.consoles.session_reviewer import SessionEvidence, SessionReviewer
from twisted_exec.apiserver.serving.filters import Gate
from twisted_exec.auth.interfaces import Attributes, Decision
from twisted_exec.streaming.interfaces import REVOKED, Ending, Subject
from twisted_exec.streaming.sessions.guard import REVIEW_SECONDS


class SessionGuardTests(SessionGuardContract, SynchronousTestCase):
    """The guard of the API server."""

    resource = "machines.compute.ironcore.dev"

    def make_reviewer(self) -> SessionReviewer:
        """As :meth:`SessionGuardContract.make_reviewer`."""
        self.gate = Gate(self.tokens, self.permissions)
        return SessionReviewer(self.gate)

    async def admit(self, request: Any, subject: Subject) -> SessionEvidence:
        """As :meth:`SessionGuardContract.admit`, as a locator does it."""
        user = await self.gate.authenticate(request)
        allowed = Attributes(
            user, "create", "compute.ironcore.dev", "v1alpha1", "machines", "exec", "default"
        )
        await self.gate.authorize(allowed)
        return SessionEvidence(request.credentials, request.sender, allowed)

    def test_messages(self) -> None:
        """Users read why their credential does not count any more."""
        self.open("ann")
        self.open("bob")
        del self.tokens.users["t-ann"]
        self.tokens.users["t-bob"] = "eve"
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(
            self.endings,
            {
                "ann": Ending(REVOKED, "the token is not known"),
                "bob": Ending(REVOKED, "the credential is now another user's"),
            },
        )

    def test_hidden(self) -> None:
        """A machine that its user may not see any more is out of reach, too."""
        self.open("ann")
        hidden = Decision(False, "the pool is another's", hidden=True)
        self.permissions.authorize = lambda attributes: succeed(hidden)  # type: ignore[method-assign]
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.reasons(), {"ann": REVOKED})
        self.assertIn("not found: the pool is another's", self.endings["ann"].message)
