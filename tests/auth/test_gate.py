"""
Tests for :mod:`twisted_exec.auth.gate`.
"""

from __future__ import annotations

import math
import time
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.auth.support import CredentialsCase
from tests.auth.test_credentials import KEY, KeyAuthenticator
from tests.contracts.authorizer import GET, FixedAuthorizer, OnlyLabelled
from tests.contracts.session_guard import Permissions, SessionGuardContract, Tokens
from tests.streaming.sessions.test_guard import write
from tests.tls.support import authority, client_identity
from twisted_exec.api.status import (
    APIError,
    Forbidden,
    NotFound,
    ServiceUnavailable,
    Unauthorized,
)
from twisted_exec.auth.console_rights import ConsoleVerbs
from twisted_exec.auth.credentials import UnionAuthenticator
from twisted_exec.auth.delegated import DelegatedAuthenticator, DelegatedAuthorizer
from twisted_exec.auth.gate import Evidence, Gate, GatePolicy, ImpersonationPolicy
from twisted_exec.auth.interfaces import Decision, IAuthenticator
from twisted_exec.auth.request_header import RequestHeaderAuthenticator
from twisted_exec.auth.rules import Attributes
from twisted_exec.auth.token_file import TokenFileAuthenticator
from twisted_exec.auth.tokens import BearerAuthenticator
from twisted_exec.auth.x509 import X509Authenticator
from twisted_exec.nodeserver.kubelet_api.gate import NamedCertificateAuthenticator
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.interfaces import REVOKED, Ending
from twisted_exec.streaming.sessions.guard import REVIEW_SECONDS
from twisted_exec.streaming.subject import Subject
from twisted_exec.testing.cluster import MemoryCluster

AS_JANE = {"Impersonate-User": ["jane"]}
PAGE = {"Origin": ["https://evil.example"], "Host": ["api.example"]}


class GateTests(CredentialsCase):
    """Tests for :class:`Gate`."""

    def setUp(self) -> None:
        super().setUp()
        self.tokens, self.permissions = Tokens(), Permissions()
        self.tokens.users = {"t": "ann"}

    def authenticator(self) -> IAuthenticator:
        return UnionAuthenticator(
            [
                RequestHeaderAuthenticator(self.forwarding_ca, ["proxy"], self.clock),
                X509Authenticator(self.users_ca, self.clock),
                KeyAuthenticator(),
                self.tokens,
            ]
        )

    def gate(self, **policy: Any) -> Gate:
        return Gate(self.authenticator(), self.permissions, GatePolicy(**policy))

    def context(self, headers: dict[str, list[str]], shown: Any = None) -> RequestContext:
        request = self.request(headers, shown)
        request.isSecure = lambda: True
        request.method = b"POST"
        return RequestContext(request)

    def identified(
        self, gate: Gate, headers: dict[str, list[str]], shown: Any = None
    ) -> RequestContext:
        context = self.context(headers, shown)
        self.successResultOf(Deferred.fromCoroutine(gate.identify(context)))
        return context

    def refused(
        self, gate: Gate, error: type[APIError], headers: dict[str, list[str]], shown: Any = None
    ) -> str:
        context = self.context(headers, shown)
        identifying = Deferred.fromCoroutine(gate.identify(context))
        failure = self.failureResultOf(identifying, error)
        self.subject = context.subject
        return failure.getErrorMessage()

    token = {"Authorization": ["Bearer t"]}

    def test_user(self) -> None:
        """The context carries the authenticated user, also for the audit log, and no caller."""
        context = self.identified(self.gate(), self.token)
        self.assertEqual((context.user.name, context.caller), ("ann", None))
        self.assertEqual((context.subject.user, context.subject.caller), ("ann", ""))

    def test_logs(self) -> None:
        """No log event has a token, whether it is accepted or refused."""
        self.tokens.users = {"right-token": "ann"}
        gate = self.gate()
        with capturedLogs() as events:
            self.identified(gate, {"Authorization": ["Bearer right-token"]})
            self.refused(gate, Unauthorized, {"Authorization": ["Bearer wrong-token"]})
        self.assertNotIn("-token", repr(events))

    def test_resumption(self) -> None:
        """The context keeps what the client says about resuming; the request does not."""
        context = self.identified(self.gate(), {**self.token, "X-Twisted-Exec-Resume": ["marks"]})
        assert context.resumption is not None
        self.assertEqual(context.resumption.value, b"marks")
        self.assertFalse(context.request.requestHeaders.hasHeader("X-Twisted-Exec-Resume"))
        self.assertIsNone(self.identified(self.gate(), self.token).resumption)

    def test_visibility(self) -> None:
        """
        A decision that is limited to visible objects fails if the caller cannot apply the limit.
        """
        answer = Decision(True, visibility=OnlyLabelled("a"))
        gate = Gate(self.tokens, FixedAuthorizer(answer), GatePolicy())
        visibility = self.successResultOf(Deferred.fromCoroutine(gate.authorize_visible(GET)))
        self.assertIs(visibility, answer.visibility)
        self.failureResultOf(Deferred.fromCoroutine(gate.authorize(GET)), Forbidden)

    def test_expires(self) -> None:
        """
        Evidence ends with the credential; one that is accepted although it has ended, because
        clocks differ, lasts until a review refuses it.
        """
        for end, expires in ((time.time() + 3600, True), (time.time() - 1, False)):
            self.tokens.expires = end
            evidence: Any = self.identified(self.gate(), self.token).evidence
            self.assertEqual(evidence.expires, end if expires else math.inf)

    def test_files(self) -> None:
        """The gate knows the files of its authenticators, for a guard that watches them."""
        users = write(self.mktemp(), b"t,ann,1")
        tokens = BearerAuthenticator([TokenFileAuthenticator(users, self.clock)])
        named = NamedCertificateAuthenticator(X509Authenticator(self.users_ca, self.clock), ["a"])
        proxies = RequestHeaderAuthenticator(self.forwarding_ca, ["proxy"], self.clock)
        fixed = X509Authenticator(b"no file", self.clock)
        gate = Gate(UnionAuthenticator([proxies, named, fixed, tokens]), self.permissions)
        paths = [path for each in gate.files() for path in each.paths]
        self.assertEqual(paths, [self.forwarding_ca, self.users_ca, users])

    def test_configuration(self) -> None:
        """So it does the configuration of a client that asks an API server, of either kind."""
        client = MemoryCluster().client()
        rights = ConsoleVerbs(DelegatedAuthorizer(client, self.clock), [])
        gate = Gate(UnionAuthenticator([DelegatedAuthenticator(client, self.clock)]), rights)
        before = [each.look() for each in gate.files()]
        self.assertEqual(len(before), 2)
        self.assertEqual([each.look() for each in gate.files()], before)
        client.changes += 1
        for each, version in zip(gate.files(), before, strict=True):
            self.assertNotEqual(each.look(), version)

    def test_nobody(self) -> None:
        """Without a valid credential there is no user."""
        for headers in ({}, {"Authorization": ["Bearer other"]}, {KEY: ["wrong"]}):
            self.refused(self.gate(), Unauthorized, headers)

    def test_impersonation(self) -> None:
        """
        A permitted impersonation sets the user, and the authenticated user becomes the caller.
        """
        context = self.identified(self.gate(), {**self.token, **AS_JANE})
        self.assertEqual(context.user.name, "jane")
        assert context.caller is not None
        self.assertEqual(context.caller.name, "ann")
        self.assertEqual((context.subject.user, context.subject.caller), ("jane", "ann"))
        self.permissions.refused.add("ann")
        self.refused(self.gate(), Forbidden, {**self.token, **AS_JANE})
        self.assertEqual(self.subject.user, "ann")  # on record, though refused

    def test_impersonation_elsewhere(self) -> None:
        """Refused by a poollet; dropped unread by a node server."""
        gate = self.gate(impersonation=ImpersonationPolicy.REFUSED)
        self.refused(gate, Forbidden, {**self.token, **AS_JANE})
        gate = self.gate(impersonation=ImpersonationPolicy.DROPPED)
        context = self.identified(gate, {**self.token, **AS_JANE})
        self.assertEqual(context.user.name, "ann")
        self.assertFalse(context.request.requestHeaders.hasHeader("Impersonate-User"))

    def test_proxy(self) -> None:
        """A proxy is the caller of its users where the policy says so."""
        proxy = client_identity("proxy", ca="forwarding")
        named = {"X-Remote-User": ["jane"], "Audit-Id": ["s-9"]}
        context = self.identified(self.gate(), named, proxy)
        self.assertEqual((context.user.name, context.caller), ("jane", None))
        self.assertTrue(context.request.is_forwarded)
        assert isinstance(context.evidence, Evidence)
        # The proxy reviews the user's credentials: a session keeps the proxy's certificate only.
        assert context.evidence.credentials.certificate is not None
        self.assertEqual(context.evidence.credentials.certificate.common_name, "proxy")
        self.assertEqual(list(context.evidence.credentials.headers.getAllRawHeaders()), [])
        gate = self.gate(proxy_is_caller=True, accepts_session=lambda session: session == "s-9")
        context = self.identified(gate, named, proxy)
        self.assertEqual((context.subject.caller, context.subject.session), ("proxy", "s-9"))
        gate = self.gate(proxy_is_caller=True)
        self.assertEqual(self.identified(gate, named, proxy).subject.session, "s-0")

    def test_rejoin(self) -> None:
        """Only a hop before, where it is the caller of its users, may offer to rejoin a stream."""
        proxy = client_identity("proxy", ca="forwarding")
        header = {"X-Twisted-Exec-Rejoin": ["offer"]}
        named = {"X-Remote-User": ["jane"], **header}
        poollet = self.gate(proxy_is_caller=True)
        self.assertEqual(self.identified(poollet, named, proxy).rejoin, b"offer")
        self.assertEqual(self.identified(self.gate(), named, proxy).rejoin, b"")
        for gate in (poollet, self.gate()):
            context = self.identified(gate, {**self.token, **header})
            self.assertEqual(context.rejoin, b"")
            self.assertFalse(context.request.requestHeaders.hasHeader("X-Twisted-Exec-Rejoin"))

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

    def test_session_of_a_user(self) -> None:
        """Without impersonation, the Audit-Id header does not set the session id."""
        gate = self.gate(accepts_session=lambda session: True)
        context = self.identified(gate, {**self.token, "Audit-Id": ["s-9"]})
        self.assertEqual(context.subject.session, "s-0")

    def test_other_sites(self) -> None:
        """A request from another site's page is refused unless it carries a bearer token."""
        jane = client_identity("jane")
        self.refused(self.gate(), Forbidden, PAGE, jane)
        self.refused(self.gate(), Forbidden, {**PAGE, KEY: ["secret"]})
        self.identified(self.gate(), {**PAGE, **self.token}, jane)
        for policy in (
            {"allowed_origins": [b"https://evil.example"]},
            {"allowed_origins": None},
            {"judges": ["jane"]},
        ):
            self.identified(self.gate(**policy), PAGE, jane)

    def test_page_behind_a_proxy(self) -> None:
        """A page that ``kubectl proxy`` serves from us may use the proxy's certificate."""
        page = {"Origin": ["http://127.0.0.1:8001"], "Host": ["api.example"]}
        jane = client_identity("jane")
        self.identified(self.gate(), {**page, "Sec-Fetch-Site": ["same-origin"]}, jane)
        self.refused(self.gate(), Forbidden, {**page, "Sec-Fetch-Site": ["same-site"]}, jane)

    def test_outage(self) -> None:
        """
        While authentication is unavailable, the outage policy decides which error the client gets.
        """
        self.tokens.is_away = True
        self.refused(self.gate(), ServiceUnavailable, self.token)
        gate = self.gate(outage=lambda problem: NotFound("answers", "any"))
        self.refused(gate, NotFound, self.token)

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

    def test_undeclared(self) -> None:
        """The gate refuses an authenticator that declares no headers."""
        nothing: Any = object()
        self.assertRaises(TypeError, Gate, nothing, self.permissions)


class SessionGuardTests(SessionGuardContract, SynchronousTestCase):
    """The gate reviews the sessions of the API server."""

    resource = "machines.compute.ironcore.dev"

    def make_reviewer(self) -> Gate:
        """As :meth:`SessionGuardContract.make_reviewer`."""
        self.gate = Gate(self.tokens, self.permissions)
        return self.gate

    async def admit(self, request: Any, subject: Subject) -> object:
        """As :meth:`SessionGuardContract.admit`, as a dispatcher and a locator do it."""
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
