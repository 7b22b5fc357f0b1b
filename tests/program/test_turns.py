"""Tests for :mod:`twisted_exec.program.turns`."""

from __future__ import annotations

from functools import partial

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.turns import REST_SECONDS, SHARED_TURN_SECONDS, SharedTurns, ShortTurns


class ShortTurnsTests(SynchronousTestCase):
    """Tests for :class:`ShortTurns`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.steps = 0

    async def work(self, seconds: float) -> None:
        turns = self.turns = ShortTurns(self.clock)
        for _ in range(10):
            await turns.breathe()
            self.steps += 1
            self.clock.rightNow += seconds

    def test_long(self) -> None:
        """Work that takes long goes on in later turns of the reactor."""
        working = Deferred.fromCoroutine(self.work(0.001))
        seen = [self.steps]
        while not working.called:
            self.clock.advance(REST_SECONDS)
            seen.append(self.steps)
        self.assertEqual(seen, [2, 4, 6, 8, 10])

    def test_stopped(self) -> None:
        """Work whose service stops does not rest any more."""
        working = Deferred.fromCoroutine(self.work(0.001))
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.turns.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.successResultOf(working)
        self.assertEqual(self.steps, 10)

    def test_cancelled(self) -> None:
        """Work that is cancelled while it rests ends."""
        working = Deferred.fromCoroutine(self.work(0.001))
        working.cancel()
        self.failureResultOf(working, CancelledError)
        self.assertEqual(self.steps, 2)

    def test_short(self) -> None:
        """Short work takes one turn."""
        self.successResultOf(Deferred.fromCoroutine(self.work(0)))


class SharedTurnsTests(SynchronousTestCase):
    """Tests for :class:`SharedTurns`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.turns = SharedTurns(self.clock)
        self.done: list[int] = []
        self.parties = [partial(self.done.append, number) for number in range(3)]

    def test_one_at_a_time(self) -> None:
        """All have their turns in order, and the reactor has one call for all of them."""
        for each in (*self.parties, self.parties[0]):
            self.turns.soon(each)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.assertEqual(self.done, [])
        self.clock.advance(0)
        self.assertEqual(self.done, [0, 1, 2])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_users(self) -> None:
        """A party waits for one turn of each other user, however many parties they have."""
        for number in range(3):
            self.turns.soon(partial(self.done.append, number), "ada")
        for number in (10, 11):
            self.turns.soon(partial(self.done.append, number), "bob")
        self.turns.soon(partial(self.done.append, 20), "eve")
        self.clock.advance(0)
        self.assertEqual(self.done, [0, 10, 20, 1, 11, 2])

    def test_cancelled(self) -> None:
        """A party that is gone has no turn, and leaves nothing in the reactor."""
        for each in self.parties:
            self.turns.soon(each)
        self.turns.cancel(self.parties[1])
        self.clock.advance(0)
        self.assertEqual(self.done, [0, 2])
        self.turns.soon(self.parties[1])
        self.turns.cancel(self.parties[1])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_share(self) -> None:
        """With a share of a quarter, others have three times as long after each turn, also while nobody waits."""
        turns = SharedTurns(self.clock, 0.25)
        begins: list[float] = []

        def work() -> None:
            begins.append(self.clock.seconds())
            self.clock.rightNow += 1

        first, second, third = (partial(work) for _ in range(3))
        turns.soon(first)
        turns.soon(second)
        self.clock.advance(0)
        self.assertEqual(begins, [0])
        self.clock.pump([1] * 3)
        self.assertEqual(begins, [0, 4])
        turns.soon(third)
        self.clock.pump([1] * 3)
        self.assertEqual(begins, [0, 4, 8])

    def test_failed_turn(self) -> None:
        """A turn that fails does not keep the others from theirs."""

        def fail() -> None:
            raise ValueError

        self.turns.soon(fail)
        self.turns.soon(self.parties[0])
        self.assertRaises(ValueError, self.clock.advance, 0)
        self.clock.advance(0)
        self.assertEqual(self.done, [0])

    def test_rest(self) -> None:
        """A coroutine rests when its turn has been long enough; one that is cancelled leaves no turn."""
        now = self.clock.seconds()
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(self.turns.rest(now))), now)
        self.clock.advance(SHARED_TURN_SECONDS)
        resting = Deferred.fromCoroutine(self.turns.rest(now))
        self.assertNoResult(resting)
        self.clock.advance(0)
        self.assertEqual(self.successResultOf(resting), self.clock.seconds())
        resting = Deferred.fromCoroutine(self.turns.rest(now))
        resting.cancel()
        self.failureResultOf(resting, CancelledError)
        self.assertEqual(self.clock.getDelayedCalls(), [])
