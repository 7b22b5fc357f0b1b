"""
The commands that a user can type when the program is ready, on standard output.

They are not in the log, where a prefix on each line would spoil copies.  The parts of the program
log their last lines just after they are ready, so the commands wait for a pause of the log;
otherwise they would scroll away.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence

from twisted.internet.interfaces import IReactorTime
from twisted.logger import ILogObserver, LogEvent, LogPublisher, globalLogPublisher
from zope.interface import implementer

QUIET_SECONDS = 0.5
LONGEST_SECONDS = 5.0


def _write(text: str) -> None:
    if sys.__stdout__ is None:
        return
    # A closed standard output, as of a daemon, raises either.
    with contextlib.suppress(OSError, ValueError):
        sys.__stdout__.write(text)
        sys.__stdout__.flush()


@implementer(ILogObserver)
class FirstCommands:
    """
    Prints commands when the log is quiet, which it observes.

    :param write: prints a text.
    :param publisher: publishes the log.
    """

    def __init__(
        self,
        clock: IReactorTime,
        write: Callable[[str], object] = _write,
        publisher: LogPublisher = globalLogPublisher,
    ) -> None:
        self._clock, self._write, self._publisher = clock, write, publisher
        self._logged_at = self._latest = 0.0
        self._text = ""

    def show(self, commands: Sequence[str], is_running: Callable[[], bool]) -> None:
        """
        Print the commands, half a second after the last line of the log and at most 5 s from now.

        :param is_running: whether the program still runs then; otherwise nothing is printed.
        """
        lines = "\n".join(commands)
        self._text = f"\nReady. In another terminal, type:\n\n{lines}\n\n"
        self._is_running = is_running
        self._logged_at = self._clock.seconds()
        self._latest = self._logged_at + LONGEST_SECONDS
        self._publisher.addObserver(self)
        self._look()

    def __call__(self, event: LogEvent) -> None:
        """See :class:`ILogObserver`."""
        self._logged_at = self._clock.seconds()  # nothing else: threads log, too

    def _look(self) -> None:
        now = self._clock.seconds()
        due = min(self._logged_at + QUIET_SECONDS, self._latest)
        if now < due and self._is_running():
            self._clock.callLater(due - now, self._look)
            return
        self._publisher.removeObserver(self)
        if self._is_running():
            self._write(self._text)
