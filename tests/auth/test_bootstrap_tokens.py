"""
Tests for :mod:`twisted_exec.auth.bootstrap_tokens`.
"""

from __future__ import annotations

import base64
import math
from typing import Any

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from twisted_exec.api.kinds import SECRETS, Object
from twisted_exec.auth.bootstrap_tokens import BootstrapTokenAuthenticator
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.tokens import ITokenAuthenticator
from twisted_exec.storage.memory import MemoryStorage

NOW = 1_800_000_000.0
TOKEN = b"abc123.0123456789abcdef"


def token_secret(token_id: str = "abc123", **changed: str | None) -> Object:
    """The Secret of a token; ``None`` leaves a key out, ``_`` stands for ``-``."""
    values: dict[str, str | None] = {
        "token-id": token_id,
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
    }
    values |= {key.replace("_", "-"): value for key, value in changed.items()}
    data = {
        key: base64.b64encode(value.encode()).decode()
        for key, value in values.items()
        if value is not None
    }
    return {
        "metadata": {"name": f"bootstrap-token-{token_id}", "namespace": "kube-system", "uid": "u"},
        "type": "bootstrap.kubernetes.io/token",
        "data": data,
    }


class BootstrapTokenTests(SynchronousTestCase):
    """Tests for :class:`BootstrapTokenAuthenticator`."""

    def setUp(self) -> None:
        self.storage = MemoryStorage()
        self.authenticator = BootstrapTokenAuthenticator(self.storage.get, lambda: NOW)

    def user(self, secret: Any = None, token: bytes = TOKEN) -> User | None:
        if secret is not None:
            made = self.successResultOf(self.storage.create(SECRETS.resource, secret))
        found: User | None = self.successResultOf(self.authenticator.authenticate_token(token))
        if secret is not None:
            self.successResultOf(self.storage.delete(SECRETS.resource, made))
        return found

    def test_good(self) -> None:
        """
        A valid token is a user of its own, in the bootstrappers' group and the token's groups.
        """
        self.assertTrue(verifyObject(ITokenAuthenticator, self.authenticator))
        extra = "system:bootstrappers:rack-2,system:bootstrappers:a:b"
        self.assertEqual(
            self.user(token_secret(auth_extra_groups=extra, expiration="2027-01-15T08:00:01Z")),
            User(
                "system:bootstrap:abc123",
                (
                    "system:bootstrappers",
                    "system:bootstrappers:a:b",
                    "system:bootstrappers:rack-2",
                    "system:authenticated",
                ),
            ),
        )

    def test_expires(self) -> None:
        """The user's credential ends with the token; without an expiry it does not."""
        for changed, end in (({"expiration": "2027-01-15T08:00:01Z"}, NOW + 1), ({}, math.inf)):
            user = self.user(token_secret(**changed))
            assert user is not None
            self.assertEqual(user.expires, end)

    def test_not_good(self) -> None:
        """An expired token, one for another use, or a missing one is unknown."""
        for changed in (
            {"token_secret": "0123456789abcdeg"},
            {"token_secret": None},
            {"token_id": None},
            {"token_id": "other1"},
            {"usage_bootstrap_authentication": None},
            {"usage_bootstrap_authentication": "True"},
            {"expiration": "2027-01-15T07:59:59Z"},
            {"expiration": "soon"},
            {"auth_extra_groups": "system:masters"},
            {"auth_extra_groups": "system:bootstrappers:a,system:masters"},
            {"auth_extra_groups": "system:bootstrappers:a\n"},
        ):
            secret = token_secret(**{k: v for k, v in changed.items() if k != "token_id"})
            if "token_id" in changed:
                secret["data"] = {
                    **secret["data"],
                    "token-id": base64.b64encode((changed["token_id"] or "").encode()).decode(),
                }
            self.assertIsNone(self.user(secret), changed)
        self.assertIsNone(self.user(token_secret("other1")))
        self.assertIsNone(self.user({**token_secret(), "type": "Opaque"}))
        going = token_secret()
        going["metadata"]["deletionTimestamp"] = "2027-01-15T07:00:00Z"
        self.assertIsNone(self.user(going))

    def test_wrong_tokens(self) -> None:
        """Other tokens are unknown, and not logged."""
        with capturedLogs() as events:
            for token in (
                b"",
                b"abc123",
                b"abc123.",
                b"ABC123.0123456789abcdef",
                b"abc123.0123456789abcdef\n",
                b"abc123.0123456789abcdefg",
                b"../../.0123456789abcdef",
                b"\xff\xfe\x00",
                b"a" * 32768,
                b"zzzzzz.0123456789abcdef",
                b"abc123.0123456789abcdee",
            ):
                self.assertIsNone(self.user(token_secret(), token), token[:40])
        self.assertEqual(events, [])
