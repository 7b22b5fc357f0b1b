"""
Tests for :mod:`twisted_exec.apiserver.aggregated.authentication`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from tests.apiserver.aggregated.support import PROXY, Host, configmap
from tests.auth.support import CredentialsCase
from tests.tls.support import authority, client_identity
from twisted_exec.api.status import BadGateway, Forbidden, NotFound, Unauthorized
from twisted_exec.apiserver.aggregated.authentication import HostAuthenticator, HostTrust
from twisted_exec.apiserver.aggregated.trust import CONFIGMAPS, NAME, NAMESPACE, TrustError
from twisted_exec.auth.credentials import PresentedCredentials
from twisted_exec.auth.delegated import DelegatedAuthenticator
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.interfaces import IAuthenticator, User
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.interfaces import Subject
from twisted_exec.tls.pki.authority import Issued

USERS, PROXIES, NEWER = (
    authority(name).certificate_pem for name in ("users", "forwarding", "newer")
)
FRONT = client_identity(PROXY, ca="forwarding")
JANE = {"X-Remote-User": ["jane"], "X-Remote-Group": ["dev"]}
CURRENT = "twisted_exec_host_authentication_current"


class AuthenticationCase(CredentialsCase):
    """A host that says whom to believe."""

    def setUp(self) -> None:
        super().setUp()
        self.host = Host()
        self.host.say(configmap(USERS, PROXIES))
        self.metrics = CollectorRegistry()
        self.trust = HostTrust(self.host.client, self.clock, metrics=self.metrics)
        tokens = DelegatedAuthenticator(self.host.client, self.clock)
        self.authenticator = HostAuthenticator(self.trust, tokens, self.clock)

    def gate(self) -> Gate:
        """A gate that authorizes nothing."""
        authorizer: Any = None
        return Gate(self.authenticator, authorizer)

    def begin(self) -> None:
        self.successResultOf(Deferred.fromCoroutine(self.trust.begin()))
        self.trust.startService()
        self.addCleanup(self.trust.stopService)

    def user(
        self, headers: Mapping[str, Sequence[str]] | None = None, shown: Issued | None = None
    ) -> User | None:
        return self.known(self.presented(headers, shown))

    def presented(
        self, headers: Mapping[str, Sequence[str]] | None = None, shown: Issued | None = None
    ) -> PresentedCredentials:
        """Credentials, with the headers that are declared now."""
        declared = self.authenticator.credential_headers
        return self.credentials(headers, shown, declared=declared)

    def known(self, presented: PresentedCredentials) -> User | None:
        user: User | None = self.successResultOf(self.authenticator.authenticate(presented))
        return user

    def name(self, *asked: Any) -> str:
        user = self.user(*asked)
        return "" if user is None else user.name

    def is_current(self) -> bool:
        return bool(self.metrics.get_sample_value(CURRENT))


class StartTests(AuthenticationCase):
    """The first question."""

    def refused(self) -> str:
        began = Deferred.fromCoroutine(self.trust.begin())
        return str(self.failureResultOf(began, TrustError).value)

    def test_refusals(self) -> None:
        """A host that will not say is not waited for; the line says what would help."""
        for problem, told in [
            (
                Unauthorized(),
                "does not know this server (Unauthorized): see the user of --kubeconfig",
            ),
            (
                Forbidden("no"),
                "(no): bind its user to the role extension-apiserver-authentication-reade",
            ),
            (NotFound("configmaps", NAME), "--kubeconfig must lead to a kube-apiserver"),
        ]:
            self.host.cluster.problem = problem
            self.assertIn(told, self.refused())

    def test_unusable(self) -> None:
        """What cannot be used at the start is an end."""
        self.host.say(configmap(USERS, USERS, requestheader_allowed_names=[]))
        self.assertIn("every user could speak for everyone", self.refused())

    def test_down(self) -> None:
        """A host that is down is waited for."""
        self.host.cluster.problem = BadGateway("nobody listens")
        began = Deferred.fromCoroutine(self.trust.begin())
        for _ in range(20):
            self.clock.advance(5)
        self.assertNoResult(began)
        self.assertFalse(self.is_current())
        self.host.cluster.problem = None
        self.clock.advance(5)
        self.successResultOf(began)
        self.assertTrue(self.is_current())
        self.assertEqual(self.trust.authorities(), USERS + PROXIES)


class KnownTests(AuthenticationCase):
    """Who is known."""

    def setUp(self) -> None:
        super().setUp()
        self.begin()

    def test_door(self) -> None:
        """It is an authenticator."""
        self.assertTrue(verifyObject(IAuthenticator, self.authenticator))

    def test_proxy(self) -> None:
        """Whom the host's proxy names, with groups, uid and extra."""
        more = {"X-Remote-Uid": ["7"], "X-Remote-Extra-Scopes": ["a"]}
        user = self.user({**JANE, **more}, FRONT)
        assert user is not None
        self.assertEqual((user.name, user.groups), ("jane", ("dev", "system:authenticated")))
        self.assertEqual((user.uid, user.extra), ("7", {"scopes": ("a",)}))

    def test_certificate(self) -> None:
        """A certificate of the users' CA is its user, whatever the headers say."""
        self.assertEqual(self.name(JANE, client_identity("bob")), "bob")

    def test_others(self) -> None:
        """Headers with any other certificate, or none, are nothing, and nobody is anonymous."""
        for shown in (
            None,
            client_identity("somebody", ca="forwarding"),
            client_identity(PROXY, ca="newer"),
        ):
            self.assertEqual(self.name(JANE, shown), "")
        self.assertEqual(self.name({}, FRONT), "")

    def test_token(self) -> None:
        """The host knows tokens; one that it does not know is refused, and never nobody's."""
        self.host.tokens["good"] = {"username": "system:serviceaccount:default:a"}
        told = self.name({"Authorization": ["Bearer good"], **JANE})
        self.assertEqual(told, "system:serviceaccount:default:a")
        bad = self.authenticator.authenticate(self.presented({"Authorization": ["Bearer bad"]}))
        self.failureResultOf(bad, Unauthorized)

    def test_stripped(self) -> None:
        """Whoever it is, nothing behind this reads the headers of proxies."""
        self.host.tokens["good"] = {"username": "bot"}
        for shown, more in (
            (FRONT, {}),
            (client_identity("bob"), {}),
            (None, {}),
            (None, {"Authorization": ["Bearer good"]}),
        ):
            request = self.request({**JANE, "x-remote-extra-a": ["b"], **more}, shown)
            self.known(self.gate().credential_headers.take_from(request))
            names = [name.lower() for name, _ in request.requestHeaders.getAllRawHeaders()]
            self.assertEqual([name for name in names if name.startswith(b"x-remote")], [])

    def test_asked_again(self) -> None:
        """A request is whose it was, however often that is asked."""
        request, gate = self.request(JANE, FRONT), self.gate()
        first = self.successResultOf(Deferred.fromCoroutine(gate.sender(request)))
        self.assertEqual(first.name, "jane")
        again = self.successResultOf(Deferred.fromCoroutine(gate.sender(request)))
        self.assertEqual(again, first)

    def test_two_users(self) -> None:
        """Two names are no name: one may have slipped past the proxy; and both are taken away."""
        request, gate = self.request({"X-Remote-User": ["jane", "root"]}, FRONT), self.gate()
        for _ in range(2):
            asking = Deferred.fromCoroutine(gate.sender(request))
            self.failureResultOf(asking, Unauthorized)
            self.assertFalse(request.requestHeaders.hasHeader("X-Remote-User"))


class RotationTests(AuthenticationCase):
    """The host says something else."""

    def setUp(self) -> None:
        super().setUp()
        self.begin()
        self.changes = 0
        self.trust.changed = self.count

    def count(self) -> None:
        self.changes += 1

    def test_authorities(self) -> None:
        """New CAs count at once, old ones until they are taken away."""
        new = client_identity(PROXY, ca="newer")
        self.assertEqual(self.name(JANE, new), "")
        self.host.say(configmap(USERS, PROXIES + NEWER))
        self.assertEqual((self.name(JANE, new), self.name(JANE, FRONT)), ("jane", "jane"))
        self.host.say(configmap(USERS, NEWER))
        self.assertEqual((self.name(JANE, new), self.name(JANE, FRONT)), ("jane", ""))
        self.assertEqual(self.trust.authorities(), USERS + NEWER)
        self.assertEqual(self.changes, 2)

    def test_header_names(self) -> None:
        """Headers may be called otherwise from one moment to the next."""
        self.host.say(configmap(USERS, PROXIES, requestheader_username_headers=["X-User"]))
        self.assertEqual(self.name({"X-User": ["bob"], **JANE}, FRONT), "bob")

    def test_sessions_stay(self) -> None:
        """Who opened a session is who they were, when their proxy's CA has gone since."""
        request, gate = self.request(JANE, FRONT), self.gate()
        request.subject = Subject("s-1")
        context = RequestContext(request)
        self.successResultOf(Deferred.fromCoroutine(gate.identify(context)))
        self.host.say(configmap(USERS, NEWER))
        self.successResultOf(gate.review(context.subject, context.evidence))

    def test_same(self) -> None:
        """What says the same as before changes nothing."""
        self.host.say(configmap(USERS, PROXIES))
        self.assertEqual(self.changes, 0)

    def test_unusable(self) -> None:
        """What cannot be used leaves the last that could, and says so until it can be again."""
        for bad in (
            configmap(USERS, b""),
            configmap(USERS, USERS, requestheader_allowed_names=[]),
        ):
            self.host.say(bad)
            self.assertEqual(self.name(JANE, FRONT), "jane")
            self.assertTrue(self.trust.problem)
            self.assertFalse(self.is_current())
        self.host.say(configmap(USERS, PROXIES))
        self.assertEqual((self.trust.problem, self.is_current()), ("", True))

    def test_deleted(self) -> None:
        """Nor does a ConfigMap that is gone change anything."""
        self.host.cluster.remove((CONFIGMAPS, NAMESPACE, NAME))
        self.assertEqual(self.name(JANE, FRONT), "jane")
        self.assertIn("was deleted", self.trust.problem)

    def test_down(self) -> None:
        """A host that is down does not say otherwise; what it says then is heard afterwards."""
        self.host.cluster.problem = BadGateway("nobody listens")
        self.host.cluster.end_watches(self.host.cluster.problem)
        self.assertEqual((self.name(JANE, FRONT), self.is_current()), ("jane", False))
        self.host.say(configmap(USERS, NEWER))
        self.host.cluster.problem = None
        self.clock.advance(60)
        self.clock.advance(2)  # a watch that holds for a moment is current
        self.assertEqual((self.name(JANE, FRONT), self.is_current()), ("", True))
