"""A batch of output and events that is written from the memory of a journal to its files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from twisted_exec.journal.files import JournalFiles
from twisted_exec.journal.interfaces import Event
from twisted_exec.journal.tail import Tail

_BATCH_BYTES, _PIECE_BYTES = 64 << 10, 32 << 10


class WriteBatch:
    """
    Output and events for the files of a journal, at most about 64 KiB of output.

    :param is_again: the disk has failed before: test it before anything is written.
    :ivar files: the files to write to.
    :ivar lost: bytes of the gap before the output.
    :ivar size: bytes of the output.
    :ivar is_all: the batch has everything that the files lack.
    :ivar recorded: events that the files have, after :meth:`run`.
    :ivar error: the error that ended :meth:`run`, if any.
    """

    def __init__(
        self, files: JournalFiles, tail: Tail, events: Iterable[Event], *, is_again: bool
    ) -> None:
        self.files, self._is_again = files, is_again
        self._begin = max(files.end, tail.start)
        self.lost = self._begin - files.end
        self.size, self.is_all = 0, False
        self.recorded: list[Event] = []
        self.error: OSError | None = None
        self._entries: list[tuple[int, bytes] | Event] = []
        self._take(tail, deque(events))

    def _take(self, tail: Tail, events: deque[Event]) -> None:
        for first, last, time_ns in tail.runs(self._begin):
            while first < last:
                while events and events[0].offset <= first:
                    self._entries.append(events.popleft())
                limit = min(last, events[0].offset) - first if events else last - first
                data = tail.read(first, min(limit, _PIECE_BYTES))
                self._entries.append((time_ns, data))
                first += len(data)
                self.size += len(data)
                if self.size >= _BATCH_BYTES:
                    return
        self._entries += events
        self.is_all = True

    def run(self) -> None:
        """Write the batch to the files, in the thread for the disk; keep an error in :attr:`error`."""
        files = self.files
        try:
            if self._is_again:
                files.begin()
                files.open.probe()
            if self.lost:
                files.skip(self._begin, self.lost)
            for entry in self._entries:
                if isinstance(entry, Event):
                    files.record(entry)
                    self.recorded.append(entry)
                else:
                    time_ns, data = entry
                    files.append(data, max(time_ns, files.open.last_time))
            files.require_name()
        except OSError as error:
            self.error = error
