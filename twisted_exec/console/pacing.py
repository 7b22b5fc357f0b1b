"""The pace of a line that can be slowed down: that of its fastest viewer, or a fixed rate without viewers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from twisted.internet.interfaces import IReactorTime

from twisted_exec.console.interfaces import ILineTransport
from twisted_exec.console.output import ViewerOutput
from twisted_exec.console.rate_limit import RateLimit
from twisted_exec.journal.interfaces import IReadableJournal

UNWATCHED_BYTES_PER_SECOND = 1 << 20
"""Maximal rate of reading a paced line without viewers."""


class PacedViewer(Protocol):
    """A viewer that a line may wait for."""

    @property
    def output(self) -> ViewerOutput: ...


class Pacing:
    """Pauses and resumes the line of one console, if the line is paced."""

    def __init__(
        self,
        clock: IReactorTime,
        journal: IReadableJournal,
        viewers: Collection[PacedViewer],
        pace_bytes: int,
    ) -> None:
        self._journal, self._viewers, self._pace_bytes = journal, viewers, pace_bytes
        self._line: ILineTransport | None = None
        self._is_paused = False
        self._unwatched = RateLimit(clock, self.follow, self.follow, UNWATCHED_BYTES_PER_SECOND)

    def use(self, line: ILineTransport) -> None:
        self._line = line

    def stop(self) -> None:
        self._line, self._is_paused = None, False
        self._unwatched.stop()

    def printed(self, size: int) -> None:
        """Count output against the limit of a line without viewers; :meth:`follow` follows."""
        if not self._viewers:
            self._unwatched.charge(size)

    def follow(self) -> None:
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
        # A viewer that has just skipped is at the end without having read anything.
        reading = [each for each in self._viewers if not each.output.skipped] or self._viewers
        behind = self._journal.end - max(each.output.offset for each in reading)
        if self._is_paused:
            return bool(behind > self._pace_bytes // 2)
        return bool(behind >= self._pace_bytes)
