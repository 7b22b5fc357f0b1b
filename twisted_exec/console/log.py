"""
Journals as logs, sans I/O.

A *line* ends with a newline.  All bytes are passed on unchanged, including the carriage return that
a terminal or serial line sends before the newline; a lone carriage return, with which boot loaders
redraw their countdown, ends no line.  With timestamps, each line is preceded by the time of its
first byte.

A log contains what the journal has retained.  A reader that is slower than the output gets a line
with the number of missing bytes; the console never waits for readers of its log.
"""

from __future__ import annotations

from twisted_exec.api.logs import LogOptions
from twisted_exec.api.times import stamp
from twisted_exec.journal.interfaces import IJournal

_READ_BYTES = 32 << 10
# With its timestamp, a line of 1 byte becomes 32 bytes.
_STAMPED_BYTES = 4 << 10
_NEWLINE = b"\n"


class LogReader:
    """One reader's position in a journal, and the format of what it reads."""

    def __init__(self, journal: IJournal, options: LogOptions) -> None:
        self._journal, self._options = journal, options
        self._offset = _first(journal, options)
        self._end = None if options.follow else journal.end
        self._remaining = options.limit_bytes
        self._begins_line = True
        self._stamp = (0, b"")

    @property
    def over(self) -> bool:
        """True if the log is complete."""
        if self._remaining == 0:
            return True
        if self._end is None and not self._journal.closed:
            return False
        end: int = self._journal.end if self._end is None else self._end
        return self._offset >= end

    def read(self) -> bytes:
        """Return the next piece, at most about 128 KiB; empty if there is none yet or :attr:`over`."""
        if self.over:
            return b""
        text = self._skip() or self._next()
        if self._remaining is not None:
            text = text[: self._remaining]
            self._remaining -= len(text)
        return text

    def _skip(self) -> bytes:
        """Return a notice for output that the journal has discarded, or nothing."""
        start = self._journal.next_available(self._offset)
        if self._end is not None:
            start = min(start, self._end)
        missed = start - self._offset
        if missed <= 0:
            return b""
        self._offset = start
        before = b"" if self._begins_line else b"\r\n"
        self._begins_line = True
        mark = b"[twisted-exec: %d bytes skipped]\r\n" % missed
        return before + (self._time() if self._options.timestamps else b"") + mark

    def _next(self) -> bytes:
        limit = _STAMPED_BYTES if self._options.timestamps else _READ_BYTES
        if self._end is not None:
            limit = min(limit, self._end - self._offset)
        data = self._journal.read(self._offset, limit)
        text = self._stamped(data) if self._options.timestamps else data
        self._offset += len(data)
        if data:
            self._begins_line = data.endswith(_NEWLINE)
        return text

    def _stamped(self, data: bytes) -> bytes:
        """Insert times before the lines of ``data``, which is the output at the current offset."""
        parts, at = [], 0
        while at < len(data):
            if at or self._begins_line:
                parts.append(self._time(at))
            line_end = data.find(_NEWLINE, at) + 1 or len(data)
            parts.append(data[at:line_end])
            at = line_end
        return b"".join(parts)

    def _time(self, ahead: int = 0) -> bytes:
        moment = self._journal.time_at(self._offset + ahead)
        if self._stamp[0] != moment or not self._stamp[1]:
            self._stamp = moment, stamp(moment).encode("ascii") + b" "
        return self._stamp[1]


def _first(journal: IJournal, options: LogOptions) -> int:
    """
    Return the first offset by ``tail_lines`` and ``since``.

    The tail is that of the whole log, and ``since`` applies to it, as in the kubelet
    (``pkg/kubelet/kuberuntime/logs``).
    """
    first: int = journal.start
    if options.tail_lines is not None:
        first = journal.last_lines(options.tail_lines)
    since = options.since(journal.now())
    if since is not None:
        first = max(first, journal.printed_since(since))
    return first
