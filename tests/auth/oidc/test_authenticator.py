"""
Tests for :mod:`twisted_exec.auth.oidc.authenticator`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, eventAsText
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.auth import forge
from tests.auth.oidc.test_keys import Fetcher
from tests.auth.support import credentials
from tests.program.memory_processes import MemoryReactor
from twisted_exec.api.status import APIError, ServiceUnavailable, Unauthorized
from twisted_exec.auth.expressions import WAITING_OF_USER
from twisted_exec.auth.interfaces import IAuthenticator, User
from twisted_exec.auth.oidc.authenticator import KEPT_SECONDS, LEEWAY_SECONDS, OIDCAuthenticator
from twisted_exec.auth.oidc.claims import Expression, Issuer, MappedClaim, ValidationRule
from twisted_exec.auth.oidc.configuration import Issuers
from twisted_exec.auth.oidc.keys import PAUSE_SECONDS
from twisted_exec.auth.tokens import ITokenAuthenticator
from twisted_exec.program.job_processes import PROCESSES
from twisted_exec.tls.files import Reloading

URL = "https://issuer.example"
START = 1_800_000_000


class OIDCCase(SynchronousTestCase):
    """One issuer, whose provider answers on demand."""

    def setUp(self) -> None:
        self.clock, self.fetcher = Clock(), Fetcher()
        self.issuers: tuple[Issuer, ...] = (
            Issuer(URL, ("exec",), MappedClaim("sub"), groups=MappedClaim("groups", "oidc:")),
        )
        self.authenticator = OIDCAuthenticator(
            Reloading([], lambda: self.issuers, self.clock),
            self.clock,
            fetcher=self.fetcher,
            now=self.now,
        )

    def now(self) -> float:
        return START + self.clock.seconds()

    def token(self, **claims: Any) -> bytes:
        defaults = {"iss": URL, "aud": "exec", "sub": "jane", "exp": self.now() + 60}
        return forge.token({**defaults, **claims})

    def ask(self, token: bytes) -> Deferred[User | None]:
        return self.authenticator.authenticate_token(token)

    def known(self, *kids: str) -> None:
        """Publish the issuer's keys."""
        asking = self.ask(self.token())
        self.fetcher.publish(*(kids or ("k1",)))
        self.successResultOf(asking)

    def assertRefused(self, token: bytes) -> str:
        """Check that the token is refused without details; return the log line with the reason."""
        with capturedLogs() as events:
            failure = self.failureResultOf(self.ask(token), Unauthorized)
        self.assertEqual(failure.value.message, "Unauthorized")
        lines = [eventAsText(event, includeTimestamp=False) for event in events]
        self.assertNotIn(token.decode("latin-1")[:40], "".join(lines))
        return lines[-1]


class AuthenticateTests(OIDCCase):
    """Accepted and refused tokens."""

    def test_doors(self) -> None:
        """The class implements IAuthenticator and ITokenAuthenticator."""
        verifyObject(IAuthenticator, self.authenticator)
        verifyObject(ITokenAuthenticator, self.authenticator)

    def test_user(self) -> None:
        """A genuine token identifies its user."""
        self.known()
        user = self.successResultOf(self.ask(self.token(groups=["dev"])))
        self.assertEqual(user, User("jane", ("oidc:dev", "system:authenticated")))
        self.assertEqual(
            getattr(user, "expires", 0), START + 60 + LEEWAY_SECONDS
        )  # of a session, too

    def test_request(self) -> None:
        """The token of a request is its bearer token."""
        self.known()
        presented = credentials({"Authorization": [f"Bearer {self.token().decode()}"]})
        user = self.successResultOf(self.authenticator.authenticate(presented))
        self.assertEqual(getattr(user, "name", None), "jane")

    def test_not_ours(self) -> None:
        """Opaque tokens, and those of other issuers, are left to other authenticators."""
        for token in (b"opaque", b"abcdef.0123456789abcdef", self.token(iss="https://other")):
            self.assertIsNone(self.successResultOf(self.ask(token)))
        self.assertEqual(self.fetcher.asked, [])

    def test_refused(self) -> None:
        """An invalid token of our issuer is refused, not left to other authenticators."""
        self.known()
        attacker = forge.rsa_key("attacker")
        claims = {"iss": URL, "aud": "exec", "sub": "root", "exp": self.now() + 60}
        for token, why in (
            (forge.token(claims, attacker), "its signature is wrong"),
            (forge.token(claims, alg="none"), "its algorithm is not one of"),
            (forge.hmac_token(claims, forge.public_pem(forge.rsa_key())), "its algorithm is not"),
            (self.token(aud="other"), "it is for another audience"),
            (self.token(exp=self.now() - 60), "it has expired"),
            (self.token(nbf=self.now() + 60), "it is not valid yet"),
            (self.token(sub="system:admin"), "its claim sub has a name that begins with system:"),
            (self.token(sub=5), "its claim sub is no text"),
        ):
            self.assertIn(f"a token of {URL} is refused: {why}", self.assertRefused(token))

    def test_clock_skew(self) -> None:
        """Clocks may differ by a little."""
        self.known()
        for claims in (
            {"exp": self.now() - LEEWAY_SECONDS + 1},
            {"nbf": self.now() + LEEWAY_SECONDS},
        ):
            self.assertIsNotNone(self.successResultOf(self.ask(self.token(**claims))))
        for claims in (
            {"exp": self.now() - LEEWAY_SECONDS},
            {"nbf": self.now() + LEEWAY_SECONDS + 1},
        ):
            self.assertRefused(self.token(**claims))

    def test_distributed_claims(self) -> None:
        """Distributed claims are not fetched."""
        self.known()
        self.fetcher.asked.clear()
        token = self.token(
            _claim_names={"groups": "s"},
            _claim_sources={"s": {"endpoint": "https://attacker.example", "access_token": "x"}},
        )
        user = self.successResultOf(self.ask(token))
        self.assertEqual(getattr(user, "groups", None), ("system:authenticated",))
        self.assertEqual(self.fetcher.asked, [])


class CacheTests(OIDCCase):
    """Caching of verified tokens."""

    def test_remembered(self) -> None:
        """A result is cached for a few seconds, then the token is verified again."""
        self.known("k1", "old")
        token = forge.token(
            {"iss": URL, "aud": "exec", "sub": "jane", "exp": self.now() + 9999}, kid="old"
        )
        self.successResultOf(self.ask(token))
        self.clock.advance(600)  # the keys are old
        asking = self.ask(token)
        self.fetcher.publish("k1", "old")
        self.successResultOf(asking)
        self.clock.advance(600 - 1)
        self.successResultOf(self.ask(token))
        self.clock.advance(KEPT_SECONDS - 1)
        self.assertIsNotNone(self.successResultOf(self.ask(token)), "not looked at again")
        self.clock.advance(1)
        asking = self.ask(token)
        self.fetcher.publish("k1")  # the key was withdrawn
        self.failureResultOf(asking, Unauthorized)

    def test_clock_jumps(self) -> None:
        """A wrong clock refuses a cached token only while it is wrong."""
        self.known()
        token, wrong = self.token(), [0.0]
        self.authenticator = OIDCAuthenticator(
            Reloading([], lambda: self.issuers, self.clock),
            self.clock,
            fetcher=self.fetcher,
            now=lambda: self.now() + wrong[0],
        )
        asking = self.ask(token)
        self.fetcher.publish("k1")
        for jump in (0.0, 63_072_000.0, 0.0):
            wrong[0] = jump
            if jump:
                self.assertRefused(token)
            else:
                self.assertIsNotNone(self.successResultOf(self.ask(token)))
        self.successResultOf(asking)

    def test_not_beyond_expiry(self) -> None:
        """A cached token is refused as soon as it expires."""
        self.known()
        token = self.token(exp=self.now() + 3)
        self.successResultOf(self.ask(token))
        self.clock.advance(3 + LEEWAY_SECONDS - 1)
        self.successResultOf(self.ask(token))
        self.clock.advance(1)
        self.assertIn("it has expired", self.assertRefused(token))


class ProviderTests(OIDCCase):
    """Providers that are down, and keys that change."""

    def test_down(self) -> None:
        """While the provider is down, nobody knows its users, and the log says why; it recovers."""
        asking = self.ask(self.token())
        with capturedLogs() as events:
            self.fetcher.fail("cannot reach the identity provider")
            failure = self.failureResultOf(asking, ServiceUnavailable)
        self.assertEqual(failure.value.retry_after_seconds, PAUSE_SECONDS)
        told = "".join(eventAsText(event) for event in events)
        self.assertIn(
            f"cannot fetch the keys of {URL}, so its tokens are not accepted: cannot", told
        )
        self.clock.advance(PAUSE_SECONDS)
        self.known()

    def test_load(self) -> None:
        """Keys are fetched at the start; a provider that is down does not delay the server."""
        self.authenticator.load()
        self.assertEqual(len(self.fetcher.asked), 1)
        self.fetcher.fail("down")

    def test_new_key(self) -> None:
        """A key that is new is fetched for its first token, not for each forged one."""
        self.known()
        self.clock.advance(PAUSE_SECONDS)
        claims = {"iss": URL, "aud": "exec", "sub": "jane", "exp": self.now() + 60}
        asking = self.ask(forge.token(claims, forge.rsa_key(), kid="k2"))
        self.fetcher.publish("k1", "k2")
        self.assertIsNotNone(self.successResultOf(asking))
        for number in range(100):
            self.assertRefused(forge.token(claims, kid=f"x{number}"))
        self.assertEqual(len(self.fetcher.asked), 4)

    def test_new_key_while_down(self) -> None:
        """A token with a key that is not known here is not refused while the provider is down."""
        self.known()
        self.clock.advance(PAUSE_SECONDS)
        claims = {"iss": URL, "aud": "exec", "sub": "jane", "exp": self.now() + 60}
        token = forge.token(claims, forge.rsa_key(), kid="k2")
        asking = self.ask(token)
        self.fetcher.fail("down")
        self.failureResultOf(asking, ServiceUnavailable)
        self.clock.advance(PAUSE_SECONDS)
        asking = self.ask(token)
        self.fetcher.publish("k1", "k2")
        self.assertIsNotNone(self.successResultOf(asking))

    def test_busy(self) -> None:
        """A token whose rules cannot be evaluated now is not refused."""
        costly = Expression("claims.sub.matches(claims.sub)", "the.field")
        rules = (ValidationRule(costly),)
        self.issuers = (Issuer(URL, ("exec",), MappedClaim("sub"), claim_rules=rules),)
        reactor = MemoryReactor()
        issuers = Reloading([], lambda: self.issuers, reactor)
        self.authenticator = OIDCAuthenticator(issuers, reactor, fetcher=self.fetcher, now=self.now)
        first = self.ask(self.token())
        self.fetcher.publish("k1")
        most = PROCESSES + WAITING_OF_USER
        asked = [first, *(self.ask(self.token(jti=str(number))) for number in range(most))]
        self.assertNoResult(first)
        failure = self.failureResultOf(asked.pop(), ServiceUnavailable)
        self.assertEqual(failure.value.retry_after_seconds, 1)
        self.authenticator.close()
        for each in asked:
            self.failureResultOf(each, APIError)

    def test_changed(self) -> None:
        """
        Tokens of an issuer that is no longer configured are unknown, and its keys are dropped.
        """
        self.known()
        self.issuers = (Issuer(URL, ("console",), MappedClaim("sub")),)
        self.authenticator.files()[0].load()
        asking = self.ask(self.token(aud="console"))
        self.fetcher.publish("k1")
        self.successResultOf(asking)
        self.assertRefused(self.token())
        self.issuers = ()
        self.authenticator.files()[0].load()
        self.assertIsNone(self.successResultOf(self.ask(self.token(sub="joe"))))

    def test_close(self) -> None:
        """Closing the authenticator ends pending requests."""
        asking = self.ask(self.token())
        self.authenticator.close()
        self.failureResultOf(asking, ServiceUnavailable)

    def test_issuers(self) -> None:
        """Issuers come from the server's configuration."""
        issuer = Issuer(URL, ("exec",), MappedClaim("sub"))
        told = Issuers(issuer=issuer).reloading(self.clock)
        authenticator = OIDCAuthenticator(told, self.clock, fetcher=self.fetcher, now=self.now)
        asking = authenticator.authenticate_token(self.token())
        self.fetcher.publish("k1")
        self.assertIsNotNone(self.successResultOf(asking))
