"""
Tests for :mod:`twisted_exec.auth.credentials`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from tests.auth.support import CredentialsCase, credentials
from tests.tls.support import client_identity
from twisted_exec.api.status import Unauthorized
from twisted_exec.api.users import with_authenticated
from twisted_exec.auth.credentials import (
    CredentialHeaders,
    UnionAuthenticator,
)
from twisted_exec.auth.interfaces import IAuthenticator, PresentedCredentials, User
from twisted_exec.auth.x509 import X509Authenticator
from twisted_exec.wire.upgrade import HeaderSet

KEY = "X-Lab-Key"


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
