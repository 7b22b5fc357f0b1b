"""Tests for :mod:`twisted_exec.api.conditions`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.conditions import (
    CONSOLE_IN_USE,
    MAX_MESSAGE,
    console_in_use,
    is_powered_off,
    unplaced,
    with_conditions,
    writers_of,
)


class WithConditionsTests(SynchronousTestCase):
    """Tests for :func:`with_conditions`."""

    def test_times(self) -> None:
        """A transition time changes only with the status; other conditions stay unchanged."""
        other = {"type": "Other", "status": "True"}
        first = with_conditions([other], {"Ready": ("True", "Good", "")}, "t1")
        again = with_conditions(first, {"Ready": ("True", "Better", "so")}, "t2")
        bad = with_conditions(again, {"Ready": ("False", "Bad", "")}, "t3")
        self.assertEqual([each[0] for each in (first, again, bad)], [other] * 3)
        told = [(each[1]["reason"], each[1]["lastTransitionTime"]) for each in (first, again, bad)]
        self.assertEqual(told, [("Good", "t1"), ("Better", "t1"), ("Bad", "t3")])

    def test_same(self) -> None:
        """Setting the same condition again changes nothing, not even its time."""
        known = with_conditions([], {"Ready": ("True", "Good", "fine")}, "t1", 3)
        self.assertEqual(
            with_conditions(known, {"Ready": ("True", "Good", "fine")}, "t2", 3), known
        )
        self.assertEqual(known[0]["observedGeneration"], 3)

    def test_words(self) -> None:
        """A message is printable and of bounded length, because users' terminals show it."""
        (made,) = with_conditions([], {"Ready": ("False", "Bad", "a\nb\x1b[2J" + "x" * 5000)}, "t")
        self.assertTrue(made["message"].isprintable())
        self.assertEqual(len(made["message"]), MAX_MESSAGE)


class UnplacedTests(SynchronousTestCase):
    """Tests for :func:`unplaced`."""

    def test_reason(self) -> None:
        """The message has the scheduler's reason, if there is one already."""
        machine = {"metadata": {"name": "vm"}}
        told = 'machine "vm" has no machine pool yet'
        self.assertEqual(unplaced(machine, "machine", "machine pool"), told)
        conditions = with_conditions([], {"Ready": ("False", "OutOfCapacity", "no room")}, "t")
        waiting = {**machine, "status": {"conditions": conditions}}
        told += ": OutOfCapacity: no room"
        self.assertEqual(unplaced(waiting, "machine", "machine pool"), told)


class PoweredOffTests(SynchronousTestCase):
    """Tests for :func:`is_powered_off`."""

    def is_off(self, power: str, state: str, ready: str) -> bool:
        conditions = with_conditions([], {"Ready": (ready, "R", "why")}, "t")
        status = {"state": state, "conditions": conditions}
        return is_powered_off({"spec": {"power": power}, "status": status})

    def test_cases(self) -> None:
        """A machine that is to be off is off, unless it runs still and its condition says why."""
        for power, state, ready, is_off in (
            ("On", "Running", "True", False),
            ("On", "Shutdown", "False", False),
            ("Off", "Shutdown", "False", True),
            ("Off", "Running", "True", True),  # its status is older than its spec
            ("Off", "Running", "False", False),
            ("Off", "Running", "Unknown", False),
        ):
            with self.subTest(power=power, state=state, ready=ready):
                self.assertEqual(self.is_off(power, state, ready), is_off)
        self.assertTrue(is_powered_off({"spec": {"power": "Off"}}))
        self.assertFalse(is_powered_off({}))


class ConsoleInUseTests(SynchronousTestCase):
    """Tests for :func:`console_in_use` and :func:`writers_of`."""

    def read(self, writers: list[str]) -> frozenset[str] | None:
        conditions = with_conditions([], {CONSOLE_IN_USE: console_in_use(writers)}, "t")
        return writers_of({"status": {"conditions": conditions}})

    def test_read(self) -> None:
        """The API server reads the writers that the runtime has written."""
        for writers in ([], ["a"], ["a", "b"], ["x" * 64] * 12):
            self.assertEqual(self.read(writers), frozenset(writers))

    def test_unknown(self) -> None:
        """Without the condition or its reason, or with too many writers for one message, they are unknown."""
        self.assertIsNone(writers_of({}))
        self.assertIsNone(self.read([f"s-{number}" for number in range(13)]))
        _, _, message = console_in_use(["s"])
        other = with_conditions([], {CONSOLE_IN_USE: ("True", "OfAnotherRuntime", message)}, "t")
        self.assertIsNone(writers_of({"status": {"conditions": other}}))
