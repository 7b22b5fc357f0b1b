"""
Tests for :mod:`twisted_exec.auth.credentials`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from tests.auth.support import CredentialsCase, credentials
from tests.auth.test_token_file import FILE
from tests.tls.support import client_identity
from twisted_exec.api.status import Unauthorized
from twisted_exec.api.users import with_authenticated
from twisted_exec.auth.credentials import NO_HEADERS, CredentialHeaders, UnionAuthenticator
from twisted_exec.auth.interfaces import IAuthenticator, PresentedCredentials, User
from twisted_exec.auth.request_header import RequestHeaderAuthenticator
from twisted_exec.auth.token_file import TokenFileAuthenticator
from twisted_exec.auth.x509 import X509Authenticator
from twisted_exec.wire.upgrade import BEARER_SUBPROTOCOL, HeaderSet

KEY = "X-Lab-Key"
BEARER = BEARER_SUBPROTOCOL.decode()


@implementer(IAuthenticator)
class KeyAuthenticator:
    """An authenticator with one user and a header of its own."""

    credential_headers = HeaderSet.of(KEY)

    def authenticate(self, presented: PresentedCredentials) -> Deferred[User | None]:
        """As :meth:`IAuthenticator.authenticate`."""
        keys = presented.headers.getRawHeaders(KEY, [])
        if keys and keys != ["secret"]:
            return fail(Unauthorized("unknown key"))
        return succeed(User("robot", with_authenticated("robot", ())) if keys else None)


class CredentialHeadersTests(CredentialsCase):
    """Tests for :class:`CredentialHeaders`."""

    def setUp(self) -> None:
        super().setUp()
        self.x509 = X509Authenticator(self.users_ca, self.clock)
        self.registry = CredentialHeaders(
            UnionAuthenticator([self.x509, KeyAuthenticator()]), impersonation=True
        )

    def user(self, presented: PresentedCredentials) -> str:
        """Return the user name of the certificate, or an empty string."""
        user = self.successResultOf(self.x509.authenticate(presented))
        return "" if user is None else user.name

    def test_registry(self) -> None:
        """The registry has all declared headers and those that identify users in any server."""
        for name in (b"x-lab-key", b"X_Lab_Key", b"Cookie", b"X-Remote-User", b"Impersonate-Uid"):
            self.assertIn(name, self.registry)
        self.assertNotIn(b"Accept", self.registry)

    def test_taken(self) -> None:
        """Authenticators see the headers they declare; the request keeps no credentials."""
        request = self.request(
            {
                "Authorization": ["Bearer x"],
                "X-Lab-Key": ["secret"],
                "X-Remote-User": ["root"],
                "Cookie": ["a"],
                "Impersonate-User": ["jane"],
                "Accept": ["*/*"],
            }
        )
        presented = self.registry.take_from(request)
        self.assertEqual(presented.bearer_token(), b"x")
        self.assertTrue(presented.impersonates)
        self.assertEqual(
            dict(presented.headers.getAllRawHeaders()),
            {b"X-Lab-Key": [b"secret"], b"Impersonate-User": [b"jane"]},
        )
        self.assertEqual(dict(request.requestHeaders.getAllRawHeaders()), {b"Accept": [b"*/*"]})
        self.assertIs(self.registry.take_from(request), presented)

    def test_without_impersonation(self) -> None:
        """A server without impersonation removes its headers without reading them."""
        registry = CredentialHeaders(self.x509, impersonation=False)
        request = self.request({"Impersonate-User": ["jane"], "X-Lab-Key": ["x"]})
        self.assertEqual(list(registry.take_from(request).headers.getAllRawHeaders()), [])
        self.assertEqual(dict(request.requestHeaders.getAllRawHeaders()), {b"X-Lab-Key": [b"x"]})

    def test_certificate(self) -> None:
        """The certificate is that of the connection, also after the connection is lost."""
        request = self.request(shown=client_identity("jane"))
        presented = self.registry.take_from(request)
        self.assertEqual(self.user(presented), "jane")
        # As TLSMemoryBIOProtocol's ``connectionLost`` does.
        request.channel.transport.getHandle = lambda: None
        self.assertEqual(self.user(presented), "jane")

    def test_plain(self) -> None:
        """Without TLS there is no certificate."""
        self.assertEqual(self.user(credentials({})), "")

    def test_undeclared(self) -> None:
        """An authenticator that declares no headers is refused, alone or in a union."""
        silent: Any = object()
        for make in (
            lambda: CredentialHeaders(silent, impersonation=True),
            lambda: UnionAuthenticator([self.x509, silent]),
        ):
            with self.assertRaisesRegex(TypeError, "object has no credential_headers"):
                make()


class PresentedCredentialsTests(CredentialsCase):
    """Tests for :class:`PresentedCredentials`."""

    def test_repr(self) -> None:
        """The representation names the kinds of credentials and hides their values."""
        presented = self.credentials(
            {"Authorization": ["Bearer s3cret"], "Cookie": ["s3cret"]}, client_identity("jane")
        )
        shown = repr(presented)
        self.assertNotIn("s3cret", shown)
        for part in ("certificate='jane'", "has_token=True", "Cookie"):
            self.assertIn(part, shown)

    def test_bad_token(self) -> None:
        """Two tokens, or a token that is too long, raise Unauthorized when the token is read."""
        for lines in (["Bearer a", "Bearer b"], ["Bearer " + "x" * 40_000]):
            presented = credentials({"Authorization": lines})
            self.assertRaises(Unauthorized, presented.bearer_token)

    def test_sent_unasked(self) -> None:
        """A browser adds certificates and headers of its own; a token only a program knows."""
        for headers, shown, unasked in (
            ({}, None, False),
            ({"Authorization": ["Bearer x"]}, None, False),
            ({"Impersonate-User": ["jane"]}, None, False),
            ({"Cookie": ["x"]}, None, True),
            ({}, client_identity("jane"), True),
        ):
            declared = HeaderSet.of("Cookie", prefixes=["Impersonate-"])
            presented = self.credentials(headers, shown, declared=declared)
            self.assertEqual(presented.sent_unasked, unasked, headers)


class SubprotocolTests(CredentialsCase):
    """Tokens among the subprotocols of a WebSocket, for browsers."""

    def ask(self, offered: str, **more: list[str]) -> Deferred[User | None]:
        headers = {
            "Connection": ["Upgrade"],
            "Upgrade": ["websocket"],
            "Sec-WebSocket-Protocol": [offered],
        }
        self.presented = self.credentials({**headers, **more}, declared=NO_HEADERS)
        source = TokenFileAuthenticator(self.write("tokens.csv", FILE), self.clock)
        return source.authenticate(self.presented)

    def test_known(self) -> None:
        """A token in the subprotocol is accepted but not marked as sent in a header."""
        user = self.successResultOf(self.ask(f"{BEARER}dG9rZW4tMQ, v5.channel.k8s.io"))
        assert user is not None
        self.assertEqual(user.name, "jane")
        self.assertEqual(self.presented.token, b"token-1")
        self.assertFalse(self.presented.token_in_header)

    def test_unknown(self) -> None:
        """
        An unknown or malformed token in the subprotocol is refused; it does not become anonymous.
        """
        for offered in (
            f"{BEARER}eA, v5.channel.k8s.io",
            f"{BEARER}dG9rZW4tMQ",
            f"{BEARER}dG9rZW4tMQ==, v5.channel.k8s.io",
            f"{BEARER}dG9rZW4tMQ, {BEARER}dG9rZW4tMQ, v5.channel.k8s.io",
        ):
            self.failureResultOf(self.ask(offered), Unauthorized)

    def test_header_first(self) -> None:
        """The Authorization header takes precedence over the subprotocol."""
        offered = f"{BEARER}eA, v5.channel.k8s.io"
        user = self.successResultOf(self.ask(offered, Authorization=["Bearer token-1"]))
        assert user is not None
        self.assertEqual(user.name, "jane")

    def test_empty(self) -> None:
        """An empty token in the subprotocol is ignored."""
        self.assertIsNone(self.successResultOf(self.ask(f"{BEARER}, v5.channel.k8s.io")))


class UnionTests(CredentialsCase):
    """Tests for :class:`UnionAuthenticator`, with real members."""

    def setUp(self) -> None:
        super().setUp()
        self.union = UnionAuthenticator(
            [
                RequestHeaderAuthenticator(self.forwarding_ca, ["proxy"], self.clock),
                X509Authenticator(self.users_ca, self.clock),
                TokenFileAuthenticator(self.write("tokens.csv", FILE), self.clock),
            ]
        )
        self.proxy = client_identity("proxy", ca="forwarding")

    def name(self, presented: Any) -> str | None:
        user = self.successResultOf(self.union.authenticate(presented))
        return user.name if user else None

    def test_order(self) -> None:
        """
        Proxy headers take precedence over the certificate, and the certificate over the token.
        """
        token = {"Authorization": ["Bearer token-1"]}
        remote = {"X-Remote-User": ["remote"]}
        eve = client_identity("eve")
        self.assertEqual(self.name(self.credentials({**token, **remote}, self.proxy)), "remote")
        self.assertEqual(self.name(self.credentials({**token, **remote}, eve)), "eve")
        self.assertEqual(self.name(self.credentials({**token, **remote})), "jane")
        self.assertIsNone(self.name(self.credentials(remote)))

    def test_proxy_with_a_token(self) -> None:
        """If a proxy sends a token and no user headers, the token identifies the user."""
        presented = self.credentials({"Authorization": ["Bearer token-1"]}, self.proxy)
        self.assertEqual(self.name(presented), "jane")

    def test_bad_token_with_no_certificate(self) -> None:
        """
        A bad token is refused, whichever certificate comes with it, and never becomes anonymous.
        """
        for shown in (None, client_identity("eve", ca="evil"), self.proxy):
            presented = self.credentials({"Authorization": ["Bearer bad"]}, shown)
            self.failureResultOf(self.union.authenticate(presented), Unauthorized)

    def test_nothing(self) -> None:
        """A request without credentials has no user."""
        self.assertIsNone(self.name(self.credentials()))
