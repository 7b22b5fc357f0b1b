"""Tests for :mod:`twisted_exec.control.backoff`."""

from __future__ import annotations

import random

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.control.backoff import Backoff


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
