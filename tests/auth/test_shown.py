"""
Tests for :mod:`twisted_exec.auth.shown`.
"""

from __future__ import annotations

from typing import Any

from tests.auth.support import CredentialsCase
from tests.tls.support import client_identity
from twisted_exec.auth.shown import Shown
from twisted_exec.auth.x509 import X509Authenticator


class ShownTests(CredentialsCase):
    """Tests for :class:`Shown`."""

    def user(self, shown: Any) -> str:
        """The name of the user that the certificate is."""
        user = self.successResultOf(
            X509Authenticator(self.users_ca, self.clock).authenticate(shown)
        )
        return "" if user is None else user.name

    def test_token(self) -> None:
        """Tokens are kept, and as whom they asked to act; other headers are not."""
        request = self.request(
            {
                "Authorization": ["Bearer x"],
                "X-Remote-User": ["root"],
                "Impersonate-User": ["jane"],
            }
        )
        headers = dict(Shown(request).requestHeaders.getAllRawHeaders())
        self.assertEqual(headers, {b"Authorization": [b"Bearer x"], b"Impersonate-User": [b"jane"]})

    def test_certificate(self) -> None:
        """The certificate is that of the connection, also after the connection is lost."""
        request = self.request(shown=client_identity("jane"))
        shown = Shown(request)
        self.assertEqual(self.user(shown), "jane")
        # As TLSMemoryBIOProtocol's ``connectionLost`` does.
        request.channel.transport.getHandle = lambda: None
        self.assertEqual(self.user(shown), "jane")

    def test_plain(self) -> None:
        """Without TLS there is no certificate."""
        self.assertEqual(self.user(Shown(self.plain_request())), "")
