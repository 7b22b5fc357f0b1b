"""Tests for :mod:`twisted_exec.mcp.turns`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.mcp.turns import WAITING_SECONDS, UserTurns


class TurnTests(SynchronousTestCase):
    """Who goes next."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.turns = UserTurns(self.clock, at_once=2, per_user=1)
        self.order: list[str] = []

    def ask(self, user: str):
        turn = self.turns.next(user)
        turn.addCallback(lambda each: self.order.append(user) or each)
        return turn

    def test_quiet_user(self) -> None:
        """A user who comes after a flood goes before its rest."""
        flood = [self.ask("loud") for _ in range(100)]
        other = self.ask("other")
        quiet = self.ask("quiet")
        self.assertEqual(self.order, ["loud", "other"])
        self.successResultOf(flood[0]).end()
        self.assertEqual(self.order, ["loud", "other", "quiet"])
        self.successResultOf(other).end()
        self.assertEqual(self.order[3:], ["loud"])
        self.successResultOf(quiet).end()
        self.assertEqual(self.order[4:], [])  # the loud user has one at a time
        self.assertEqual(len(self.turns), 98)

    def test_rounds(self) -> None:
        """Users who wait take turns, whatever each asks for."""
        begun = {user: [self.ask(user) for _ in range(3)] for user in "abc"}
        for _ in range(3):
            for user in "abc":
                self.successResultOf(begun[user].pop(0)).end()
        self.assertEqual("".join(self.order), "abcabcabc")

    def test_waiting_call(self) -> None:
        """A call that waits for a machine holds nobody up, and its end is no second one."""
        first = self.successResultOf(self.ask("a"))
        first.may_wait()
        waiting = self.ask("a")
        self.assertNoResult(waiting)
        self.clock.advance(WAITING_SECONDS)
        self.successResultOf(waiting).end()
        first.end()
        self.assertEqual([self.ask(each).called for each in "xyz"], [True, True, False])

    def test_cancelled(self) -> None:
        """A client that leaves gives its turn up."""
        turn = self.successResultOf(self.ask("a"))
        gone, next_one = self.ask("a"), self.ask("a")
        gone.addErrback(lambda _: None)
        gone.cancel()
        turn.end()
        self.assertTrue(next_one.called)
        self.assertEqual(len(self.turns), 0)
        self.successResultOf(next_one).end()
        self.assertEqual(self.clock.getDelayedCalls(), [])
