"""The position of one sink in one journal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from twisted_exec.journal.interfaces import ICursor, IFollowedJournal
from twisted_exec.shipping.interfaces import Labels


class ShippedJournal:
    """
    One machine's journal, as one sink reads it.

    It holds that ``saved`` <= ``settling`` <= ``accepted`` <= ``read``.

    :ivar read: offset after the lines of the batch that is on its way.
    :ivar accepted: offset after the lines that the receiver has accepted.
    :ivar settling: :attr:`accepted` when the last settling began.
    :ivar saved: offset in the cursor.
    :ivar waiting_since: the time of the oldest line that is not accepted, in nanoseconds since the
        epoch; 0 if there is none.
    :ivar partial_end: end of the journal when text remained there, perhaps without a newline; else
        -1.
    :ivar partial_due: when that text counts as a line, by the reactor's clock.
    """

    __slots__ = (
        "_awake",
        "_cursor",
        "accepted",
        "journal",
        "labels",
        "partial_due",
        "partial_end",
        "read",
        "saved",
        "settling",
        "waiting_since",
    )

    def __init__(
        self, labels: Labels, journal: IFollowedJournal, awake: Callable[[ShippedJournal], None]
    ) -> None:
        self.labels = labels
        self.journal = journal
        self._awake = awake
        self._cursor: ICursor | None = None
        self.read = self.accepted = self.settling = self.saved = 0
        self.waiting_since = 0
        self.partial_end = -1
        self.partial_due = 0.0

    def open(self, name: str, *, newest: bool) -> None:
        """
        Load the position and watch the journal.

        :param newest: without a cursor, begin at the end instead of the oldest byte.
        """
        journal = self.journal
        self.labels = replace(self.labels, epoch=journal.epoch)
        self._cursor = journal.cursor(name)
        offset = self._cursor.load()
        if offset is None:
            offset = journal.end if newest else journal.start
            # Otherwise a later start would not know whether the sink is new.  A full disk must not
            # keep lines from being sent.
            with suppress(OSError):
                self._cursor.save(offset)
        self.read = self.accepted = self.settling = self.saved = min(offset, journal.end)
        journal.watch(self.changed)

    def close(self) -> None:
        self.journal.unwatch(self.changed)

    def changed(self) -> None:
        if not self.waiting_since:
            self.waiting_since = self.journal.now()
        self._awake(self)

    @property
    def is_complete(self) -> bool:
        """True if the machine's journal is closed, and all of its output is saved as shipped."""
        return bool(self.journal.closed) and self.saved >= self.journal.end

    def accept(self, offset: int) -> int:
        """:return: the number of bytes that are accepted now."""
        count = offset - self.accepted
        self.accepted = offset
        self._wait_since(offset)
        return count

    def rewind(self, offset: int) -> None:
        self.read = self.accepted = offset
        self.settling = min(self.settling, offset)
        if offset < self.journal.end:
            self._wait_since(max(offset, self.journal.start))

    def _wait_since(self, offset: int) -> None:
        with suppress(OSError):
            self.waiting_since = self.journal.time_at(offset) if offset < self.journal.end else 0

    def save(self) -> None:
        """Write :attr:`settling` to the cursor."""
        if self._cursor is not None and self.settling != self.saved:
            self._cursor.save(self.settling)
            self.saved = self.settling
