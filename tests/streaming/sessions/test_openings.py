"""
Tests for :mod:`twisted_exec.streaming.sessions.openings`.
"""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import TooManyRequests
from twisted_exec.streaming.sessions.openings import Openings


class OpeningsTests(SynchronousTestCase):
    """Tests for :class:`Openings`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.openings = Openings(at_once=2)

    def begin(self, hop: str = "a") -> Deferred[None]:
        return Deferred.fromCoroutine(self.openings.begin(hop, self.clock, 3))

    def test_in_order(self) -> None:
        """A limited number begin at once; the others follow in order of arrival."""
        turns = [self.begin() for _ in range(5)]
        self.assertEqual([turn.called for turn in turns], [True, True, False, False, False])
        self.openings.end("a")
        self.assertEqual([turn.called for turn in turns], [True, True, True, False, False])
        for _ in range(4):
            self.openings.end("a")
        self.assertTrue(all(turn.called for turn in turns))
        self.assertEqual(len(self.openings), 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_hops(self) -> None:
        """Each next hop has its own turns."""
        self.begin(), self.begin()
        self.assertFalse(self.begin().called)
        self.assertTrue(self.begin("b").called)
        self.assertEqual(len(self.openings), 3)

    def test_limit(self) -> None:
        """A wait ends with 429 and the time to come again."""
        self.begin(), self.begin()
        turn = self.begin()
        self.clock.advance(3)
        refused = self.failureResultOf(turn, TooManyRequests).value
        self.assertEqual(refused.retry_after_seconds, 2)
        for _ in range(2):
            self.openings.end("a")
        self.assertEqual(len(self.openings), 0)

    def test_cancelled(self) -> None:
        """A cancelled wait does not use up a turn."""
        self.begin(), self.begin()
        given_up, next_one = self.begin(), self.begin()
        given_up.cancel()
        self.failureResultOf(given_up, CancelledError)
        self.openings.end("a")
        self.assertTrue(next_one.called)
        self.assertEqual(len(self.openings), 2)
