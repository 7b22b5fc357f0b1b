"""Tests for :mod:`twisted_exec.control.backoff`."""

from __future__ import annotations

import random

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.control.backoff import Backoff, Backoffs


class BackoffTests(SynchronousTestCase):
    """Tests for :class:`Backoff`."""

    def test_doubles_with_jitter_up_to_a_limit(self) -> None:
        """Each pause is between half and all of a value that doubles until the limit."""
        backoff = Backoff(1.0, 8.0, random.Random(7))
        for whole in (1, 2, 4, 8, 8, 8):
            pause = backoff.pause()
            self.assertTrue(whole / 2 <= pause <= whole, pause)
        backoff.reset()
        self.assertLessEqual(backoff.pause(), 1)


class BackoffsTests(SynchronousTestCase):
    """Tests for :class:`Backoffs`."""

    def test_each(self) -> None:
        """Each key waits for itself, ever longer, until it succeeds."""
        clock = Clock()
        backoffs: Backoffs[str] = Backoffs(clock, lambda: Backoff(1.0, 60.0))
        self.assertEqual(backoffs.wait_seconds("a"), 0.0)
        self.assertTrue(backoffs.failed("a", "full"))
        first = backoffs.wait_seconds("a")
        self.assertTrue(0.5 <= first <= 1.0, first)
        self.assertFalse(backoffs.failed("a", "full"), "the same cause")
        self.assertEqual(backoffs.wait_seconds("a"), first, "it waits already")
        self.assertEqual(backoffs.wait_seconds("b"), 0.0)
        clock.advance(1.0)
        self.assertEqual(backoffs.wait_seconds("a"), 0.0)
        self.assertFalse(backoffs.failed("a", "full"))
        self.assertTrue(1.0 <= backoffs.wait_seconds("a") <= 2.0)
        self.assertTrue(backoffs.failed("a", "forbidden"))
        backoffs.succeeded("a")
        backoffs.succeeded("b")
        self.assertEqual((backoffs.wait_seconds("a"), len(backoffs)), (0.0, 0))
