"""Tests for :mod:`twisted_exec.journal.hidden`."""

from __future__ import annotations

from collections.abc import Iterable

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.journal.hidden import HiddenRanges, event_data, ranges_of
from twisted_exec.journal.interfaces import Event, EventKind


class HiddenRangesTests(SynchronousTestCase):
    """Ranges of a journal that had 100 bytes when the process began."""

    def setUp(self) -> None:
        self.ranges = HiddenRanges(100)
        self.stored: list[Event] = []
        self.reads: list[tuple[int, int]] = []

    def events(self, first: int, last: int) -> Iterable[Event]:
        self.reads.append((first, last))
        return self.stored

    def hide(self, *ranges: tuple[int, int]) -> None:
        self.ranges.add(ranges)
        self.stored.append(
            Event(ranges[-1][1], 0, EventKind.HIDDEN, {"ranges": event_data(ranges)})
        )

    def between(self, first: int, last: int) -> list[tuple[int, int]]:
        return list(self.ranges.between(first, last, self.events))

    def test_in_memory(self) -> None:
        """Memory has the ranges of new output; a range counts if a part of it is asked for."""
        self.hide((102, 107), (109, 110))
        self.assertEqual(self.between(100, 200), [(102, 107), (109, 110)])
        self.assertEqual(self.between(106, 109), [(102, 107)])
        self.assertEqual(self.between(107, 109), [])
        self.assertEqual(self.between(110, 200), [])
        self.assertEqual(self.reads, [])

    def test_of_earlier_processes(self) -> None:
        """Events have the ranges of older output; an event may be far behind its ranges."""
        self.stored.append(Event(90, 0, EventKind.HIDDEN, {"ranges": [[10, 5], [80, 2]]}))
        self.hide((102, 107))
        self.assertEqual(self.between(12, 81), [(10, 15), (80, 82)])
        ((first, last),) = self.reads
        self.assertEqual((first, last > 81), (12, True))

    def test_many(self) -> None:
        """Memory has the newest of very many ranges, and events the others."""
        for first in range(100, 100 + 4 * 1500, 4):
            self.hide((first, first + 1))
        self.assertEqual(self.between(6096, 7000), [(6096, 6097)])
        self.assertEqual(self.reads, [])
        self.assertEqual(self.between(100, 106), [(100, 101), (104, 105)])
        self.assertEqual(len(self.reads), 1)

    def test_event(self) -> None:
        """An event has pairs of an offset and a number of bytes."""
        ranges = [(2, 7), (9, 10)]
        self.assertEqual(event_data(ranges), [[2, 5], [9, 1]])
        event = Event(10, 0, EventKind.HIDDEN, {"ranges": event_data(ranges)})
        self.assertEqual(ranges_of([event]), ranges)
