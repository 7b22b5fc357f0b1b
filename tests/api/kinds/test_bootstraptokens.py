"""
Tests for :mod:`twisted_exec.api.kinds.bootstraptokens`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.kinds.bootstraptokens import (
    causes_of,
    expires,
    extra_groups,
    is_expired,
    parts_of,
)

GOOD = {"token-id": b"abc123", "token-secret": b"0123456789abcdef"}


class BootstrapTokenTests(SynchronousTestCase):
    """What a Secret says that is a bootstrap token."""

    def test_parts(self) -> None:
        """A token has two parts, of small letters and digits; all else is another kind of token."""
        self.assertEqual(parts_of(b"abc123.0123456789abcdef"), ("abc123", b"0123456789abcdef"))
        for token in (b"", b"abc123", b"abc12.0123456789abcdef", b"abc123.0123456789abcdef\n"):
            self.assertIsNone(parts_of(token))

    def test_expiration(self) -> None:
        """Until a moment, or for ever; who writes no moment writes a token that is over."""
        self.assertIsNone(expires({}))
        self.assertFalse(is_expired({"expiration": b""}, 1e12))
        told = {"expiration": b"1970-01-01T00:01:40+00:00"}
        self.assertEqual(expires(told), 100)
        self.assertEqual((is_expired(told, 100), is_expired(told, 100.5)), (False, True))
        for text in (b"soon", b"100", b"\xff", b"1970-01-01", b"9999-99-99T00:00:00Z"):
            self.assertTrue(is_expired({"expiration": text}, 0), text)

    def test_groups(self) -> None:
        """Only groups of those who bootstrap, each once, in order."""
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
        """What is wrong is told by its key, and never by what it holds."""
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
