"""
Tests for :mod:`twisted_exec.auth.service_accounts`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.auth import forge
from tests.tls.support import write
from twisted_exec.api.kinds import SECRETS, SERVICEACCOUNTS, Object
from twisted_exec.api.status import Unauthorized
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.service_accounts import (
    LEEWAY_SECONDS,
    AccountKeys,
    ServiceAccountAuthenticator,
    TokenIssuer,
)
from twisted_exec.auth.tokens import IAudienceAuthenticator, Known
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.tls.errors import TLSConfigError

ISSUER, OLD_ISSUER = "https://exec.example", "https://old.example"
US = "https://exec.example"
NOW = 1_800_000_000.5
USER = User(
    "system:serviceaccount:lab:robot",
    ("system:serviceaccounts", "system:serviceaccounts:lab", "system:authenticated"),
    "u-1",
)


def named(name: str, uid: str, **more: Any) -> Object:
    """An object of the namespace ``lab``."""
    return {"metadata": {"name": name, "namespace": "lab", "uid": uid, **more}}


class AccountsCase(SynchronousTestCase):
    """A server with one ServiceAccount, ``robot``, and one Secret, ``pin``, in ``lab``."""

    def setUp(self) -> None:
        self.clock, self.time = Clock(), NOW
        self.directory = self.mktemp()
        os.makedirs(self.directory)
        self.storage = MemoryStorage()
        self.account = self.make(SERVICEACCOUNTS, named("robot", "u-1"))
        self.pin = self.make(SECRETS, named("pin", "u-2"))
        self.signing = self.write("signing.key", forge.private_pem(forge.ec_key()))
        self.keys = AccountKeys([], self.signing, self.clock)
        self.issuer = TokenIssuer(ISSUER, [US], self.keys, lambda: self.time)
        self.authenticator = self.authenticating(self.keys)

    def write(self, name: str, content: bytes) -> str:
        return write(self.directory, name, content)

    def make(self, kind: Any, obj: Object) -> Object:
        made: Object = self.successResultOf(self.storage.create(kind.resource, obj))
        return made

    def remove(self, kind: Any, obj: Object) -> None:
        self.successResultOf(self.storage.delete(kind.resource, obj))

    def authenticating(self, keys: AccountKeys) -> ServiceAccountAuthenticator:
        return ServiceAccountAuthenticator(
            [ISSUER, OLD_ISSUER], [US], keys, self.storage.get, lambda: self.time
        )

    def issue(
        self, seconds: int = 600, audiences: Sequence[str] = (US,), bound: Any = None
    ) -> bytes:
        key = self.keys.signing()
        assert key is not None
        return self.issuer.issue(self.account, key, audiences, seconds, bound).encode()

    def user(self, token: bytes) -> User | None:
        found: User | None = self.successResultOf(self.authenticator.authenticate_token(token))
        return found

    def assertRefused(self, token: bytes, why: str) -> None:
        failure = self.failureResultOf(self.authenticator.authenticate_token(token), Unauthorized)
        told = failure.value.message
        self.assertEqual(told, f"the service account token is refused: {why}")


class IssuedTests(AccountsCase):
    """Contents of a token, and its user."""

    def test_door(self) -> None:
        """The class implements :class:`IAudienceAuthenticator`."""
        self.assertTrue(verifyObject(IAudienceAuthenticator, self.authenticator))

    def test_claims(self) -> None:
        """A token has the same claims as a token of Kubernetes."""
        parts = self.issue(bound=("secret", self.pin)).split(b".")
        head, claims = (json.loads(forge.unb64(part)) for part in parts[:2])
        key = self.keys.signing()
        assert key is not None
        self.assertEqual(head, {"alg": "ES256", "kid": key.public.kid})
        self.assertRegex(claims.pop("jti"), r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
        self.assertEqual(
            claims,
            {
                "aud": [US],
                "exp": int(NOW) + 600,
                "iat": int(NOW),
                "nbf": int(NOW),
                "iss": ISSUER,
                "sub": "system:serviceaccount:lab:robot",
                "kubernetes.io": {
                    "namespace": "lab",
                    "serviceaccount": {"name": "robot", "uid": "u-1"},
                    "secret": {"name": "pin", "uid": "u-2"},
                },
            },
        )

    def test_user(self) -> None:
        """The user is the ServiceAccount, and the record shows the token's id."""
        token = self.issue()
        jti = json.loads(forge.unb64(token.split(b".")[1]))["jti"]
        user = self.user(token)
        assert user is not None
        self.assertEqual(
            user.extra, {"authentication.kubernetes.io/credential-id": (f"JTI={jti}",)}
        )
        self.assertEqual(User(user.name, user.groups, user.uid), USER)
        self.assertEqual(user.expires, int(NOW) + 600 + LEEWAY_SECONDS)

    def test_not_ours(self) -> None:
        """A token of another kind or issuer is left to other authenticators."""
        claims = {"iss": "https://elsewhere.example", "aud": US, "exp": NOW + 60}
        for token in (b"", b"abc", b"a.b", b"a.b.c", b"...", b"\xff" * 99, forge.token(claims)):
            self.assertIsNone(self.user(token))

    def test_audiences(self) -> None:
        """A token for other audiences can be reviewed for those audiences."""
        token = self.issue(audiences=["vault", "store"])
        self.assertRefused(token, "it is for another audience")
        asked = self.authenticator.authenticate_for(token, ["other", "store"])
        known: Known = self.successResultOf(asked)
        self.assertEqual((known.user.name, known.audiences), (USER.name, ("store",)))

    def test_time(self) -> None:
        """A token, and the sessions of its user, are valid until it expires, plus the leeway for clocks."""
        token = self.issue(600)
        for later in (-60, 0, 600, 659):
            self.time = NOW + later
            self.assertEqual(getattr(self.user(token), "name", ""), USER.name)
        self.time = NOW + 661
        self.assertRefused(token, "it has expired")
        self.time = NOW - LEEWAY_SECONDS - 2
        self.assertRefused(token, "it is not valid yet")


class StaleTests(AccountsCase):
    """A store with a stale local copy."""

    def behind(self, resource: Any, namespace: str, name: str, *, stale: bool = False) -> Any:
        if stale:
            return self.copy.get(resource, namespace, name)
        return self.storage.get(resource, namespace, name)

    def setUp(self) -> None:
        super().setUp()
        self.copy = MemoryStorage()
        self.authenticator = ServiceAccountAuthenticator(
            [ISSUER], [US], self.keys, self.behind, lambda: self.time
        )

    def test_just_made(self) -> None:
        """If the local copy lacks the account or has an older one, the store is read."""
        token = self.issue()
        self.assertIsNotNone(self.user(token))
        self.successResultOf(self.copy.create(SERVICEACCOUNTS.resource, named("robot", "u-0")))
        self.assertIsNotNone(self.user(token))
        self.remove(SERVICEACCOUNTS, self.account)
        self.assertRefused(token, "its serviceaccount has been deleted")


class VoidTests(AccountsCase):
    """Events that invalidate a token before it expires."""

    def test_account_deleted(self) -> None:
        """A deleted ServiceAccount's token is void; one of the same name does not revive it."""
        token = self.issue()
        self.remove(SERVICEACCOUNTS, self.account)
        self.assertRefused(token, "its serviceaccount has been deleted")
        self.make(SERVICEACCOUNTS, named("robot", "u-9"))
        self.assertRefused(token, "its serviceaccount has been deleted")

    def test_account_going(self) -> None:
        """An account that is being deleted counts as deleted."""
        token = self.issue()
        self.remove(SERVICEACCOUNTS, self.account)
        self.make(SERVICEACCOUNTS, named("robot", "u-1", deletionTimestamp="2027-01-15T08:00:00Z"))
        self.assertRefused(token, "its serviceaccount has been deleted")

    def test_bound(self) -> None:
        """
        A token bound to a Secret is void once that Secret is deleted, even if it is recreated.
        """
        token = self.issue(bound=("secret", self.pin))
        self.assertIsNotNone(self.user(token))
        self.remove(SECRETS, self.pin)
        self.assertRefused(token, "its secret has been deleted")
        self.make(SECRETS, named("pin", "u-3"))
        self.assertRefused(token, "its secret has been deleted")

    def test_key_replaced(self) -> None:
        """Tokens of a replaced key are valid only while the key is listed."""
        old, token = forge.public_pem(forge.ec_key()), self.issue()
        self.write("signing.key", forge.private_pem(forge.rsa_key()))
        self.clock.advance(2)
        self.assertRefused(token, "no key of the issuer has signed it")
        listed = self.write("keys.pem", old)
        self.keys = AccountKeys([listed], self.signing, self.clock)
        self.authenticator = self.authenticating(self.keys)
        self.assertIsNotNone(self.user(token))
        self.write("keys.pem", forge.public_pem(forge.rsa_key("third")))
        self.clock.advance(2)
        self.assertRefused(token, "no key of the issuer has signed it")


class ForgedTests(AccountsCase):
    """Forged tokens."""

    def setUp(self) -> None:
        super().setUp()
        key = self.write("key.pem", forge.public_pem(forge.rsa_key()))
        self.authenticator = self.authenticating(AccountKeys([key], "", self.clock))
        self.good: dict[str, Any] = {
            "iss": OLD_ISSUER,
            "aud": [US],
            "exp": NOW + 60,
            "sub": USER.name,
            "kubernetes.io": {
                "namespace": "lab",
                "serviceaccount": {"name": "robot", "uid": "u-1"},
            },
        }

    def test_older_issuer(self) -> None:
        """Tokens of a former issuer name are accepted, and verifying keys alone are enough."""
        user = self.user(forge.token(self.good, kid=None))
        self.assertEqual(user, USER)  # without a jti the user has no credential id

    def test_algorithms(self) -> None:
        """None, a MAC keyed with our public key, another's key: all refused."""
        refused = (
            forge.token(self.good, kid=None, alg="none").rpartition(b".")[0] + b".",
            forge.token(self.good, kid=None, alg="HS256"),
            forge.hmac_token(self.good, forge.public_pem(forge.rsa_key()), kid=None),
        )
        for token in refused:
            failure = self.failureResultOf(
                self.authenticator.authenticate_token(token), Unauthorized
            )
            self.assertIn("its algorithm is not one of", failure.value.message)
        attacker = forge.token(self.good, forge.rsa_key("attacker"), kid=None)
        self.assertRefused(attacker, "no key of the issuer has signed it")

    def test_claims(self) -> None:
        """Contradictory or foreign claims identify no user."""
        private = self.good["kubernetes.io"]
        robot = private["serviceaccount"]
        for changed, why in (
            ({"kubernetes.io": None}, "it is of no service account"),
            ({"kubernetes.io": []}, "it is of no service account"),
            ({"kubernetes.io": {"serviceaccount": robot}}, "it is of no service account"),
            ({"kubernetes.io": {**private, "namespace": 1}}, "it is of no service account"),
            ({"kubernetes.io": {"namespace": "lab"}}, "it names no serviceaccount"),
            (
                {"kubernetes.io": {**private, "serviceaccount": {"name": "", "uid": "u-1"}}},
                "it names no serviceaccount",
            ),
            (
                {"kubernetes.io": {**private, "serviceaccount": {"name": "robot"}}},
                "it names no serviceaccount",
            ),
            (
                {"kubernetes.io": {**private, "namespace": "default"}},
                "its serviceaccount has been deleted",
            ),
            ({"kubernetes.io": {**private, "secret": "pin"}}, "it names no secret"),
            (
                {"kubernetes.io": {**private, "pod": {"name": "p", "uid": "u"}}},
                "it is bound to what this server does not have",
            ),
            ({"sub": "system:serviceaccount:lab:root"}, "its subject is another"),
            ({"aud": "vault"}, "it is for another audience"),
            ({"aud": [1]}, "its audience is neither a string nor a list of them"),
            ({"exp": "tomorrow"}, "its exp is not a number"),
            ({"exp": None}, "its exp is not a number"),
        ):
            self.assertRefused(forge.token({**self.good, **changed}, kid=None), why)


class KeyFileTests(AccountsCase):
    """Unusable key files fail the start with one line that names the file."""

    def refused(self, keys: Sequence[str], signing: str = "") -> str:
        with self.assertRaises(TLSConfigError) as caught:
            AccountKeys(keys, signing, self.clock).load()
        told = str(caught.exception)
        self.assertNotIn("\n", told)
        return told

    def test_missing(self) -> None:
        """A missing file is named."""
        for keys, signing in ((["/nonexistent/k"], ""), ([], "/nonexistent/k")):
            self.assertIn("/nonexistent/k", self.refused(keys, signing))

    def test_wrong(self) -> None:
        """A file without a key, without the needed private key, or with a weak key is refused."""
        empty = self.write("empty.pem", b"\n")
        public = self.write("public.pem", forge.public_pem(forge.rsa_key()))
        weak = self.write("weak.pem", forge.private_pem(forge.rsa_key("weak", 1024)))
        self.assertIn("holds no PEM key", self.refused([empty]))
        self.assertIn("holds no usable PEM private key", self.refused([], public))
        for told in (self.refused([weak]), self.refused([], weak)):
            self.assertIn("an RSA key of 1024 bits", told)
            self.assertIn(weak, told)

    def test_several(self) -> None:
        """A file may hold several keys; each counts once, the signing key's first."""
        both = forge.public_pem(forge.rsa_key()) + forge.public_pem(forge.ec_key())
        path = self.write("both.pem", both)
        keys = AccountKeys([path, path], self.signing, self.clock)
        keys.load()
        own = keys.signing()
        assert own is not None
        found = [key.kid for key in keys.verifying()]
        self.assertEqual((len(found), found[0]), (2, own.public.kid))
