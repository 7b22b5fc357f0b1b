"""Tests for :mod:`twisted_exec.cli.web.login`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import Forbidden
from twisted_exec.cli.web.login import VALID_SECONDS, Login


class LoginTests(SynchronousTestCase):
    """Tests for :class:`Login`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.login = Login(self.clock)

    def refused(self, secret: str) -> None:
        """The secret is refused, with a sentence that has the remedy."""
        refusal = self.assertRaises(Forbidden, self.login.exchange, secret)
        self.assertTrue(refusal.message.startswith("This URL "))
        self.assertIn("a newer URL was shown", refusal.message)
        self.assertIn("press Enter in the terminal", refusal.message)
        self.assertNotIn(self.login.token, refusal.message)

    def test_once(self) -> None:
        """A secret is exchanged for the token once."""
        secret = self.login.new_secret()
        self.assertEqual(self.login.exchange(secret), self.login.token)
        self.refused(secret)

    def test_late(self) -> None:
        """A secret is void after its time, and its last moment is before that."""
        secret = self.login.new_secret()
        self.clock.advance(VALID_SECONDS)
        self.refused(secret)
        secret = self.login.new_secret()
        self.clock.advance(VALID_SECONDS - 0.1)
        self.assertEqual(self.login.exchange(secret), self.login.token)

    def test_replaced(self) -> None:
        """A new secret replaces the one before; another browser uses it for the same token."""
        first, second = self.login.new_secret(), self.login.new_secret()
        self.assertNotEqual(first, second)
        self.refused(first)
        self.assertEqual(self.login.exchange(second), self.login.token)
        self.assertEqual(self.login.exchange(self.login.new_secret()), self.login.token)

    def test_none(self) -> None:
        """Before there is a secret, and after its use, nothing is accepted, nor is an empty one."""
        self.refused("")
        self.login.exchange(self.login.new_secret())
        self.refused("")

    def test_guesses(self) -> None:
        """Wrong secrets of other programs leave the right one valid, which nobody can guess."""
        secret = self.login.new_secret()
        self.assertGreaterEqual(len(secret), 43)  # 32 bytes
        for guess in range(100):
            self.refused(f"{secret[:-1]}{guess}ö\ud800")
        self.assertEqual(self.login.exchange(secret), self.login.token)

    def test_token(self) -> None:
        """Only the whole token is the token; each program has its own."""
        token = self.login.token.encode()
        self.assertTrue(self.login.is_token(token))
        for wrong in (b"", token[:-1], token + b"x", Login(self.clock).token.encode(), b"\xff"):
            self.assertFalse(self.login.is_token(wrong), wrong)
