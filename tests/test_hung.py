"""
Tests that hang (``tests/__init__.py``).
"""

from __future__ import annotations

from unittest import TestResult

from twisted.trial import util
from twisted.trial.unittest import SynchronousTestCase


class Hung(SynchronousTestCase):
    """No case that a loader finds: it has no method whose name begins with ``test``."""

    timeout = -300.0

    def never_ends(self) -> None:
        while True:
            pass


class HungTests(SynchronousTestCase):
    """A test that does not return to the reactor."""

    def test_fails(self) -> None:
        """It fails at its limit, and its traceback shows where it was."""
        self.patch(util, "DEFAULT_TIMEOUT_DURATION", -299.0)
        result = TestResult()
        Hung("never_ends").run(result)
        [(_, traceback)] = result.failures
        self.assertIn("was still running after 1 s", traceback)
        self.assertIn("in never_ends", traceback)
