"""
Tests for :mod:`twisted_exec.tls.deadlines`.
"""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.tls.deadlines import LONGEST_SECONDS, Deadline, Late, Progress, limited


class DeadlineTests(SynchronousTestCase):
    """Limits of five seconds."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.told: list[float] = []
        self.progress = Progress(self.clock)

    def deadline(self, seconds: float = 5) -> Deadline:
        return Deadline(self.clock, seconds, self.told.append, [self.progress])

    def test_silence(self) -> None:
        """Without a sign of life the limit ends in its time."""
        self.deadline()
        self.clock.advance(4.9)
        self.assertEqual(self.told, [])
        self.clock.advance(0.1)
        self.assertEqual(self.told, [5])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_signs(self) -> None:
        """The limit counts from the last sign of life."""
        self.deadline()
        for _ in range(10):
            self.clock.advance(4)
            self.progress.note()
        self.clock.pump([1, 3.9])
        self.assertEqual(self.told, [])
        self.clock.advance(0.1)
        self.assertEqual(self.told, [45])

    def test_before(self) -> None:
        """A sign from before the beginning does not shorten the limit."""
        self.progress.note()
        self.clock.advance(4)
        self.deadline()
        self.clock.advance(4)
        self.assertEqual(self.told, [])
        self.clock.advance(1)
        self.assertEqual(self.told, [5])

    def test_part(self) -> None:
        """What a part does is a sign of life of the whole, and not the other way round."""
        part = Progress(self.clock, self.progress)
        self.deadline()
        Deadline(self.clock, 5, self.told.append, [part])
        self.clock.advance(4)
        self.progress.note()
        self.clock.advance(1)
        self.assertEqual(self.told, [5])
        part.note()
        self.clock.advance(4)
        self.assertEqual(self.told, [5])

    def test_longest(self) -> None:
        """After ten minutes the limit ends in spite of all signs of life."""
        self.deadline()
        for _ in range(int(LONGEST_SECONDS) - 1):
            self.clock.advance(1)
            self.progress.note()
        self.assertEqual(self.told, [])
        self.clock.advance(1)
        self.assertEqual(self.told, [600])

    def test_stopped(self) -> None:
        """A process that did not run reads what has arrived before it calls the peer silent."""
        self.deadline()
        self.clock.advance(60)
        self.assertEqual(self.told, [])
        self.progress.note()
        self.clock.pump([0.5, 4])
        self.assertEqual(self.told, [])
        self.clock.advance(0.5)
        self.assertEqual(self.told, [65])

    def test_stopped_and_silent(self) -> None:
        """If there is nothing to read, the limit ends soon after."""
        self.deadline()
        self.clock.pump([60, 0.5])
        self.assertEqual(self.told, [5])

    def test_slow_process(self) -> None:
        """A process that is late each time does not wait for ever."""
        self.deadline()
        self.clock.pump([6, 2])
        self.assertEqual(self.told, [5])

    def test_paused(self) -> None:
        """The time that the peer waits for this process does not count."""
        deadline = self.deadline()
        self.clock.advance(3)
        deadline.pause()
        deadline.pause()
        self.clock.advance(100)
        deadline.go_on()
        deadline.go_on()
        self.clock.advance(1.9)
        self.assertEqual(self.told, [])
        self.clock.advance(0.1)
        self.assertEqual(len(self.told), 1)

    def test_restarted(self) -> None:
        """A limit that begins anew keeps its timer."""
        deadline = self.deadline()
        (timer,) = self.clock.getDelayedCalls()
        self.clock.advance(4)
        deadline.restart(7)
        self.assertEqual(self.clock.getDelayedCalls(), [timer])
        self.clock.pump([3, 3.9])
        self.assertEqual(self.told, [])
        self.clock.advance(0.1)
        self.assertEqual(self.told, [7])

    def test_restarted_at_its_end(self) -> None:
        """A limit can begin anew when it has ended, and a paused limit counts again."""
        deadline = self.deadline()
        self.clock.advance(5)
        deadline.restart(2)
        deadline.pause()
        deadline.restart(3)
        self.clock.advance(3)
        self.assertEqual(self.told, [5, 3])

    def test_cancelled(self) -> None:
        """A limit that is not needed any more leaves nothing behind."""
        deadline = self.deadline()
        deadline.cancel()
        deadline.cancel()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class LimitedTests(SynchronousTestCase):
    """Deferreds with a limit."""

    def setUp(self) -> None:
        self.clock = Clock()

    def test_result(self) -> None:
        """A result in time passes, and so does a failure."""
        for ended in (lambda each: each.callback(1), lambda each: each.errback(KeyError())):
            each: Deferred[int] = Deferred()
            result = limited(each, self.clock, 5)
            ended(each)
            self.assertEqual(self.clock.getDelayedCalls(), [])
            result.addErrback(lambda failure: failure.trap(KeyError))
            self.successResultOf(result)

    def test_late(self) -> None:
        """The Deferred is cancelled, and fails with the time that it had."""
        result = limited(Deferred(), self.clock, 5)
        self.clock.advance(5)
        self.assertEqual(self.failureResultOf(result, Late).value.seconds, 5)

    def test_cancelled(self) -> None:
        """Cancelling passes, too."""
        result = limited(Deferred(), self.clock, 5)
        result.cancel()
        self.failureResultOf(result, CancelledError)
