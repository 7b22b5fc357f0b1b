"""Tests for :mod:`twisted_exec.kube.informers.listeners`."""

from __future__ import annotations

from collections.abc import Callable

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.kube.informers.listeners import Listeners


class FollowersTests(SynchronousTestCase):
    """Tests for :class:`Listeners`."""

    def test_ended(self) -> None:
        """Who ended is told no more, also when that happens while others are told."""
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
        """What one raises is logged, and the others are told."""
        told: list[str] = []
        followers = Listeners("it")
        followers.add(lambda what: {}[what])
        followers.add(told.append)
        followers.tell("x")
        self.assertEqual(told, ["x"])
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_all_of_them(self) -> None:
        """How many there are; and all may be ended at once."""
        told: list[str] = []
        followers = Listeners("it")
        end = followers.add(told.append)
        followers.add(told.append)
        self.assertEqual(len(followers), 2)
        followers.clear()
        end()
        followers.tell("x")
        self.assertEqual((len(followers), told), (0, []))
