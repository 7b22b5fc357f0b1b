"""
The pace of a line that can be paused, such as a pty.

The fastest viewer sets the pace, so a sole viewer loses nothing.  A line without viewers is read at a
limited rate, because a process that prints without end would take half of a processor.
"""

from __future__ import annotations

from collections.abc import Collection

from twisted.internet.interfaces import IReactorTime

from twisted_exec.journal.interfaces import IJournal

from .interfaces import ILineTransport
from .rate_limit import ReadRateLimit
from .viewer import Viewer

UNWATCHED_BYTES_PER_SECOND = 1 << 20
"""Rate of reading a line without viewers."""


class Pacing:
    """
    Pauses and resumes the line of one console.

    :param viewers: those of the console; the collection changes.
    :param pace_bytes: the line is paused while its fastest viewer is this far behind.
    """

    def __init__(
        self,
        clock: IReactorTime,
        journal: IJournal,
        viewers: Collection[Viewer],
        pace_bytes: int,
    ) -> None:
        self._journal, self._viewers, self._pace_bytes = journal, viewers, pace_bytes
        self._line: ILineTransport | None = None
        self._is_paused = False
        self._unwatched = ReadRateLimit(clock, self.follow, self.follow, UNWATCHED_BYTES_PER_SECOND)

    def use(self, line: ILineTransport) -> None:
        """Set the line, which is not paused; :meth:`follow` follows."""
        self._line = line

    def stop(self) -> None:
        """Forget the line.  Repeated calls do nothing."""
        self._line, self._is_paused = None, False
        self._unwatched.stop()

    def printed(self, size: int) -> None:
        """Count output against the limit of a line without viewers; :meth:`follow` follows."""
        if not self._viewers:
            self._unwatched.charge(size)

    def follow(self) -> None:
        """Pause or resume the line, after a change of the viewers or of what they have read."""
        if self._line is None:
            return
        wait = self._fastest_is_behind() if self._viewers else self._unwatched.is_paused
        if wait and not self._is_paused:
            self._is_paused = True
            self._line.pauseProducing()
        elif self._is_paused and not wait:
            self._is_paused = False
            self._line.resumeProducing()

    def _fastest_is_behind(self) -> bool:
        """Return whether even the fastest viewer is too far behind, or has not caught up again."""
        # A viewer that has just skipped is at the end without having read anything.
        reading = [each for each in self._viewers if not each.output.skipped] or self._viewers
        behind = self._journal.end - max(each.output.offset for each in reading)
        if self._is_paused:
            return bool(behind > self._pace_bytes // 2)
        return bool(behind >= self._pace_bytes)
