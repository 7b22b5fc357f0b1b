"""
Tests for :mod:`twisted_exec.apiserver.identity.credentials`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http_headers import Headers

from tests.auth import forge
from tests.auth.test_bootstrap_tokens import token_secret
from tests.auth.test_credentials import KeyAuthenticator
from tests.tls.support import authority
from twisted_exec.api.kinds import SECRETS, SERVICEACCOUNTS
from twisted_exec.api.status import Unauthorized
from twisted_exec.apiserver.identity.credentials import Accounts, Identities, ServerAuthenticators
from twisted_exec.auth.interfaces import PresentedCredentials
from twisted_exec.storage.memory import MemoryStorage

ISSUER = "https://exec.example"


class _FileAuthenticator(KeyAuthenticator):
    """Records the calls of an authenticator with files and connections."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def load(self) -> None:
        self.calls.append("load")

    def close(self) -> None:
        self.calls.append("close")


class CredentialsTests(SynchronousTestCase):
    """Tests for :class:`ServerAuthenticators`: authentication by kinds of tokens."""

    def setUp(self) -> None:
        self.storage, self.clock = MemoryStorage(), Clock()
        self.clock.advance(1_800_000_000)
        account = {"metadata": {"name": "robot", "namespace": "lab", "uid": "u-1"}}
        stored = self.storage.create(SERVICEACCOUNTS.resource, account)
        self.account = self.successResultOf(stored)
        self.successResultOf(self.storage.create(SECRETS.resource, token_secret()))

    def file(self, content: bytes) -> str:
        path = self.mktemp()
        with open(path, "wb") as stream:
            stream.write(content)
        return path

    def credentials(self, **told: Any) -> ServerAuthenticators:
        who = Identities(**told)
        return ServerAuthenticators("", who, self.storage, self.clock, self.clock.seconds)

    def name(self, credentials: ServerAuthenticators, token: bytes) -> str:
        asked = credentials.tokens.authenticate_token(token)
        return getattr(self.successResultOf(asked), "name", "")

    def test_nothing(self) -> None:
        """Without configuration no token is known."""
        credentials = self.credentials()
        for token in (b"abc123.0123456789abcdef", b"a.b.c", b"t"):
            self.assertEqual(self.name(credentials, token), "")
        self.assertIsNone(credentials.issuer)

    def test_all(self) -> None:
        """Each kind of token is accepted by its own authenticator, beside the others."""
        key = self.file(forge.private_pem(forge.ec_key()))
        credentials = self.credentials(
            token_file=self.file(b"t,jane,1\n"),
            accounts=Accounts([ISSUER], signing_key_file=key),
            bootstrap_tokens=True,
        )
        issuer = credentials.issuer
        assert issuer is not None
        signing = issuer.keys.signing()
        assert signing is not None
        token = issuer.issue(self.account, signing, [ISSUER], 600).encode()
        self.assertEqual(self.name(credentials, b"t"), "jane")
        self.assertEqual(self.name(credentials, token), "system:serviceaccount:lab:robot")
        bootstrap = b"abc123.0123456789abcdef"
        self.assertEqual(self.name(credentials, bootstrap), "system:bootstrap:abc123")

    def test_refused(self) -> None:
        """An invalid token of our issuer is not passed to other authenticators."""
        claims = {"iss": ISSUER, "aud": ISSUER, "exp": 1_800_000_060}
        forged = forge.token(claims, forge.rsa_key("attacker"))
        key = self.file(forge.public_pem(forge.rsa_key()))
        known = b'%s,admin,1,"system:masters"\n' % forged
        credentials = self.credentials(accounts=Accounts([ISSUER], [key]))
        asked = credentials.tokens.authenticate_token(forged)
        self.failureResultOf(asked, Unauthorized)
        # Unless the token file lists this very token.
        credentials = self.credentials(
            accounts=Accounts([ISSUER], [key]), token_file=self.file(known)
        )
        self.assertEqual(self.name(credentials, forged), "admin")

    def test_audiences(self) -> None:
        """The audiences are those configured, or the first issuer, or none."""
        accounts = Accounts([ISSUER, "old"])
        self.assertEqual(Identities().audiences, ())
        self.assertEqual(Identities(accounts=accounts).audiences, (ISSUER,))
        told = Identities(accounts=accounts, api_audiences=["a", "b"])
        self.assertEqual(told.audiences, ("a", "b"))

    def test_own_authenticators(self) -> None:
        """An application's authenticators come before certificates and tokens."""
        known = self.file(b"t,jane,1\n")
        credentials = self.credentials(token_file=known, authenticators=[KeyAuthenticator()])
        authenticator = credentials.authenticator()
        self.assertIn(b"X-Lab-Key", authenticator.credential_headers)
        for headers, name in (({"X-Lab-Key": ["secret"]}, "robot"), ({}, "jane")):
            presented = PresentedCredentials(token=b"t", headers=Headers(headers))
            user = self.successResultOf(authenticator.authenticate(presented))
            self.assertEqual(user and user.name, name)

    def test_own_files(self) -> None:
        """An authenticator that has ``load`` and ``close`` is loaded and closed with the others."""
        own = _FileAuthenticator()
        pki_ca = self.file(authority("users").certificate_pem)
        credentials = ServerAuthenticators(
            pki_ca,
            Identities(authenticators=[KeyAuthenticator(), own]),
            self.storage,
            self.clock,
            self.clock.seconds,
        )
        credentials.load()
        self.assertEqual(own.calls, ["load"])
        credentials.close()
        self.assertEqual(own.calls, ["load", "close"])
