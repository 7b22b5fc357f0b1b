"""
Tests for :mod:`twisted_exec.runtimes.machinebroker.tokens`.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import APIError, BadRequest, NotFound
from twisted_exec.iri.request_cache import LOG, Grant
from twisted_exec.runtimes.machinebroker.ledgers import MemoryLedger
from twisted_exec.runtimes.machinebroker.tokens import (
    LIFE_SECONDS,
    TokenClaim,
    Tokens,
    key_of,
    new_key,
)
from twisted_exec.tls.errors import TLSConfigError

GRANT = Grant("m" * 63, "uid-1", "jané", "session-1")
TOLD = {"user": "jané", "machine_uid": "uid-1"}


class TokensCase(SynchronousTestCase):
    """Tokens with a clock."""

    def setUp(self) -> None:
        self.seconds = 1_000_000.0
        self.key = new_key()
        self.tokens = self.replica(MemoryLedger(lambda: self.seconds))

    def replica(self, ledger: object) -> Tokens:
        return Tokens(lambda: self.key, ledger, now=lambda: self.seconds)

    def claim(self, token: str, tokens: Tokens | None = None, **facts: str) -> TokenClaim:
        claiming = Deferred.fromCoroutine((tokens or self.tokens).claim(token, **(TOLD | facts)))
        return self.successResultOf(claiming)

    def refused(self, token: str, tokens: Tokens | None = None, **facts: str) -> APIError:
        claiming = Deferred.fromCoroutine((tokens or self.tokens).claim(token, **(TOLD | facts)))
        error: Any = self.failureResultOf(claiming).value
        self.assertIsInstance(error, APIError)
        self.assertNotIn(token or None, str(error).split())
        return error


class ClaimTests(TokensCase):
    """Validity of tokens."""

    def test_grant(self) -> None:
        """A token contains its grant, and does not reveal it."""
        token = self.tokens.make(GRANT)
        self.assertEqual(self.claim(token, user="jané", machine_uid="uid-1").grant, GRANT)
        self.assertNotIn(b"uid-1", base64.urlsafe_b64decode(token + "=="))
        self.assertRegex(token, r"\A[-_0-9A-Za-z]+\Z")

    def test_once(self) -> None:
        """A second use is refused, and so is the same token written in another way."""
        token = self.tokens.make(GRANT)
        self.claim(token)
        self.assertIsInstance(self.refused(token), NotFound)
        self.assertIsInstance(self.refused(token + "="), NotFound)

    def test_spelling(self) -> None:
        """Bits that decoding drops make no other token."""
        tokens = [self.tokens.make(replace(GRANT, session="s" * length)) for length in range(3)]
        token = next(each for each in tokens if len(each) % 4 == 2)
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        other = token[:-1] + alphabet[alphabet.index(token[-1]) ^ 1]
        decoded = {base64.urlsafe_b64decode(each + "===") for each in (token, other)}
        self.assertEqual(len(decoded), 1)
        self.claim(token)
        self.assertIsInstance(self.refused(other), NotFound)

    def test_given_back(self) -> None:
        """A returned claim can be used again."""
        token = self.tokens.make(GRANT)
        self.successResultOf(self.claim(token).give_back())
        self.claim(token)

    def test_wrong(self) -> None:
        """For another user, machine or purpose, changed, foreign, or no token: unknown."""
        token = self.tokens.make(GRANT)
        for facts in (
            {"user": "eve"},
            {"machine_uid": "uid-2"},
            {"user": ""},
            {"machine_uid": ""},
            {"purpose": LOG},
        ):
            self.assertIsInstance(self.refused(token, **facts), NotFound)
        changed = ("B" if token[20] == "A" else "A").join((token[:20], token[21:]))
        foreign = Tokens(new_key, MemoryLedger()).make(GRANT)
        for other in (changed, foreign, token[:-4], "", "é", "x" * 5000, "vm", "\0"):
            self.assertIsInstance(self.refused(other), NotFound)
        self.claim(token)

    def test_expired(self) -> None:
        """After a minute it is good for nothing but to name its session."""
        token = self.tokens.make(GRANT)
        self.seconds += LIFE_SECONDS - 0.1
        self.successResultOf(self.claim(token).give_back())
        self.seconds += 0.2
        self.assertIsInstance(self.refused(token), NotFound)
        self.assertEqual(self.tokens.read(token, user="jané"), GRANT)
        self.assertRaises(NotFound, self.tokens.read, token, user="eve")

    def test_clock_jumps(self) -> None:
        """A token that was made while the clock was ahead is no good when the clock is right again."""
        self.seconds += 63_072_000
        token = self.tokens.make(GRANT)
        self.seconds -= 63_072_000
        self.assertIsInstance(self.refused(token), NotFound)
        self.seconds += 63_072_000
        self.claim(token)

    def test_clocks_differ(self) -> None:
        """The clock of the replica that made a token may be half a minute ahead."""
        self.seconds += 30
        token = self.tokens.make(GRANT)
        self.seconds -= 30
        self.claim(token)

    def test_too_long(self) -> None:
        """A URL has an end."""
        self.assertRaises(BadRequest, self.tokens.make, replace(GRANT, user="x" * 4000))


class ReplicaTests(TokensCase):
    """Several brokers behind one address."""

    def test_shared(self) -> None:
        """Another replica honours a token, and of all of them one does."""
        ledger = MemoryLedger(lambda: self.seconds)
        first, second = self.replica(ledger), self.replica(ledger)
        token = first.make(GRANT)
        self.assertEqual(self.claim(token, second).grant, GRANT)
        self.assertIsInstance(self.refused(token, first), NotFound)

    def test_key_replaced(self) -> None:
        """With a new key, older tokens are unknown."""
        token = self.tokens.make(GRANT)
        self.key = new_key()
        self.assertIsInstance(self.refused(token), NotFound)
        self.claim(self.tokens.make(GRANT))

    def test_key_file(self) -> None:
        """A key that can be guessed is none; random bytes may look like blanks."""
        self.assertRaises(TLSConfigError, key_of, b"secret\n")
        self.assertEqual(key_of(b"x" * 31 + b"\n"), b"x" * 31 + b"\n")
