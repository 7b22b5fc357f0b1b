"""Tests for :mod:`twisted_exec.cli.fleet.positions`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.fleet.positions import Positions
from twisted_exec.wire.resume import Position

EPOCH = "0123456789abcdef"


def at(offset: int) -> Position:
    return Position(EPOCH, offset)


class PositionsTests(SynchronousTestCase):
    """Where a log continues behind what was printed."""

    def test_exact(self) -> None:
        """Each waiting byte counts."""
        positions = Positions(at(100))
        self.assertEqual(positions.settle(0), at(100))
        positions.add(10, at(110))
        positions.add(5, at(115))
        for waiting in (15, 12, 5, 3, 0):
            self.assertEqual(positions.settle(waiting), at(115 - waiting))

    def test_gap(self) -> None:
        """A piece with the notice of a gap is printed as a whole, or again as a whole."""
        positions = Positions(at(100))
        positions.add(10, at(110))
        positions.add(50, at(5000))
        positions.add(10, at(5010))
        for waiting, offset in ((65, 105), (60, 110), (59, 110), (11, 110), (10, 5000), (1, 5009)):
            positions = Positions(at(100))
            positions.add(10, at(110))
            positions.add(50, at(5000))
            positions.add(10, at(5010))
            self.assertEqual(positions.settle(waiting), at(offset))

    def test_other_epoch(self) -> None:
        """So is a piece behind which the log belongs to another journal."""
        positions = Positions(at(100))
        positions.add(7, Position("f" * 16, 107))
        self.assertEqual(positions.settle(3), at(100))
        self.assertEqual(positions.settle(0), Position("f" * 16, 107))
