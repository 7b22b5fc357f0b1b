"""
A journal read as a log: what comes next, and how it looks.  Without I/O.

A *line* ends with a newline, as in any log.  The carriage return that a terminal or a serial line puts
before it, and every other byte, is given as it was printed: a lone carriage return, with which a
boot loader redraws its countdown, ends no line.  Before each line goes, when that is wanted, the
time at which its first byte was printed.

A log is read from what the journal still keeps.  Who reads more slowly than the line prints
finds, where bytes are gone, a line that says how many; the line itself never waits for readers of its log.
"""

from __future__ import annotations

from twisted_exec.api.logs import LogOptions
from twisted_exec.api.moments import stamp

from .journal import Journal

_READ_BYTES = 32 << 10
# A line of one byte becomes 32 with its time.
_STAMPED_BYTES = 4 << 10
_NEWLINE = b"\n"


class LogReader:
    """One reader's way through a journal."""

    def __init__(self, journal: Journal, options: LogOptions) -> None:
        self._journal, self._options = journal, options
        self._offset = _first(journal, options)
        self._end = None if options.follow else journal.end
        self._left = options.limit_bytes
        self._begins_line = True
        self._stamp = (0, b"")

    @property
    def over(self) -> bool:
        """Nothing more will come, now or later."""
        if self._left == 0:
            return True
        if self._end is None and not self._journal.closed:
            return False
        return self._offset >= (self._journal.end if self._end is None else self._end)

    def read(self) -> bytes:
        """What comes next, at most some 128 KiB; nothing when there is nothing yet, or it is over."""
        if self.over:
            return b""
        text = self._skip() or self._next()
        if self._left is not None:
            text = text[: self._left]
            self._left -= len(text)
        return text

    def _skip(self) -> bytes:
        """The mark for what is not kept any more."""
        start = self._journal.start if self._end is None else min(self._journal.start, self._end)
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
        """With the time before each line; ``data`` is what is at the offset."""
        parts, at = [], 0
        while at < len(data):
            if at or self._begins_line:
                parts.append(self._time(at))
            behind = data.find(_NEWLINE, at) + 1 or len(data)
            parts.append(data[at:behind])
            at = behind
        return b"".join(parts)

    def _time(self, ahead: int = 0) -> bytes:
        moment = self._journal.time_at(self._offset + ahead)
        if self._stamp[0] != moment or not self._stamp[1]:
            self._stamp = moment, stamp(moment).encode("ascii") + b" "
        return self._stamp[1]


def _first(journal: Journal, options: LogOptions) -> int:
    """
    Where to begin: with the last lines, and of those with what is new enough.

    Both rules are the kubelet's (``pkg/kubelet/kuberuntime/logs``): the tail is of the whole log.
    """
    first = journal.start
    if options.tail_lines is not None:
        first = journal.last_lines(options.tail_lines)
    since = options.since(journal.now())
    if since is not None:
        first = max(first, journal.printed_since(since))
    return first
