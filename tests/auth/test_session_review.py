"""
Tests for :mod:`twisted_exec.auth.session_review`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import succeed
from twisted.trial.unittest import SynchronousTestCase

from tests.auth.gate_case import GateCase
from tests.contracts.session_guard import SessionGuardContract
from tests.tls.support import authority, client_identity
from twisted_exec.api.status import Forbidden, Unauthorized
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.interfaces import Decision
from twisted_exec.auth.rules import Attributes
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.interfaces import REVOKED, Ending
from twisted_exec.streaming.sessions.guard import REVIEW_SECONDS
from twisted_exec.streaming.subject import Subject

AS_JANE = {"Impersonate-User": ["jane"]}


class SessionReviewTests(GateCase):
    """Reviews of sessions that a gate has admitted."""

    def test_retired_proxy(self) -> None:
        """A session of a proxy's user goes on until the CA of the proxy is removed from the file."""
        gate = self.gate()
        proxy = client_identity("proxy", ca="forwarding")
        context = self.identified(gate, {"X-Remote-User": ["jane"]}, proxy)
        gate.allow(context)
        self.clock.advance(REVIEW_SECONDS)
        self.successResultOf(gate.review(context.subject, context.evidence))
        self.write("forwarding.crt", authority("newer").certificate_pem)
        self.clock.advance(REVIEW_SECONDS)
        reviewing = gate.review(context.subject, context.evidence)
        message = self.failureResultOf(reviewing, Unauthorized).getErrorMessage()
        self.assertIn('the proxy "proxy" is not trusted any more', message)

    def withdrawn(self, gate: Gate, context: RequestContext) -> None:
        """The review of the context's session fails for good."""
        self.failureResultOf(gate.review(Subject("s-0"), context.evidence), Forbidden)

    def test_hidden_impersonation(self) -> None:
        """A session ends when its impersonator may no longer see the user."""
        gate = self.gate()
        context = self.identified(gate, {**self.token, **AS_JANE})
        hidden = Decision(False, "", hidden=True)
        self.permissions.authorize = lambda attributes: succeed(hidden)  # type: ignore[method-assign]
        self.withdrawn(gate, context)

    def test_new_account(self) -> None:
        """A session does not pass to a new account of the same name."""
        self.tokens.uids = {"ann": "1"}
        gate = self.gate()
        context = self.identified(gate, self.token)
        self.successResultOf(gate.review(Subject("s-0"), context.evidence))
        self.tokens.uids = {"ann": "2"}
        self.withdrawn(gate, context)

    def test_impersonator(self) -> None:
        """A session ends when its token now names another user, also under impersonation."""
        gate = self.gate()
        context = self.identified(gate, {**self.token, **AS_JANE})
        self.tokens.users["t"] = "eve"
        self.withdrawn(gate, context)


class SessionGuardTests(SessionGuardContract, SynchronousTestCase):
    """The gate reviews the sessions of the API server."""

    resource = "machines.compute.ironcore.dev"

    def make_reviewer(self) -> Gate:
        """As :meth:`SessionGuardContract.make_reviewer`."""
        self.gate = Gate(self.tokens, self.permissions)
        return self.gate

    async def admit(self, request: Any, subject: Subject) -> object:
        """As :meth:`SessionGuardContract.admit`, as a dispatcher and an admission do it."""
        request.subject = subject
        context = RequestContext(request)
        await self.gate.identify(context)
        await self.gate.authorize_session(
            context,
            Attributes(
                context.user,
                "create",
                "compute.ironcore.dev",
                "v1alpha1",
                "machines",
                "exec",
                "default",
            ),
        )
        return context.evidence

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
                "bob": Ending(
                    REVOKED,
                    "the credential is now another user's: log in, and open the session again",
                ),
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
