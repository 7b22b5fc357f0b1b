"""
Tests for :mod:`twisted_exec.iri.request_cache`.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.retained import entries
from twisted_exec.api.status import NotFound, TooManyRequests
from twisted_exec.iri.request_cache import EXEC, LOG, Grant, RequestCache
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.wire.session_terms import Terms

ANN = Grant("m1", machine_uid="u1", user="ann", session="s1")
AS_ANN = {"user": "ann", "machine_uid": "u1"}


class Stream:
    """A live stream that ends by itself."""

    def end(self, ending: Ending) -> None:
        """Not called here."""

    def limit_to(self, ceiling: Terms) -> None:
        """Not called here."""


class TokenTests(SynchronousTestCase):
    """Tests for the life of one token."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cache = RequestCache(self.clock, ttl_seconds=60, limit=8, user_limit=4)

    def test_token(self) -> None:
        """A token has 256 random bits, fits in a URL, and is stored only as a hash."""
        tokens = {self.cache.insert(ANN) for _ in range(4)}
        self.assertEqual(len(tokens), 4)
        for token in tokens:
            self.assertRegex(token, r"^[A-Za-z0-9_-]{43}$")
            self.assertNotIn(token, repr(vars(self.cache)))

    def test_single_use(self) -> None:
        """A token becomes unknown after a complete upgrade."""
        token = self.cache.insert(ANN)
        reservation = self.cache.reserve(token, **AS_ANN)
        self.assertEqual(reservation.grant, ANN)
        reservation.commit(Stream())
        with self.assertRaises(NotFound):
            self.cache.reserve(token, **AS_ANN)
        self.assertEqual(self.cache.outstanding, 0)

    def test_purpose(self) -> None:
        """A token for a log opens no console, and vice versa; the attempt does not use it up."""
        for purpose, other in ((LOG, EXEC), (EXEC, LOG)):
            token = self.cache.insert(Grant("m1", purpose=purpose))
            with self.assertRaises(NotFound):
                self.cache.reserve(token, purpose=other)
            self.assertEqual(self.cache.reserve(token, purpose=purpose).grant.purpose, purpose)

    def test_concurrent_use(self) -> None:
        """While one upgrade holds the token, a second fails."""
        token = self.cache.insert(ANN)
        self.cache.reserve(token, **AS_ANN)
        with self.assertRaises(NotFound):
            self.cache.reserve(token, **AS_ANN)

    def test_release(self) -> None:
        """A failed upgrade releases the token; releasing it twice is harmless."""
        token = self.cache.insert(ANN)
        reservation = self.cache.reserve(token, **AS_ANN)
        reservation.release()
        reservation.release()
        self.assertEqual(self.cache.outstanding, 1)
        self.cache.reserve(token, **AS_ANN).commit(Stream())

    def test_expired(self) -> None:
        """A token expires after exactly ``ttl_seconds``."""
        token = self.cache.insert(ANN)
        self.clock.advance(59)
        self.cache.reserve(token, **AS_ANN).release()
        self.clock.advance(1)
        with self.assertRaises(NotFound) as caught:
            self.cache.reserve(token, **AS_ANN)
        self.assertEqual(str(caught.exception), "unknown exec token: used, expired or mistyped")

    def test_released_after_expiry(self) -> None:
        """Releasing a token does not extend its life."""
        token = self.cache.insert(ANN)
        reservation = self.cache.reserve(token, **AS_ANN)
        self.clock.advance(61)
        reservation.release()
        with self.assertRaises(NotFound):
            self.cache.reserve(token, **AS_ANN)
        self.assertEqual(self.cache.outstanding, 0)

    def test_expiry_order_survives_release(self) -> None:
        """An old token still expires first, even if it was released last."""
        old = self.cache.insert(ANN)
        reservation = self.cache.reserve(old, **AS_ANN)
        self.clock.advance(30)
        young = self.cache.insert(ANN)
        reservation.release()
        self.clock.advance(30)
        self.assertEqual(self.cache.outstanding, 1)
        self.cache.reserve(young, **AS_ANN)

    def test_mistyped(self) -> None:
        """Unknown tokens of any length and alphabet raise NotFound."""
        self.cache.insert(ANN)
        for token in ("", "x", "é" * 500, "\ud800"):
            with self.assertRaises(NotFound):
                self.cache.reserve(token, **AS_ANN)

    def test_bound(self) -> None:
        """A token works only for its own user and machine; other attempts do not use it up."""
        token = self.cache.insert(ANN)
        with self.assertRaises(NotFound):
            self.cache.reserve(token, user="bob")
        with self.assertRaises(NotFound):
            self.cache.reserve(token, user="ann", machine_uid="u2")
        for told in ({}, {"user": "ann"}, {"machine_uid": "u1"}):
            with self.assertRaises(NotFound):
                self.cache.reserve(token, **told)
        self.cache.reserve(token, user="ann", machine_uid="u1")

    def test_unbound(self) -> None:
        """A token without a user works for any user, as with other runtimes."""
        for told in ({}, {"user": "ann"}, AS_ANN):
            self.cache.reserve(self.cache.insert(Grant("m1")), **told).commit(Stream())

    def test_forget_machine(self) -> None:
        """Tokens of a deleted machine are void."""
        token = self.cache.insert(ANN)
        other = self.cache.insert(Grant("m2"))
        self.cache.forget_machine("m1")
        with self.assertRaises(NotFound):
            self.cache.reserve(token, **AS_ANN)
        self.cache.reserve(other)


class LimitTests(SynchronousTestCase):
    """Tests for how many tokens may be outstanding."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cache = RequestCache(self.clock, ttl_seconds=60, limit=5, user_limit=2)

    def test_full(self) -> None:
        """A full cache answers 429 with the seconds until the oldest token expires."""
        for name in "abcde":
            self.cache.insert(Grant("m", user=name))
        self.clock.advance(20.5)
        with self.assertRaises(TooManyRequests) as caught:
            self.cache.insert(Grant("m", user="f"))
        self.assertEqual(caught.exception.retry_after_seconds, 40)
        self.clock.advance(40)
        self.cache.insert(Grant("m", user="f"))

    def test_greedy_user(self) -> None:
        """One user at their limit does not keep others out."""
        for _ in range(2):
            self.cache.insert(Grant("m", user="greedy"))
        with self.assertRaises(TooManyRequests) as caught:
            self.cache.insert(Grant("m", user="greedy"))
        self.assertEqual(caught.exception.retry_after_seconds, 60)
        self.cache.insert(Grant("m", user="modest"))

    def test_use_frees(self) -> None:
        """An open console no longer counts against the limit; a reserved token does."""
        token = self.cache.insert(Grant("m", user="ann"))
        self.cache.insert(Grant("m", user="ann"))
        reservation = self.cache.reserve(token, user="ann")
        with self.assertRaises(TooManyRequests):
            self.cache.insert(Grant("m", user="ann"))
        reservation.commit(Stream())
        self.cache.insert(Grant("m", user="ann"))

    def test_nothing_left(self) -> None:
        """Used and expired tokens leave nothing in memory."""
        for _ in range(1000):
            reservation = self.cache.reserve(self.cache.insert(ANN), **AS_ANN)
            reservation.commit(Stream())
            reservation.ended()
        for _ in range(2):
            self.cache.insert(ANN)
        self.clock.advance(61)
        self.assertEqual(self.cache.outstanding, 0)
        self.assertEqual(entries(self.cache), 0)


class StreamTests(SynchronousTestCase):
    """Tests for finding a stream by its token."""

    def setUp(self) -> None:
        self.cache = RequestCache(Clock())
        self.live = Stream()
        self.token = self.cache.insert(ANN)

    def test_live(self) -> None:
        """A live stream is found by its token, for the same user only."""
        reservation = self.cache.reserve(self.token, **AS_ANN)
        reservation.commit(self.live)
        with self.assertRaises(NotFound):
            self.cache.stream(self.token, user="bob")
        self.assertIs(self.cache.stream(self.token, user="ann"), self.live)

    def test_not_live(self) -> None:
        """Before and after the stream, its token raises NotFound."""
        with self.assertRaises(NotFound):
            self.cache.stream(self.token)
        reservation = self.cache.reserve(self.token, **AS_ANN)
        with self.assertRaises(NotFound):
            self.cache.stream(self.token)
        reservation.commit(self.live)
        reservation.ended()
        with self.assertRaises(NotFound):
            self.cache.stream(self.token)
