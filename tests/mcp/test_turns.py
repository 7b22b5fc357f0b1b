"""Tests for :mod:`twisted_exec.mcp.turns`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.mcp.turns import WAITING_SECONDS, WORKING_SECONDS, CallTurns, Turn


class TurnTests(SynchronousTestCase):
    """Which call goes next."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.turns = CallTurns(self.clock, at_once=2, per_person=1)
        self.order: list[str] = []

    def ask(self, user: str, seconds: float = WORKING_SECONDS):
        turn = self.turns.next(user, seconds)
        turn.addCallback(lambda each: self.order.append(user) or each)
        return turn

    def test_quiet_user(self) -> None:
        """A user who comes after a flood goes before its rest."""
        flood = [self.ask("loud") for _ in range(100)]
        other = self.ask("other")
        quiet = self.ask("quiet")
        self.assertEqual(self.order, ["loud", "other"])
        self.successResultOf(flood[0]).end()
        self.assertEqual(len(self.order), 3)
        self.successResultOf(other).end()
        self.assertEqual(self.order[2:], ["quiet", "loud"])
        self.successResultOf(quiet).end()
        self.assertEqual(self.order[4:], [])  # the loud user has one at a time
        self.assertEqual(len(self.turns), 98)

    def test_quiet_beside_crowd(self) -> None:
        """A user who calls seldom waits for two turns, and not for those of all others who wait."""
        working: list[tuple[str, Turn]] = []

        def call(user: str) -> None:
            self.ask(user).addCallback(lambda turn: working.append((user, turn)))

        for number in range(500):
            call(f"loud-{number}")
        for _ in range(700):
            user, turn = working.pop(0)
            turn.end()
            call(user)
        call("quiet")
        for _ in range(2):
            working.pop(0)[1].end()
        self.assertIn("quiet", self.order)

    def test_rounds(self) -> None:
        """Users who wait take turns, whatever each asks for."""
        begun = {user: [self.ask(user) for _ in range(3)] for user in "abc"}
        for _ in range(3):
            for user in "abc":
                self.successResultOf(begun[user].pop(0)).end()
        self.assertEqual("".join(self.order), "abcabcabc")

    def test_waiting_call(self) -> None:
        """A call that waits for a machine holds nobody up, and its end is no second one."""
        first = self.successResultOf(self.ask("a", WAITING_SECONDS))
        waiting = self.ask("a")
        self.clock.advance(WAITING_SECONDS / 2)
        self.assertNoResult(waiting)
        self.clock.advance(WAITING_SECONDS / 2)
        self.successResultOf(waiting).end()
        first.end()
        self.assertEqual([self.ask(each).called for each in "xyz"], [True, True, False])

    def test_machine_that_hangs(self) -> None:
        """Calls that do not end hold others up for a limited time."""
        for user in "ab":
            self.ask(user)
        quiet = self.ask("quiet")
        self.assertNoResult(quiet)
        self.clock.advance(WORKING_SECONDS)
        self.successResultOf(quiet)

    def test_cancelled(self) -> None:
        """A client that leaves gives its turn up."""
        turn = self.successResultOf(self.ask("a"))
        self.successResultOf(self.ask("b"))
        waiting, gone, other = self.ask("c"), self.ask("a"), self.ask("a")
        for each in (gone, waiting):
            each.addErrback(lambda _: None)
            each.cancel()
        turn.end()
        self.assertTrue(other.called)
        self.assertEqual(len(self.turns), 0)

    def test_no_rest(self) -> None:
        """Turns that have ended leave nothing behind, in the reactor or of people."""
        for turn in [self.ask(each) for each in ("a", "b", "a", "c")]:
            self.successResultOf(turn).end()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual((len(self.turns), self.turns._people), (0, {}))

    def test_cost(self) -> None:
        """The cost of a turn does not grow with the people who wait."""

        def work(size: int) -> None:
            turns = CallTurns(Clock(), at_once=1)
            waiting = [turns.next(f"user-{number}") for number in range(size)]
            for each in waiting:
                each.addCallback(lambda turn: turn.end())

        assert_linear(work, 400)
