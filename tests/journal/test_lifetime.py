"""Tests for :mod:`twisted_exec.journal.lifetime`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.journal.lifetime import Lifetime
from twisted_exec.streaming.lifecycle import ImpossibleTransition


class LifetimeTests(SynchronousTestCase):
    """Tests for :class:`Lifetime`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.waiting: list[tuple[Callable[[], Any], Deferred[Any]]] = []
        self.lifetime = Lifetime(self.clock, self.run_in_thread)
        self.called: list[str] = []

    def run_in_thread(self, function: Callable[[], Any]) -> Deferred[Any]:
        self.waiting.append((function, Deferred()))
        return self.waiting[-1][1]

    def answer(self) -> None:
        for function, answer in self.waiting:
            maybeDeferred(function).chainDeferred(answer)
        self.waiting.clear()

    def call(self) -> None:
        self.called.append("call")

    def test_phases(self) -> None:
        """A store is opened once, and its stop ends, or gives up."""
        for is_given_up in (False, True):
            lifetime = Lifetime(self.clock, self.run_in_thread)
            lifetime.open()
            self.assertTrue(lifetime.is_open)
            lifetime.begin_closing()
            self.assertFalse(lifetime.is_open or lifetime.is_given_up)
            (lifetime.give_up if is_given_up else lifetime.close)()
            self.assertIs(lifetime.is_given_up, is_given_up)
            self.assertRaises(ImpossibleTransition, lifetime.open)

    def test_impossible(self) -> None:
        """A store that is not open cannot be closed or given up."""
        for enter in (
            self.lifetime.begin_closing,
            self.lifetime.close,
            self.lifetime.give_up,
        ):
            self.assertRaises(ImpossibleTransition, enter)

    def test_later(self) -> None:
        """What is due never happens once the store closes, nor becomes due then."""
        self.lifetime.later(1, self.call)
        self.lifetime.open()
        self.lifetime.later(1, self.call)
        self.assertTrue(self.lifetime.is_due(self.call))
        self.clock.advance(1)
        self.assertEqual(self.called, ["call"])
        self.lifetime.later(1, self.call)
        self.lifetime.begin_closing()
        self.lifetime.later(1, self.call)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_in_thread(self) -> None:
        """Work in the thread ends while the store closes, but not after it has given up."""
        self.lifetime.open()
        self.lifetime.begin_closing()
        work = self.lifetime.in_thread(self.call)
        self.answer()
        self.successResultOf(work)
        work = self.lifetime.in_thread(self.call)
        self.lifetime.give_up()
        self.answer()
        self.assertIn("the stop has not waited", str(self.failureResultOf(work, OSError).value))
        self.assertEqual(self.called, ["call"])
