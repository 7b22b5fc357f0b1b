"""Tests for :mod:`twisted_exec.program.handover.patience`."""

from __future__ import annotations

import os
import time

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.handover import patience
from twisted_exec.program.handover.patience import read_activity


class PatienceTests(SynchronousTestCase):
    """How long a process waits for a successor that is not ready."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.busy_seconds, self.waits_for_disk = 0.0, False
        self.patch(patience, "read_activity", lambda _: (self.busy_seconds, self.waits_for_disk))

    def wait(self, waiting: Deferred[None] | None = None) -> Deferred[None]:
        self.patience = patience.Patience(1, self.clock, 10, 120)
        return Deferred.fromCoroutine(
            self.patience.wait(Deferred() if waiting is None else waiting)
        )

    def work(self, share: float) -> int:
        """Let the process be busy for a share of each second; return the second in which it ends."""
        over: list[object] = []
        self.wait().addBoth(over.append)
        for second in range(1, 200):
            self.busy_seconds += share
            self.clock.advance(1)
            if over:
                self.assertIsInstance(getattr(over[0], "value", None), TimeoutError)
                self.assertEqual(self.clock.getDelayedCalls(), [])
                return second
        raise AssertionError("it waits for ever")

    def test_busy(self) -> None:
        """A process that works has two minutes, and one that only has timers ten seconds."""
        for share, seconds, is_over in ((0.0, 10, False), (0.05, 10, False), (0.5, 120, True)):
            self.assertEqual(self.work(share), seconds)
            self.assertEqual(self.patience.is_over, is_over)

    def test_disk(self) -> None:
        """A process that waits for a disk goes on."""
        self.waits_for_disk = True
        self.assertEqual(self.work(0.0), 120)

    def test_stalled(self) -> None:
        """A waiting process that was stalled itself looks at what the successor did meanwhile."""
        waiting: Deferred[None] = Deferred()
        over = self.wait(waiting)
        self.busy_seconds = 5
        self.clock.advance(30)
        self.assertNoResult(over)
        waiting.callback(None)
        self.successResultOf(over)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stops(self) -> None:
        """The end of the program is no timeout."""
        over = self.wait()
        over.cancel()
        self.failureResultOf(over, CancelledError)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_activity(self) -> None:
        """A process that works is busy, and one that waits is not."""
        busy_seconds, _ = read_activity(os.getpid())
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass
        self.assertGreaterEqual(read_activity(os.getpid())[0] - busy_seconds, 0.05)
        self.assertEqual(read_activity(0), (0.0, False))
