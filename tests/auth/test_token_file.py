"""
Tests for :mod:`twisted_exec.auth.token_file`.
"""

from __future__ import annotations

import gc
import os

from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from tests.auth.support import CredentialsCase
from tests.retained import instances
from twisted_exec.api.status import Unauthorized
from twisted_exec.auth.interfaces import LONGEST_TOKEN_BYTES, IAuthenticator, User
from twisted_exec.auth.token_file import TokenFileAuthenticator
from twisted_exec.auth.tokens import ITokenAuthenticator
from twisted_exec.tls.errors import TLSConfigError

FILE = b'token-1,jane,u-1,"dev,ops"\n\ntoken-2,joe,u-2\n'


class TokenFileTests(CredentialsCase):
    """Tests for :class:`TokenFileAuthenticator`."""

    def setUp(self) -> None:
        super().setUp()
        self.path = self.write("tokens.csv", FILE)
        self.authenticator = TokenFileAuthenticator(self.path, self.clock)

    def ask(self, *values: str) -> Deferred[User | None]:
        return self.authenticator.authenticate(self.credentials({"Authorization": values}))

    def test_doors(self) -> None:
        """The class implements IAuthenticator and ITokenAuthenticator."""
        verifyObject(IAuthenticator, self.authenticator)
        verifyObject(ITokenAuthenticator, self.authenticator)

    def test_known(self) -> None:
        """A known token identifies its user, and the scheme is case-insensitive."""
        for value in ("Bearer token-1", "bearer token-1", "BEARER  token-1 "):
            self.assertEqual(
                self.successResultOf(self.ask(value)),
                User("jane", ("dev", "ops", "system:authenticated"), "u-1"),
            )
        self.assertEqual(
            self.successResultOf(self.ask("Bearer token-2")),
            User("joe", ("system:authenticated",), "u-2"),
        )

    def test_unknown(self) -> None:
        """An unknown token is refused; the request does not become anonymous."""
        for value in ("Bearer token-3", "Bearer token-1x", "Bearer TOKEN-1", "Bearer jane"):
            failure = self.failureResultOf(self.ask(value), Unauthorized)
            self.assertEqual(str(failure.value), "Unauthorized")

    def test_other_credentials(self) -> None:
        """A request without a bearer token is left to the other authenticators."""
        for values in ((), ("Basic amFuZTp4",), ("Bearer",), ("Bearer ",), ("",), ("token-1",)):
            self.assertIsNone(self.successResultOf(self.ask(*values)), values)

    def test_two_headers(self) -> None:
        """Two different credentials at once are refused."""
        self.failureResultOf(self.ask("Bearer token-1", "Bearer token-2"), Unauthorized)

    def test_too_long(self) -> None:
        """An enormous token is refused unread."""
        token = "x" * (LONGEST_TOKEN_BYTES + 1)
        self.failureResultOf(self.ask(f"Bearer {token}"), Unauthorized)

    def test_reload(self) -> None:
        """
        A changed file takes effect after a second; a broken file leaves the last one in force.
        """
        self.successResultOf(self.ask("Bearer token-1"))
        self.write("tokens.csv", b"token-9,eve,u-9\n")
        self.clock.advance(1)
        self.failureResultOf(self.ask("Bearer token-1"), Unauthorized)
        self.write("tokens.csv", b"broken")
        self.clock.advance(1)
        self.assertIsNotNone(self.successResultOf(self.ask("Bearer token-9")))

    def test_broken(self) -> None:
        """The error for a broken file names the record and does not quote its content."""
        for content, told in (
            (b"ok,jane,1\nsecret,joe\n", "record 2: expected token,user,uid"),
            (b",jane,1\n", "record 1: the token or the user is empty"),
            (b"secret,,1\n", "record 1: the token or the user is empty"),
            (b'"secret,jane,1\n', "is not CSV in UTF-8"),
            (b"\xffsecret,jane,1\n", "is not CSV in UTF-8"),
        ):
            self.write("tokens.csv", content)
            with self.assertRaises(TLSConfigError) as caught:
                self.authenticator.load()
            self.assertIn(told, str(caught.exception))
            self.assertNotIn("secret", str(caught.exception))

    def test_missing(self) -> None:
        """Loading a missing file fails."""
        os.unlink(self.path)
        with self.assertRaises(TLSConfigError):
            self.authenticator.load()

    def test_no_token_is_kept(self) -> None:
        """Tokens are kept as hashes only."""
        self.authenticator.load()
        kept = instances(self.authenticator, bytes)
        self.assertTrue([key for key in kept if len(key) == 32])
        self.assertEqual([each for each in kept if b"token" in each], [])
        gc.collect()
