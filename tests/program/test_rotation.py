"""Tests for :mod:`twisted_exec.program.rotation`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.program.rotation import Rotation


class RotationTests(SynchronousTestCase):
    """The order of users."""

    def setUp(self) -> None:
        self.rotation: Rotation[str] = Rotation()

    def add(self, *items: str) -> None:
        """Add items that begin with their users' names."""
        for each in items:
            self.rotation.add(each[0], each)

    def pop(self, count: int) -> str:
        return " ".join(self.rotation.pop() for _ in range(count))

    def test_in_turn(self) -> None:
        """Users take turns, whatever each of them asks for, and each gets what it asked for in order."""
        self.add("a1", "a2", "a3", "a4", "b1", "b2", "c1")
        self.assertEqual(self.pop(7), "a1 b1 c1 a2 b2 a3 a4")

    def test_quiet_user(self) -> None:
        """A user who calls seldom waits for one turn, however many users wait."""
        crowd = [chr(0x4E00 + number) for number in range(500)]
        self.add(*crowd)
        self.pop(500)
        self.add(*crowd)
        self.pop(100)
        self.add("q1")
        self.assertIn("q1", self.pop(2))

    def test_guest_once(self) -> None:
        """A user who asks for one thing after the other does so once in a round, the others first."""
        self.add("a1", "b1", "c1", "a2", "b2", "c2")
        self.pop(3)
        self.add("q1")
        self.assertEqual(self.pop(1), "q1")
        self.add("q2", "q3")
        self.assertEqual(self.pop(4), "a2 b2 c2 q2")

    def test_stream_of_names(self) -> None:
        """A user who waits has a turn in each round, however many new names come."""
        self.add("a1", "b1", "a2", "b2")
        self.pop(2)
        served = []
        for number in range(0x4E00, 0x4E00 + 6):
            self.add(chr(number))
            served.append(self.rotation.pop())
        self.assertEqual(served[1], "a2")
        self.assertEqual(served[3], "b2")

    def test_removed(self) -> None:
        """What is removed has no turn."""
        self.add("a1", "a2", "b1")
        self.rotation.remove("a", "a1")
        self.assertEqual(len(self.rotation), 2)
        self.rotation.remove("b", "b1")
        self.assertEqual(self.pop(1), "a2")
        self.assertRaises(IndexError, self.rotation.pop)

    def test_cost(self) -> None:
        """A turn costs the same however many users and items wait."""

        def work(size: int) -> None:
            rotation: Rotation[int] = Rotation()
            for number in range(size):
                rotation.add(f"user-{number}", number)
                rotation.add("loud", size + number)
            for number in range(0, size, 2):
                rotation.remove(f"user-{number}", number)
            while rotation:
                rotation.pop()

        assert_linear(work, 2000)
