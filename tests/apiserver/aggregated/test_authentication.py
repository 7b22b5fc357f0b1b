"""
Tests for :mod:`twisted_exec.apiserver.aggregated.authentication`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import capturedLogs, formatEvent
from zope.interface.verify import verifyObject

from tests.apiserver.aggregated.support import PROXY, Host, configmap
from tests.auth.support import CredentialsCase
from tests.tls.support import authority, client_identity
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    Forbidden,
    NotFound,
    ServiceUnavailable,
    Unauthorized,
)
from twisted_exec.apiserver.aggregated.authentication import HostAuthenticator
from twisted_exec.apiserver.aggregated.trust import (
    CONFIGMAPS,
    NAME,
    NAMESPACE,
    HostTrust,
    TrustError,
)
from twisted_exec.auth.delegated import DelegatedAuthenticator
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.interfaces import IAuthenticator, PresentedCredentials, User
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.subject import Subject
from twisted_exec.tls.pki.authority import Issued

USERS, PROXIES, NEWER = (
    authority(name).certificate_pem for name in ("users", "forwarding", "newer")
)
FRONT = client_identity(PROXY, ca="forwarding")
JANE = {"X-Remote-User": ["jane"], "X-Remote-Group": ["dev"]}
CURRENT = "twisted_exec_host_authentication_current"


class AuthenticationCase(CredentialsCase):
    """A host with a ConfigMap of trusted CAs and proxies."""

    def setUp(self) -> None:
        super().setUp()
        self.host = Host()
        self.host.say(configmap(USERS, PROXIES))
        self.make()

    def make(self) -> None:
        """Make the objects of a server that starts."""
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
    """The first read of the ConfigMap."""

    def test_refusals(self) -> None:
        """A host that refuses the ConfigMap may be starting: it is waited for, and the log has a remedy."""
        for problem, told in [
            (Unauthorized(), "(Unauthorized); unless it is starting, see the user of --kubeconfig"),
            (
                Forbidden("no"),
                "(no); unless it is starting, bind its user to the role extension-apiserver-auth",
            ),
            (NotFound("configmaps", NAME), "--kubeconfig must lead to a kube-apiserver"),
        ]:
            self.host.cluster.problem = problem
            with capturedLogs() as logged:
                waiting = self.wait()
            (line,) = [formatEvent(each) for each in logged]
            self.assertIn(told, line)
            self.assertEqual(f"waiting for the host cluster: {self.trust.problem}", line)
            self.assertEqual(self.user_while_unknown(), ServiceUnavailable.code)
            self.host.cluster.problem = None
            self.clock.advance(5)
            self.successResultOf(waiting)
            self.assertEqual((self.trust.problem, self.name(JANE, FRONT)), ("", "jane"))
            self.successResultOf(self.trust.stopService())
            self.make()

    def wait(self) -> Deferred[None]:
        """Start, and wait for half a minute."""
        self.successResultOf(Deferred.fromCoroutine(self.trust.begin()))
        self.trust.startService()
        waiting = self.trust.when_known()
        for _ in range(6):
            self.clock.advance(5)
        self.assertNoResult(waiting)
        self.assertFalse(self.is_current())
        return waiting

    def user_while_unknown(self) -> int:
        """Return the code with which a request of a proxy is refused."""
        answer = self.authenticator.authenticate(self.presented(JANE, FRONT))
        return self.failureResultOf(answer, APIError).value.code

    def test_unusable(self) -> None:
        """An unusable ConfigMap at the start is fatal, also after a wait."""
        unusable = configmap(USERS, USERS, requestheader_allowed_names=[])
        self.host.cluster.problem = BadGateway("nobody listens")
        waiting = self.wait()
        self.host.say(unusable)
        self.host.cluster.problem = None
        self.clock.advance(5)
        refused = "every user could speak for everyone"
        self.assertIn(refused, str(self.failureResultOf(waiting, TrustError).value))
        self.successResultOf(self.trust.stopService())
        self.make()
        began = Deferred.fromCoroutine(self.trust.begin())
        self.assertIn(refused, str(self.failureResultOf(began, TrustError).value))

    def test_down(self) -> None:
        """A host that is down is waited for."""
        self.host.cluster.problem = BadGateway("nobody listens")
        waiting = self.wait()
        self.host.cluster.problem = None
        self.clock.advance(5)
        self.successResultOf(waiting)
        self.assertTrue(self.is_current())
        self.assertEqual(self.trust.authorities(), USERS + PROXIES)
        self.host.say(configmap(USERS, NEWER))
        self.assertEqual(self.trust.authorities(), USERS + NEWER)
        self.successResultOf(self.trust.stopService())

    def test_stopped(self) -> None:
        """A server that stops waits no longer."""
        self.host.cluster.problem = BadGateway("nobody listens")
        waiting = self.wait()
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
        self.successResultOf(self.trust.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])


class KnownTests(AuthenticationCase):
    """Authentication of users, proxies and tokens."""

    def setUp(self) -> None:
        super().setUp()
        self.begin()

    def test_door(self) -> None:
        """It is an authenticator."""
        self.assertTrue(verifyObject(IAuthenticator, self.authenticator))

    def test_proxy(self) -> None:
        """The host's proxy names the user, with groups, uid and extra, in headers."""
        more = {"X-Remote-Uid": ["7"], "X-Remote-Extra-Scopes": ["a"]}
        user = self.user({**JANE, **more}, FRONT)
        assert user is not None
        self.assertEqual((user.name, user.groups), ("jane", ("dev", "system:authenticated")))
        self.assertEqual((user.uid, user.extra), ("7", {"scopes": ("a",)}))

    def test_certificate(self) -> None:
        """A certificate of the users' CA is its user, whatever the headers say."""
        self.assertEqual(self.name(JANE, client_identity("bob")), "bob")

    def test_others(self) -> None:
        """Identity headers are ignored unless the front proxy's certificate comes with them."""
        for shown in (
            None,
            client_identity("somebody", ca="forwarding"),
            client_identity(PROXY, ca="newer"),
        ):
            self.assertEqual(self.name(JANE, shown), "")
        self.assertEqual(self.name({}, FRONT), "")

    def test_token(self) -> None:
        """The host authenticates tokens; an unknown token gets Unauthorized."""
        self.host.tokens["good"] = {"username": "system:serviceaccount:default:a"}
        told = self.name({"Authorization": ["Bearer good"], **JANE})
        self.assertEqual(told, "system:serviceaccount:default:a")
        bad = self.authenticator.authenticate(self.presented({"Authorization": ["Bearer bad"]}))
        self.failureResultOf(bad, Unauthorized)

    def test_stripped(self) -> None:
        """Headers of proxies are removed from every request, whatever its credentials."""
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
        """Repeated lookups of a request's sender return the same user."""
        request, gate = self.request(JANE, FRONT), self.gate()
        first = self.successResultOf(Deferred.fromCoroutine(gate.sender(request)))
        self.assertEqual(first.name, "jane")
        again = self.successResultOf(Deferred.fromCoroutine(gate.sender(request)))
        self.assertEqual(again, first)

    def test_two_users(self) -> None:
        """Two user names get 401, because a client may have added one; both are removed."""
        request, gate = self.request({"X-Remote-User": ["jane", "root"]}, FRONT), self.gate()
        for _ in range(2):
            asking = Deferred.fromCoroutine(gate.sender(request))
            self.failureResultOf(asking, Unauthorized)
            self.assertFalse(request.requestHeaders.hasHeader("X-Remote-User"))


class RotationTests(AuthenticationCase):
    """Changes of the ConfigMap."""

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
        """Changed header names take effect at once."""
        self.host.say(configmap(USERS, PROXIES, requestheader_username_headers=["X-User"]))
        self.assertEqual(self.name({"X-User": ["bob"], **JANE}, FRONT), "bob")

    def test_sessions(self) -> None:
        """A session ends after the CA or the name of its user's proxy is removed, and not before."""
        request, gate = self.request(JANE, FRONT), self.gate()
        request.subject = Subject("s-1")
        context = RequestContext(request)
        self.successResultOf(Deferred.fromCoroutine(gate.identify(context)))
        self.host.say(configmap(USERS, PROXIES + NEWER))
        self.successResultOf(gate.review(context.subject, context.evidence))
        for retired in (
            configmap(USERS, NEWER),
            configmap(USERS, PROXIES, requestheader_allowed_names=["other"]),
        ):
            self.host.say(retired)
            reviewing = gate.review(context.subject, context.evidence)
            self.failureResultOf(reviewing, Unauthorized)
            self.host.say(configmap(USERS, PROXIES))
            self.successResultOf(gate.review(context.subject, context.evidence))

    def test_same(self) -> None:
        """A ConfigMap with unchanged content triggers no change."""
        self.host.say(configmap(USERS, PROXIES))
        self.assertEqual(self.changes, 0)

    def test_unusable(self) -> None:
        """An unusable ConfigMap leaves the last usable trust, and is reported until fixed."""
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
        """If the ConfigMap is deleted, the last trust stays, and the problem is reported."""
        self.host.cluster.remove((CONFIGMAPS, NAMESPACE, NAME))
        self.assertEqual(self.name(JANE, FRONT), "jane")
        self.assertIn("was deleted", self.trust.problem)

    def test_down(self) -> None:
        """While the host is down, the old trust applies; changes are picked up afterwards."""
        self.host.cluster.problem = BadGateway("nobody listens")
        self.host.cluster.end_watches(self.host.cluster.problem)
        self.assertEqual((self.name(JANE, FRONT), self.is_current()), ("jane", False))
        self.host.say(configmap(USERS, NEWER))
        self.host.cluster.problem = None
        self.clock.advance(60)
        self.clock.advance(2)  # a watch that holds for a moment is current
        self.assertEqual((self.name(JANE, FRONT), self.is_current()), ("", True))
