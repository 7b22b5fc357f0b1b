"""
The ranges of output that screens and plain text leave out.

Events of a journal have all of them; memory has the newest, for readers at the end of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from twisted_exec.journal.interfaces import Event

_MOST_RANGES = 1000
_AHEAD_BYTES = 256 << 10
"""An event that hides output is at most this far behind it."""

Range = tuple[int, int]
"""Offsets of the first byte and behind the last byte."""


class HiddenRanges:
    """
    The hidden ranges of a journal.

    :param end: the end of the journal's output now. Only events have the ranges of older output, and of
        earlier processes.
    """

    __slots__ = ("_first", "_newest")

    def __init__(self, end: int) -> None:
        self._newest: list[Range] = []
        self._first = end  # the list has the ranges of all output from here on

    def add(self, ranges: Sequence[Range]) -> None:
        """Hide more output; the ranges are behind all others, and in order."""
        self._newest += ranges
        if len(self._newest) > _MOST_RANGES:
            half = _MOST_RANGES // 2
            self._first = self._newest[half - 1][1]
            del self._newest[:half]

    def between(
        self, first: int, last: int, events: Callable[[int, int], Iterable[Event]]
    ) -> Sequence[Range]:
        """
        Return the ranges of which a part is between two offsets.

        :param events: returns the events between two offsets that hide output; called for output of which
            memory has not all ranges.
        """
        ranges = self._newest
        if first < self._first:
            ranges = ranges_of(events(first, last + _AHEAD_BYTES))
        if not ranges or first >= ranges[-1][1]:
            return ()
        return [each for each in ranges if each[0] < last and each[1] > first]


def event_data(ranges: Sequence[Range]) -> Sequence[Sequence[int]]:
    """Return the ``ranges`` of an event, see :class:`.Event`."""
    return [[first, last - first] for first, last in ranges]


def ranges_of(events: Iterable[Event]) -> list[Range]:
    """Return the ranges that events hide."""
    return [(first, first + size) for event in events for first, size in event.data["ranges"]]
