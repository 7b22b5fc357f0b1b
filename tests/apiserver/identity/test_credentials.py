"""
Tests for :mod:`twisted_exec.apiserver.identity.credentials`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http_headers import Headers
from zope.interface import implementer

from tests.auth import forge
from tests.auth.test_bootstrap_tokens import token_secret
from tests.auth.test_credentials import KeyAuthenticator
from tests.tls.support import authority
from twisted_exec.api.kinds import SECRETS, SERVICEACCOUNTS
from twisted_exec.api.status import ServiceUnavailable, Unauthorized
from twisted_exec.apiserver.identity.credentials import Accounts, Identities, ServerAuthenticators
from twisted_exec.auth.interfaces import (
    LONGEST_TOKEN_BYTES,
    IAuthenticator,
    PresentedCredentials,
    User,
)
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.wire.upgrade import HeaderSet

ISSUER = "https://exec.example"


class _FileAuthenticator(KeyAuthenticator):
    """Records the calls of an authenticator with files and connections."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def load(self) -> None:
        self.calls.append("load")

    def close(self) -> None:
        self.calls.append("close")


@implementer(IAuthenticator)
class TokenAuthenticator:
    """Knows users by tokens ``lab.NAME``, and keeps the credentials that it got."""

    credential_headers = HeaderSet()
    takes_anyone = False
    problem: Exception | None = None

    def __init__(self) -> None:
        self.presented: list[PresentedCredentials] = []

    def authenticate(self, credentials: PresentedCredentials) -> Deferred[User | None]:
        return maybeDeferred(self._user, credentials)

    def _user(self, credentials: PresentedCredentials) -> User | None:
        self.presented.append(credentials)
        if self.takes_anyone:
            return User("anyone", ())
        token = credentials.bearer_token()
        if token is None or not token.startswith(b"lab."):
            return None
        if self.problem is not None:
            raise self.problem
        return User(token.decode().removeprefix("lab."), ())


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

    def test_agents(self) -> None:
        """No token names an agent, or a member of the group of agents, in requests and in TokenReviews."""
        users = self.file(
            b'one,agent:ada:bot,1\ntwo,ada,2,"dev,agents"\nthree,ada,3,dev\nfour,agent:,4\n'
        )
        own = TokenAuthenticator()
        credentials = self.credentials(token_file=users, authenticators=[own])
        authenticator = credentials.authenticator()
        for token in (b"one", b"two", b"four", b"lab.agent:ada:bot"):
            presented = PresentedCredentials(token=token, token_in_header=True)
            refusal = self.failureResultOf(authenticator.authenticate(presented), Unauthorized)
            self.assertIn("agents", str(refusal.value))
            self.failureResultOf(credentials.tokens.authenticate_for(token, ()), Unauthorized)
        presented = PresentedCredentials(token=b"three", token_in_header=True)
        user = self.successResultOf(authenticator.authenticate(presented))
        self.assertEqual(user.name, "ada")

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

    def test_own_tokens(self) -> None:
        """A TokenReview asks the application's authenticators first, with the token alone."""
        own = TokenAuthenticator()
        credentials = self.credentials(
            token_file=self.file(b"t,jane,1\nlab.robot,joan,2\n"),
            authenticators=[KeyAuthenticator(), own],
        )
        self.assertEqual(self.name(credentials, b"lab.robot"), "robot")
        self.assertEqual(self.name(credentials, b"t"), "jane")
        self.assertEqual(self.name(credentials, b"other"), "")
        for problem in (Unauthorized("the lab token has expired"), ServiceUnavailable("no file")):
            own.problem = problem
            asked = credentials.tokens.authenticate_token(b"lab.robot")
            self.assertIs(self.failureResultOf(asked).value, problem)
        for presented in own.presented:
            self.assertIsNone(presented.certificate)
            self.assertEqual(
                (list(presented.headers.getAllRawHeaders()), presented.address), ([], "")
            )

    def test_own_tokens_audiences(self) -> None:
        """An application's tokens are for this server's audiences, as those of the token file."""
        credentials = self.credentials(
            api_audiences=["exec"], authenticators=[TokenAuthenticator()]
        )
        for audiences, expected in (([], ("exec",)), (["x", "exec"], ("exec",)), (["x"], None)):
            asked = credentials.tokens.authenticate_for(b"lab.robot", audiences)
            known = self.successResultOf(asked)
            self.assertEqual(known and known.audiences, expected)

    def test_no_user_without_token(self) -> None:
        """A TokenReview does not believe an authenticator that knows a user without the token."""
        anyone = TokenAuthenticator()
        anyone.takes_anyone = True
        credentials = self.credentials(authenticators=[anyone])
        self.assertEqual(self.name(credentials, b"other"), "")
        self.assertEqual(self.name(credentials, b"lab.robot"), "")

    def test_long_own_token(self) -> None:
        """No authenticator gets a token that a request could not carry."""
        own = TokenAuthenticator()
        credentials = self.credentials(authenticators=[own])
        self.assertEqual(self.name(credentials, b"lab." + b"x" * LONGEST_TOKEN_BYTES), "")
        self.assertEqual(own.presented, [])

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
