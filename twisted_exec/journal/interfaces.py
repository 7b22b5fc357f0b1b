"""
The journal of a console, as viewers, logs, alerts and shippers read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from zope.interface import Attribute, Interface


class EventKind(StrEnum):
    """The kinds of events; a reader ignores kinds that it does not know."""

    BOOT = "boot"
    SIZE = "size"
    GAP = "gap"
    JOIN = "join"
    LEAVE = "leave"
    ROLE = "role"
    INPUT = "input"


@dataclass(frozen=True)
class Event:
    """
    An entry of a journal that is not output.

    The keys of ``data`` in a machine's journal, by kind:

    * ``boot``: ``number`` and ``reason``, one word; ``reset_bytes``, the number of bytes behind the event that reset
      the terminal, if any
    * ``size``: ``rows`` and ``columns``
    * ``gap``: ``bytes``, the number of missing bytes, or ``None`` if it is unknown; ``end``, the
      offset after the gap
    * ``join``: ``session``, ``user``, ``role``
    * ``leave``: ``session``, ``user``
    * ``role``: ``session``, ``user``, ``role``
    * ``input``, only while a recording needs it: ``session``; ``data``, the bytes in Base64; and
      ``echoed``, whether the bytes are only input that the machine has echoed

    :param offset: the offset of the first byte that was printed after the event; of a gap, the
        offset at which it begins.
    :param time_ns: nanoseconds since the epoch.
    :param kind: an :class:`EventKind`.
    """

    offset: int
    time_ns: int
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Boot:
    """
    One start of the machine.

    :param number: counts the boots in this journal, from 1.
    :param offset: of the first byte of output since.
    :param time_ns: nanoseconds since the epoch.
    """

    number: int
    offset: int
    time_ns: int


class ICursor(Interface):
    """The position of one reader of a journal, which survives restarts if the journal does."""

    def load() -> int | None:
        """
        Return the saved offset; ``None`` if none can be read, or it is of another epoch.

        :raises Unanswered: the disk does not answer.
        """

    def save(offset: int) -> None:
        """
        Store an offset. After a power cut an older offset may be loaded.

        :raises OSError: the disk is full or read-only, or does not answer; the older offset may
            remain.
        """


class IReadableJournal(Interface):
    """
    The output of one console, for its readers.

    Each byte has an offset (64 bits) that is never used for another byte of the same epoch.

    These methods raise :class:`OSError` if files cannot be read at present: :meth:`last_bytes`,
    :meth:`last_lines`, :meth:`line_start`, :meth:`time_at`, :meth:`printed_since`, :meth:`boots` and
    :meth:`events`. The error is :class:`.Unanswered` if the disk does not answer; the watchers are called when it does.
    """

    start = Attribute("Offset of the oldest retained byte (int).")
    end = Attribute("Offset of the next byte (int).")
    epoch = Attribute(
        "16 hexadecimal digits (str); another journal of the same machine has another epoch."
    )
    closed = Attribute("True if there will be no more output: the machine was deleted.")

    def now() -> int:
        """Return the time of day, in nanoseconds since the epoch."""

    def watch(changed: Callable[[], None]) -> None:
        """Call ``changed`` after :meth:`IWritableJournal.close`, and whenever readers may get more."""

    def unwatch(changed: Callable[[], None]) -> None:
        """Undo :meth:`watch`."""

    def read(offset: int, limit: int) -> bytes:
        """
        Return output from ``offset``: 1 to ``limit`` bytes, of one boot as far as the boots are
        known. Return nothing at the end, at a gap, and if files cannot be read at present.

        :raises ValueError: ``offset`` is not between ``start`` and ``end``.
        """

    def next_available(offset: int) -> int:
        """
        Return the first offset from ``offset`` on whose byte can be read, as far as the journal
        knows.

        The result is between ``start`` and ``end``. Reading may discover damage: call this again
        when :meth:`read` returns nothing before the end.
        """

    def last_bytes(count: int, end: int | None = None) -> int:
        """
        Return the offset of the last ``count`` bytes before ``end``, or of the oldest byte if there
        are fewer.

        The missing bytes of a gap do not count.

        :param end: an offset from ``start`` on; by default the end of the journal.
        """

    def last_lines(count: int, end: int | None = None) -> int:
        """
        Return the offset of the last ``count`` lines before ``end``, or ``start`` if there are
        fewer.

        Only newlines end lines here, so there may be more lines in the sense of
        :data:`~twisted_exec.wire.escape_sequences.LINES`.  Text after the last newline counts as a line.

        :param end: an offset from ``start`` on; by default the end of the journal.
        """

    def line_start(offset: int) -> int:
        """
        Return the beginning of the line around ``offset``, or ``start`` if that was discarded.
        """

    def time_at(offset: int) -> int:
        """
        Return when the byte at ``offset`` was printed, in nanoseconds since the epoch; 0 if the
        journal is empty.

        Times never decrease with the offset.
        """

    def printed_since(moment: int) -> int:
        """
        Return the start of the first line with output at ``moment`` or later; ``end`` if there is
        none.

        :param moment: nanoseconds since the epoch.
        """

    def boots() -> Sequence[Boot]:
        """Return the boots that are known, the newest last; the first may be before ``start``."""

    def events(first: int, last: int, kind: EventKind | None = None) -> Iterator[Event]:
        """
        Iterate over the events from offset ``first`` to ``last``, both included, oldest first.
        """


class IWritableJournal(Interface):
    """The output of one console, for the part that records it."""

    end = Attribute("Offset of the next byte (int).")
    epoch = Attribute("As :attr:`IReadableJournal.epoch`.")
    failure = Attribute("Why output is not written to the disk at present (str); empty if it is.")

    def append(data: bytes) -> None:
        """
        Add output, then call the watchers; drop it if the journal is closed. Never fails, but may
        wait a moment for a slow disk.

        :param data: at least 1 byte.
        """

    def close() -> None:
        """Mark the journal as complete."""

    def discard_before(offset: int, slowest: int | None = None) -> None:
        """
        Allow the journal to free memory for output before ``offset``; a disk retains it.

        :param slowest: the offset that the slowest viewer reads next; output from there on stays in
            memory, within limits.
        """

    def booted(reason: str) -> None:
        """
        Record that the machine starts now.

        The output of the new boot begins with what resets the modes of a terminal that the programs
        before have set, such as the screen of an editor.

        :param reason: one word, such as ``Started``.
        """

    def lost() -> None:
        """
        Go on behind a gap of unknown size, which each reader sees; do nothing right behind one.

        The files have the gap when this returns. If the disk fails, it is only a mark, as of
        :meth:`missed`.
        """

    def missed() -> None:
        """
        Record that an unknown amount of output is missing here; the offsets continue without a gap.
        """

    def resized(rows: int, columns: int) -> None:
        """Record a new size of the terminal."""

    def joined(session: str, user: str, role: str) -> None:
        """
        Record a new viewer.

        :param role: ``writer`` or ``observer``.
        """

    def left(session: str, user: str) -> None:
        """Record that a viewer left."""

    def role_changed(session: str, user: str, role: str) -> None:
        """Record that a viewer may write from now on, or no longer."""

    def typed(session: str, data: bytes, *, echoed: bool) -> bool:
        """
        Record input of a viewer; return whether that worked.

        :param data: at most 4 KiB.
        :param echoed: the machine has echoed it; else it is recorded before the machine gets it.
        """


class IFollowedJournal(IReadableJournal):
    """A journal whose readers save how far they have read."""

    def cursor(name: str) -> ICursor:
        """
        Return the cursor of a reader.

        :param name: lower-case letters, digits and hyphens; at most 63.
        :raises ValueError: ``name`` is not valid.
        """


class IJournal(IFollowedJournal, IWritableJournal):
    """
    The whole journal, for its owner: a console writes it, and reads it to its viewers.

    All others hold one of the interfaces that it extends.
    """


def of_kind(events: Iterable[Event], kind: EventKind | None) -> list[Event]:
    return [each for each in events if kind in (None, each.kind)]


def missing_bytes(journal: IReadableJournal, first: int, last: int) -> int | None:
    """
    Return how many bytes of gaps are between two offsets of a journal; ``None`` if unknown.
    """
    gaps = [each for each in journal.events(first, last, EventKind.GAP) if each.data["end"] <= last]
    if not gaps and journal.next_available(first) > first >= journal.start:
        # The offset is within a gap, which begins before it.
        earlier = journal.events(journal.start, first, EventKind.GAP)
        gaps = [each for each in earlier if first < each.data["end"] <= last]
    if any(each.data["bytes"] is None for each in gaps):
        return None
    missing: int = sum(each.data["end"] - max(first, each.offset) for each in gaps)
    return missing


def recent_offset(journal: IReadableJournal, count: int) -> int:
    """
    Return :meth:`IReadableJournal.last_bytes`; while the disk does not answer, as if there were no
    gaps.
    """
    try:
        return int(journal.last_bytes(count))
    except OSError:
        return int(journal.next_available(journal.end - count))
