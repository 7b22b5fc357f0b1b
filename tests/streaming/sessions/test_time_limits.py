"""Tests for :mod:`twisted_exec.streaming.sessions.time_limits`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.interfaces import IDLE, TIME_OVER, Ending
from twisted_exec.streaming.sessions.time_limits import TimeLimits
from twisted_exec.wire.session_terms import FULL, Right, Terms

NOON = 1_800_014_400
"""2027-01-15T12:00:00Z."""


class TimeLimitsCase(SynchronousTestCase):
    """A session that has just begun, at noon."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.moved = 0.0
        self.warnings: list[str] = []
        self.endings: list[Ending] = []
        self.limits = TimeLimits(
            self.clock, self.warnings.append, self.endings.append, now=self.now
        )

    def now(self) -> float:
        return NOON + self.clock.seconds() + self.moved

    def wait(self, seconds: float) -> list[str]:
        """Let time pass; return the warnings."""
        self.clock.advance(seconds)
        warnings, self.warnings[:] = list(self.warnings), []
        return warnings


class IdleTests(TimeLimitsCase):
    """Sessions without input."""

    def test_idle(self) -> None:
        """The user is warned 60 s before the end, and the end names the policy and the time."""
        self.limits.hold_to(Terms(idle_seconds=1800, policy="default/idle"))
        self.assertEqual(self.wait(1739), [])
        self.assertEqual(
            self.wait(1),
            [
                "this session ends in 60s unless you type: ConsolePolicy default/idle allows 30m"
                " without input"
            ],
        )
        self.assertEqual((self.wait(59), self.endings), ([], []))
        self.assertEqual(self.wait(1), [])
        why = "nothing was typed: ConsolePolicy default/idle allows 30m without input"
        self.assertEqual(self.endings, [Ending(IDLE, why)])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_short(self) -> None:
        """For short times the warning is a tenth of the time before the end."""
        self.limits.hold_to(Terms(idle_seconds=100))
        self.assertEqual(self.wait(89.9), [])
        (warning,) = self.wait(0.2)
        self.assertIn("ends in 10s unless you type: the policy of this console allows", warning)
        self.wait(10)
        self.assertEqual(len(self.endings), 1)

    def test_active(self) -> None:
        """Input begins the time anew, also after the warning; a key costs no timer."""
        self.limits.hold_to(Terms(idle_seconds=100))
        (timer,) = self.clock.getDelayedCalls()
        for _ in range(50):
            self.clock.advance(1)
            self.limits.touch()
        self.assertEqual(self.clock.getDelayedCalls(), [timer])
        self.assertEqual(self.wait(89), [])
        for _ in range(3):
            self.assertEqual(len(self.wait(2)), 1)
            self.limits.touch()
            self.assertEqual(self.wait(89), [])
        self.assertEqual(self.endings, [])

    def test_changed(self) -> None:
        """A change of the terms counts from the last input; other changes do not warn again."""
        self.limits.hold_to(Terms(idle_seconds=100))
        self.assertEqual(len(self.wait(95)), 1)
        self.limits.hold_to(Terms(idle_seconds=100, right=Right.OBSERVE))
        self.assertEqual(self.wait(1), [])
        self.limits.hold_to(FULL)
        self.assertEqual((self.wait(1000), self.clock.getDelayedCalls()), ([], []))
        self.limits.hold_to(Terms(idle_seconds=100))
        self.wait(0)
        self.assertEqual(len(self.endings), 1)


class UntilTests(TimeLimitsCase):
    """Sessions that end at a point in time."""

    def test_until(self) -> None:
        """The user is warned 60 s before the end, however active, and the end names policy and time."""
        self.limits.hold_to(Terms(until=NOON + 3600, policy="default/day"))
        self.assertEqual(self.wait(3539), [])
        self.limits.touch()
        until = "ConsolePolicy default/day allows it until 2027-01-15T13:00:00Z"
        self.assertEqual(self.wait(1), [f"this session ends in 60s: {until}"])
        self.limits.touch()
        self.assertEqual((self.wait(59), self.endings), ([], []))
        self.wait(1)
        why = "ConsolePolicy default/day allows this session until 2027-01-15T13:00:00Z"
        self.assertEqual(self.endings, [Ending(TIME_OVER, why)])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_past(self) -> None:
        """A session whose time is over ends without a warning."""
        self.limits.hold_to(Terms(until=NOON - 5))
        self.assertEqual((self.wait(0), len(self.endings)), ([], 1))

    def test_both(self) -> None:
        """The limit that is reached first counts."""
        self.limits.hold_to(Terms(until=NOON + 200, idle_seconds=100))
        self.assertEqual(len(self.wait(95)), 1)
        self.limits.touch()
        self.assertIn("until 2027", "".join(self.wait(90)))
        self.limits.touch()
        self.wait(15)
        self.assertEqual([each.reason for each in self.endings], [TIME_OVER])

    def test_changed(self) -> None:
        """A later end is warned of again, and an earlier one ends the session earlier."""
        self.limits.hold_to(Terms(until=NOON + 100))
        self.assertEqual(len(self.wait(95)), 1)
        self.limits.hold_to(Terms(until=NOON + 1095))
        self.assertEqual(self.wait(939), [])
        self.assertEqual(len(self.wait(2)), 1)
        self.limits.hold_to(Terms(until=NOON + 1040))
        self.assertEqual([each.reason for each in self.endings], [])
        self.wait(4)
        self.assertEqual([each.reason for each in self.endings], [TIME_OVER])

    def test_clock_is_set(self) -> None:
        """The time of day counts: timers use another clock, and follow within a minute."""
        self.limits.hold_to(Terms(until=NOON + 36000))
        self.moved = 30000
        for _ in range(60):
            self.wait(60)
        self.moved = 0
        for _ in range(60 * 5):
            self.wait(60)
        self.assertEqual(self.endings, [])
        self.moved = 36000
        self.wait(60)
        self.assertEqual(len(self.endings), 1)

    def test_huge(self) -> None:
        """A time beyond what timers take is no problem."""
        self.limits.hold_to(Terms(until=10**12 - 1, idle_seconds=10**12 - 1))
        (timer,) = self.clock.getDelayedCalls()
        self.assertLess(timer.getTime(), 10**4)
        self.limits.stop()
        self.limits.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stopped(self) -> None:
        """After the end of the session nothing happens."""
        self.limits.hold_to(Terms(until=NOON + 100))
        self.limits.stop()
        self.limits.hold_to(Terms(until=NOON + 50))
        self.limits.touch()
        self.assertEqual((self.wait(200), self.endings), ([], []))
