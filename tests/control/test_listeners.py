"""Tests for :mod:`twisted_exec.control.listeners`."""

from __future__ import annotations

from collections.abc import Callable

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.control.listeners import Listeners


class FollowersTests(SynchronousTestCase):
    """Tests for :class:`Listeners`."""

    def test_ended(self) -> None:
        """
        A removed listener gets no more calls, even if another listener removed it during a call.
        """
        told: list[str] = []
        ends: list[Callable[[], None]] = []

        def first(what: str) -> None:
            told.append(f"first {what}")
            ends[1]()

        followers = Listeners("it")
        ends += [followers.add(first), followers.add(lambda what: told.append(f"second {what}"))]
        followers.tell("x")
        ends[0]()
        ends[0]()
        followers.tell("y")
        self.assertEqual(told, ["first x"])

    def test_one_that_fails(self) -> None:
        """A listener's exception is logged; the others still get the call."""
        told: list[str] = []
        followers = Listeners("it")
        followers.add(lambda what: {}[what])
        followers.add(told.append)
        followers.tell("x")
        self.assertEqual(told, ["x"])
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_all_of_them(self) -> None:
        """``len`` counts the listeners; ``clear`` removes them all."""
        told: list[str] = []
        followers = Listeners("it")
        end = followers.add(told.append)
        followers.add(told.append)
        self.assertEqual(len(followers), 2)
        followers.clear()
        end()
        followers.tell("x")
        self.assertEqual((len(followers), told), (0, []))
