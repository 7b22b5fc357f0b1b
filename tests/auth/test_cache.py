"""
Tests for :mod:`twisted_exec.auth.cache`.
"""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.auth.cache import AnswerCache


class AnswerCacheTests(SynchronousTestCase):
    """Tests for :class:`AnswerCache`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cache: AnswerCache[str] = AnswerCache(self.clock, lambda answer: 10.0, size=3)
        self.asked: list[Deferred[str]] = []

    def ask(self) -> Deferred[str]:
        self.asked.append(Deferred())
        return self.asked[-1]

    def get(self, key: bytes = b"k") -> Deferred[str]:
        return self.cache.get(key, self.ask)

    def test_remembered(self) -> None:
        """An answer counts for its time and not a moment longer."""
        first = self.get()
        self.asked[0].callback("yes")
        self.assertEqual(self.successResultOf(first), "yes")
        self.clock.advance(9.9)
        self.assertEqual(self.successResultOf(self.get()), "yes")
        self.clock.advance(0.1)
        self.assertNoResult(self.get())
        self.asked[1].callback("no")

    def test_age_counts_from_the_question(self) -> None:
        """An answer that took long is that much older."""
        self.get()
        self.clock.advance(6)
        self.asked[0].callback("yes")
        self.clock.advance(4)
        self.assertNoResult(self.get())
        self.asked[1].callback("yes")

    def test_single_flight(self) -> None:
        """Equal requests at the same time share one call; another key gets its own."""
        answers = [self.get(), self.get(), self.get(b"other")]
        self.assertEqual(len(self.asked), 2)
        self.asked[0].callback("yes")
        self.asked[1].callback("no")
        self.assertEqual([self.successResultOf(each) for each in answers], ["yes", "yes", "no"])

    def test_clear(self) -> None:
        """After clear no answer counts whose question was asked before."""
        first = self.get(b"old")
        self.asked[0].callback("yes")
        second = self.get()
        self.cache.clear()
        third, fourth = self.get(), self.get(b"old")
        self.assertEqual(len(self.asked), 4)
        self.asked[1].callback("before")
        self.assertEqual(self.successResultOf(second), "before")
        self.assertNoResult(third)
        self.asked[2].callback("after")
        self.asked[3].callback("no")
        answers = [self.successResultOf(each) for each in (first, third, fourth, self.get())]
        self.assertEqual(answers, ["yes", "after", "no", "after"])

    def test_failure(self) -> None:
        """A failure reaches everyone who waits, and is not remembered."""
        answers = [self.get(), self.get()]
        self.asked[0].errback(ValueError())
        for each in answers:
            self.failureResultOf(each, ValueError)
        self.get()
        self.assertEqual(len(self.asked), 2)
        self.asked[1].callback("yes")

    def test_raises(self) -> None:
        """A call that raises immediately fails its caller and is not cached."""

        def broken() -> Deferred[str]:
            raise ValueError

        self.failureResultOf(self.cache.get(b"k", broken), ValueError)
        self.failureResultOf(self.cache.get(b"k", broken), ValueError)

    def test_cancel(self) -> None:
        """A caller that cancels leaves the answer to the others."""
        first, second = self.get(), self.get()
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.asked[0].callback("yes")
        self.assertEqual(self.successResultOf(second), "yes")

    def test_bounded(self) -> None:
        """The least recently used answer is forgotten."""
        for key in (b"a", b"b", b"c"):
            self.get(key)
            self.asked[-1].callback("yes")
        self.get(b"a")
        self.get(b"d")
        self.asked[-1].callback("yes")
        self.assertEqual(len(self.cache), 3)
        self.successResultOf(self.get(b"a"))
        self.assertNoResult(self.get(b"b"))
        self.asked[-1].callback("yes")

    def test_expired(self) -> None:
        """Answers of clients that have gone are dropped, and take no place until others need it."""
        for key in (b"a", b"b", b"c"):
            self.get(key)
            self.asked[-1].callback("yes")
        self.clock.advance(10)
        self.assertEqual(len(self.cache), 3)
        self.get(b"d")
        self.asked[-1].callback("yes")
        self.assertEqual(len(self.cache), 1)
        self.clock.advance(9)
        self.get(b"e")
        self.asked[-1].callback("yes")
        self.assertEqual(len(self.cache), 2)
