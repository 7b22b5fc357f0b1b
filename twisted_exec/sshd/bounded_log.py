"""
A log that clients cannot flood.
"""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

MOST_LINES = 60
"""Lines in :data:`SECONDS`."""
SECONDS = 60.0


class BoundedLog:
    """
    Logs what clients cause.  It leaves out lines above a limit, and logs how many, with the next line.

    :cvar log: where the lines go.
    """

    log = Logger(namespace="twisted_exec.sshd.door")

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._began, self._count, self._left_out = clock.seconds(), 0, 0

    def info(self, line: str, **facts: str) -> None:
        """Log a line with facts, as :meth:`twisted.logger.Logger.info`."""
        now = self._clock.seconds()
        if now - self._began >= SECONDS:
            left_out = self._left_out
            self._began, self._count, self._left_out = now, 0, 0
            if left_out:
                self.log.info(
                    "{count} lines about connections were left out of this log: there were too many",
                    count=left_out,
                )
        if self._count >= MOST_LINES:
            self._left_out += 1
            return
        self._count += 1
        self.log.info(line, **facts)
