"""Tests for :mod:`twisted_exec.streaming.http.memory_budget`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.http.memory_budget import Budget


class BudgetTests(SynchronousTestCase):
    """Eviction when the budget is exceeded."""

    def setUp(self) -> None:
        self.gone: list[str] = []
        self.budget: Budget[str] = Budget(100, self.gone.append)

    def test_longest_goes(self) -> None:
        """Beyond the limit the oldest holder is evicted, however little it keeps."""
        self.budget.keep("first", 10)
        self.budget.keep("second", 80)
        self.budget.keep("first", 10)
        self.assertEqual(self.gone, [])
        self.budget.keep("third", 1)
        self.assertEqual((self.gone, len(self.budget)), (["first"], 81))

    def test_as_many_as_needed(self) -> None:
        """As many holders as necessary are evicted, possibly the caller."""
        self.budget.keep("first", 50)
        self.budget.keep("second", 50)
        self.budget.keep("third", 101)
        self.assertEqual((self.gone, len(self.budget)), (["first", "second", "third"], 0))

    def test_release(self) -> None:
        """A released holder no longer counts; releasing again does nothing."""
        self.budget.keep("first", 100)
        self.budget.release("first")
        self.budget.release("first")
        self.budget.keep("second", 100)
        self.assertEqual((self.gone, len(self.budget)), ([], 100))

    def test_progress(self) -> None:
        """A partial release makes a holder the youngest."""
        self.budget.keep("first", 60)
        self.budget.keep("second", 40)
        self.budget.release("first", 10)
        self.assertEqual(len(self.budget), 90)
        self.budget.keep("second", 20)
        self.assertEqual((self.gone, len(self.budget)), (["second"], 50))
        self.budget.release("first", 1000)
        self.assertEqual(len(self.budget), 0)
