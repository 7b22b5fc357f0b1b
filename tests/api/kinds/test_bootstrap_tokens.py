"""
Tests for :mod:`twisted_exec.api.kinds.bootstrap_tokens`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.kinds.bootstrap_tokens import (
    causes_of,
    expiry_of,
    extra_groups,
    is_expired,
    split_token,
)

GOOD = {"token-id": b"abc123", "token-secret": b"0123456789abcdef"}


class BootstrapTokenTests(SynchronousTestCase):
    """Secrets that are bootstrap tokens."""

    def test_parts(self) -> None:
        """
        A token has two parts, of small letters and digits; other texts are not bootstrap tokens.
        """
        self.assertEqual(split_token(b"abc123.0123456789abcdef"), ("abc123", b"0123456789abcdef"))
        for token in (b"", b"abc123", b"abc12.0123456789abcdef", b"abc123.0123456789abcdef\n"):
            self.assertIsNone(split_token(token))

    def test_expiration(self) -> None:
        """
        A token without an expiration never expires; one with an unreadable expiration has expired.
        """
        self.assertIsNone(expiry_of({}))
        self.assertFalse(is_expired({"expiration": b""}, 1e12))
        told = {"expiration": b"1970-01-01T00:01:40+00:00"}
        self.assertEqual(expiry_of(told), 100)
        self.assertEqual((is_expired(told, 100), is_expired(told, 100.5)), (False, True))
        for text in (b"soon", b"100", b"\xff", b"1970-01-01", b"9999-99-99T00:00:00Z"):
            self.assertTrue(is_expired({"expiration": text}, 0), text)

    def test_groups(self) -> None:
        """Only bootstrappers' groups are allowed; they are returned sorted, without duplicates."""
        told = b"system:bootstrappers:b,system:bootstrappers:a,system:bootstrappers:b"
        self.assertEqual(
            extra_groups({"auth-extra-groups": told}),
            ("system:bootstrappers:a", "system:bootstrappers:b"),
        )
        self.assertEqual(extra_groups({}), ())
        for text in (
            b"system:masters",
            b"system:bootstrappers",
            b"system:bootstrappers:",
            b"system:bootstrappers:a,",
            b"system:bootstrappers:A",
            b" system:bootstrappers:a",
            b"system:bootstrappers:a\nsystem:masters",
            b"system:bootstrappers:" + b"a" * 300,
        ):
            with self.assertRaises(ValueError):
                extra_groups({"auth-extra-groups": text})

    def test_causes(self) -> None:
        """Each invalid field is refused by its key, and its value is not quoted."""
        self.assertEqual(list(causes_of("bootstrap-token-abc123", GOOD)), [])
        wrong = {
            "token-id": b"ABC",
            "token-secret": b"hunter2",
            "expiration": b"whenever",
            "auth-extra-groups": b"everyone",
        }
        causes = list(causes_of("x", wrong))
        self.assertEqual(
            sorted(cause["field"] for cause in causes),
            [
                "data[auth-extra-groups]",
                "data[expiration]",
                "data[token-id]",
                "data[token-secret]",
                "metadata.name",
            ],
        )
        for value in ("hunter2", "whenever", "everyone"):
            self.assertNotIn(value, str(causes))
        missing = [cause["field"] for cause in causes_of("x", {})]
        self.assertEqual(missing, ["data[token-id]", "data[token-secret]"])
