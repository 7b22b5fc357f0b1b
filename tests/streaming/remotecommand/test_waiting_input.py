"""Tests for :mod:`twisted_exec.streaming.remotecommand.waiting_input`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.interfaces import Break, Role
from twisted_exec.streaming.remotecommand.waiting_input import WaitingInput


class WaitingInputTests(SynchronousTestCase):
    """Tests for :class:`WaitingInput`."""

    def setUp(self) -> None:
        self.waiting = WaitingInput()

    def test_order(self) -> None:
        """Items come in their order, and cost nothing once they are taken."""
        items = (b"b", Break(), Role.WRITER, b"c", None)
        for item in items:
            self.waiting.put(item)
        self.assertGreater(self.waiting.cost, len(items))
        self.assertEqual(tuple(self.waiting.take(0) for _ in items), items)
        self.assertEqual((len(self.waiting), self.waiting.cost), (0, 0))

    def test_drop(self) -> None:
        """What waits is dropped, except for the end of input; each byte and each request is a piece."""
        for item in (b"x" * 100, Role.WRITER, None):
            self.waiting.put(item)
        self.assertEqual(self.waiting.drop(), 101)
        self.assertEqual(self.waiting.drop(), 0)
        self.assertIsNone(self.waiting.take(0))
        self.assertEqual((len(self.waiting), self.waiting.cost), (0, 0))

    def test_parts(self) -> None:
        """Long input is taken in parts of a limited size."""
        for item in (b"abcdefgh", None):
            self.waiting.put(item)
        self.assertEqual([self.waiting.take(3) for _ in range(2)], [b"abc", b"def"])
        self.assertEqual(len(self.waiting), 2)
        self.assertEqual([self.waiting.take(0) for _ in range(2)], [b"gh", None])
        self.assertEqual(self.waiting.cost, 0)

    def test_drop_the_rest(self) -> None:
        """Only what is left of an item counts as dropped."""
        self.waiting.put(b"abcdefgh")
        self.waiting.take(3)
        self.assertEqual(self.waiting.drop(), 5)
        self.waiting.put(b"ijk")
        self.assertEqual((self.waiting.take(3), self.waiting.cost), (b"ijk", 0))
