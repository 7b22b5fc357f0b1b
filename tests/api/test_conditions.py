"""Tests for :mod:`twisted_exec.api.conditions`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.conditions import MAX_MESSAGE, with_conditions


class WithConditionsTests(SynchronousTestCase):
    """Tests for :func:`with_conditions`."""

    def test_times(self) -> None:
        """A condition's time moves with its status, not with its words; others stay as they are."""
        other = {"type": "Other", "status": "True"}
        first = with_conditions([other], {"Ready": ("True", "Good", "")}, "t1")
        again = with_conditions(first, {"Ready": ("True", "Better", "so")}, "t2")
        bad = with_conditions(again, {"Ready": ("False", "Bad", "")}, "t3")
        self.assertEqual([each[0] for each in (first, again, bad)], [other] * 3)
        told = [(each[1]["reason"], each[1]["lastTransitionTime"]) for each in (first, again, bad)]
        self.assertEqual(told, [("Good", "t1"), ("Better", "t1"), ("Bad", "t3")])

    def test_same(self) -> None:
        """What is told already is not told otherwise: whoever compares finds no difference."""
        known = with_conditions([], {"Ready": ("True", "Good", "fine")}, "t1", 3)
        self.assertEqual(
            with_conditions(known, {"Ready": ("True", "Good", "fine")}, "t2", 3), known
        )
        self.assertEqual(known[0]["observedGeneration"], 3)

    def test_words(self) -> None:
        """Words are one line of bounded length: they end on people's terminals."""
        (made,) = with_conditions([], {"Ready": ("False", "Bad", "a\nb\x1b[2J" + "x" * 5000)}, "t")
        self.assertTrue(made["message"].isprintable())
        self.assertEqual(len(made["message"]), MAX_MESSAGE)
