"""Tests of :mod:`twisted_exec.streaming.lifecycle`."""

from __future__ import annotations

from enum import Enum

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.lifecycle import ImpossibleTransition, Living


class DoorLife(Enum):
    OPEN = "open"
    SHUT = "shut"
    GONE = "gone"


class Door(Living[DoorLife]):
    transitions = {
        DoorLife.OPEN: frozenset({DoorLife.SHUT}),
        DoorLife.SHUT: frozenset({DoorLife.OPEN, DoorLife.GONE}),
        DoorLife.GONE: frozenset(),
    }

    def __init__(self) -> None:
        self.life = DoorLife.OPEN

    def become(self, life: DoorLife) -> None:
        self._become(life)


class LivingTests(SynchronousTestCase):
    def test_follows_the_table(self) -> None:
        """An object enters a phase that may follow the present one."""
        door = Door()
        for life in (DoorLife.SHUT, DoorLife.OPEN, DoorLife.SHUT, DoorLife.GONE):
            door.become(life)
            self.assertIs(door.life, life)

    def test_other_phases_are_refused(self) -> None:
        """For any other phase the error names the object and both phases; the object stays as it is."""
        door = Door()
        error = self.assertRaises(ImpossibleTransition, door.become, DoorLife.GONE)
        self.assertEqual(str(error), "Door: gone may not follow open")
        self.assertIs(door.life, DoorLife.OPEN)
