"""
Tests for :mod:`twisted_exec.apiserver.controllers.coalescing`.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.apiserver.controllers.coalescing import CoalescedRuns


class PassesTests(SynchronousTestCase):
    """Tests for :class:`CoalescedRuns`."""

    def setUp(self) -> None:
        self.begun: list[Deferred[None]] = []
        self.failures: list[Failure] = []
        self.passes = CoalescedRuns(self.one, self.failures.append, lambda: self.passes.ask())

    async def one(self) -> None:
        self.begun.append(Deferred())
        await self.begun[-1]

    def test_one_at_a_time(self) -> None:
        """However many requests arrive during a run, one more run follows."""
        for _ in range(5):
            self.passes.ask()
        self.assertEqual(len(self.begun), 1)
        self.begun[0].callback(None)
        self.assertEqual(len(self.begun), 2)
        self.begun[1].callback(None)
        self.assertEqual(len(self.begun), 2)
        self.passes.ask()
        self.assertEqual(len(self.begun), 3)

    def test_failed(self) -> None:
        """A failed run is reported, and does not prevent the next."""
        self.passes.ask()
        self.passes.ask()
        self.begun[0].errback(RuntimeError("x"))
        self.assertEqual([each.type for each in self.failures], [RuntimeError])
        self.assertEqual(len(self.begun), 2)
