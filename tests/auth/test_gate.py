"""
Tests for :mod:`twisted_exec.auth.gate`.
"""

from __future__ import annotations

import math
import time
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from tests.auth.gate_case import GateCase
from tests.auth.test_credentials import KEY
from tests.contracts.authorizer import GET, FixedAuthorizer, OnlyLabelled
from tests.streaming.sessions.test_guard import write
from tests.tls.support import client_identity
from twisted_exec.api.status import (
    Forbidden,
    NotFound,
    ServiceUnavailable,
    Unauthorized,
)
from twisted_exec.auth.console_rights import ConsoleVerbs
from twisted_exec.auth.credentials import UnionAuthenticator
from twisted_exec.auth.delegated import DelegatedAuthenticator, DelegatedAuthorizer
from twisted_exec.auth.gate import Evidence, Gate, GatePolicy, ImpersonationPolicy
from twisted_exec.auth.interfaces import Decision
from twisted_exec.auth.request_header import RequestHeaderAuthenticator
from twisted_exec.auth.token_file import TokenFileAuthenticator
from twisted_exec.auth.tokens import BearerAuthenticator
from twisted_exec.auth.x509 import X509Authenticator
from twisted_exec.nodeserver.kubelet_api.gate import NamedCertificateAuthenticator
from twisted_exec.testing.cluster import MemoryCluster

AS_JANE = {"Impersonate-User": ["jane"]}
PAGE = {"Origin": ["https://evil.example"], "Host": ["api.example"]}


class GateTests(GateCase):
    """Tests for :class:`Gate`."""

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
        Evidence ends with the credential; one that is accepted although it has ended, by a cached
        answer, lasts until a review refuses it.
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

    def test_extra_of_impersonated(self) -> None:
        """What the caller says about the user is on record."""
        extra = {
            "Impersonate-Extra-ssh-key": ["SHA256:a+b/c"],
            "Impersonate-Extra-ssh-certificate": ["ada & co (serial 7)", "x=y"],
        }
        context = self.identified(self.gate(), {**self.token, **AS_JANE, **extra})
        self.assertEqual(
            context.subject.extra,
            "ssh-certificate=ada+%26+co+%28serial+7%29&ssh-certificate=x%3Dy&ssh-key=SHA256:a%2Bb/c",
        )
        self.assertEqual(self.identified(self.gate(), self.token).subject.extra, "")

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

    def test_undeclared(self) -> None:
        """The gate refuses an authenticator that declares no headers."""
        nothing: Any = object()
        self.assertRaises(TypeError, Gate, nothing, self.permissions)
