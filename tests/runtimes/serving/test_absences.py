"""Tests for :mod:`twisted_exec.runtimes.serving.absences`."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.serving.absences import MOST_OF_USER, NOT_BACK, TOO_MANY, Absences


class Absent:
    """A session that waits."""

    def __init__(self, user: str = "ann") -> None:
        self.user = user
        self.reasons: list[str] = []

    def give_up(self, reason: str) -> None:
        self.reasons.append(reason)


class AbsenceTests(SynchronousTestCase):
    """Sessions that wait for their users."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.absences = Absences(self.clock, 60, most=100)

    def add(self, user: str = "ann") -> Absent:
        session = Absent(user)
        self.absences.add(session)
        return session

    def test_time(self) -> None:
        """Each waits for its time; one timer serves all."""
        first = self.add()
        self.clock.advance(20)
        second = self.add()
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(39.9)
        self.assertEqual(first.reasons, [])
        self.clock.advance(0.2)
        self.assertEqual((first.reasons, second.reasons), ([NOT_BACK], []))
        self.clock.advance(20)
        self.assertEqual((second.reasons, len(self.absences)), ([NOT_BACK], 0))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_back(self) -> None:
        """One that is removed does not end; without any there is no timer."""
        first, second = self.add(), self.add("bob")
        self.absences.remove(first)
        self.absences.remove(first)
        self.assertEqual(list(self.absences.of_user("ann")), [])
        self.assertEqual(list(self.absences.of_user("bob")), [second])
        self.absences.remove(second)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.clock.advance(100)
        self.assertEqual(first.reasons, [])

    def test_again(self) -> None:
        """A session that is lost again waits for the whole time again."""
        session = self.add()
        self.clock.advance(50)
        self.absences.remove(session)
        self.absences.add(session)
        self.clock.advance(59)
        self.assertEqual(session.reasons, [])
        self.clock.advance(1)
        self.assertEqual(session.reasons, [NOT_BACK])

    def test_many_consoles(self) -> None:
        """A user of hundreds of consoles loses none of them when a hop is replaced."""
        absences = Absences(self.clock, 60)
        sessions = [Absent() for _ in range(500)]
        for each in sessions:
            absences.add(each)
        self.assertEqual([each for each in sessions if each.reasons], [])
        absences.close("it stops")

    def test_limit_of_user(self) -> None:
        """Of too many sessions of one user, the one that has waited longest ends."""
        self.absences = Absences(self.clock, 60)
        other = self.add("bob")
        sessions = [self.add() for _ in range(MOST_OF_USER + 2)]
        ended = [each for each in sessions if each.reasons]
        self.assertEqual((ended, ended[0].reasons), (sessions[:2], [TOO_MANY]))
        self.assertEqual(other.reasons, [])

    def test_limit(self) -> None:
        """So does the one that has waited longest of too many in all."""
        sessions = [self.add(f"user {number}") for number in range(103)]
        self.assertEqual([each for each in sessions if each.reasons], sessions[:3])
        self.assertEqual(len(self.absences), 100)

    def test_many_at_once(self) -> None:
        """Of many that end at the same time, each turn of the reactor ends some."""
        turns: list[int] = []
        call_later = self.clock.callLater

        def later(seconds: float, function: Any) -> Any:
            return call_later(seconds, lambda: (function(), turns.append(len(self.absences))))

        self.clock.callLater = later  # type: ignore[method-assign, assignment]
        for number in range(100):
            self.add(f"user {number}")
        self.clock.advance(60)
        self.assertEqual(turns, [50, 0])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_close(self) -> None:
        """After the stop nothing waits."""
        first = self.add()
        self.absences.close("it stops")
        second = self.add()
        self.assertEqual((first.reasons, second.reasons), (["it stops"], ["it stops"]))
        self.assertEqual(self.clock.getDelayedCalls(), [])
