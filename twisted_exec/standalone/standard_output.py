"""
Standard output: the first commands, and a summary of the log.

The commands that a user can type when the program is ready go to standard output
(:class:`FirstCommands`). If that is a terminal, the log goes to a file, and only a summary to the
terminal (:class:`TerminalSummary`).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence

from twisted.internet.interfaces import IReactorTime
from twisted.logger import (
    ILogObserver,
    LogEvent,
    LogLevel,
    LogPublisher,
    formatEvent,
    globalLogPublisher,
    textFileLogObserver,
)
from zope.interface import implementer

from twisted_exec.program.service import SUMMARY

QUIET_SECONDS = 0.5
LONGEST_SECONDS = 5.0


_OLD_LOG_BYTES = 16 << 20
_MARKS = {LogLevel.warn: "warning: ", LogLevel.error: "error: "}


def _write(text: str) -> None:
    if sys.__stdout__ is None:
        return
    # A closed standard output, as of a daemon, raises either.
    with contextlib.suppress(OSError, ValueError):
        sys.__stdout__.write(text)
        sys.__stdout__.flush()


@implementer(ILogObserver)
class FirstCommands:
    """Observes the log, and prints commands when it is quiet."""

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

        :param is_running: whether the program still runs then.
        """
        lines = "\n".join(commands)
        self._text = f"\nReady. In another terminal, type:\n\n{lines}\n\n"
        self._is_running = is_running
        self._logged_at = self._clock.seconds()
        self._latest = self._logged_at + LONGEST_SECONDS
        self._publisher.addObserver(self)
        self._look()

    def __call__(self, event: LogEvent) -> None:
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


@implementer(ILogObserver)
class TerminalSummary:
    """
    Writes the log into a file, and its warnings and the events with
    :data:`~twisted_exec.program.service.SUMMARY` on the terminal.

    Events before :meth:`open` are kept: the directory of the file belongs to the program only then.
    """

    def __init__(self, write: Callable[[str], object] = _write) -> None:
        self._write = write
        self._early: list[LogEvent] = []
        self._file: ILogObserver | None = None

    def open(self, path: str) -> None:
        """
        Write into this file from now on; a large one is renamed first.

        :raises OSError: it cannot be written.
        """
        with contextlib.suppress(FileNotFoundError):
            if os.path.getsize(path) > _OLD_LOG_BYTES:
                os.replace(path, f"{path}.1")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = textFileLogObserver(open(descriptor, "a", encoding="utf-8"))  # noqa: SIM115
        early, self._early = self._early, []
        for event in early:
            self._file(event)

    def __call__(self, event: LogEvent) -> None:
        if self._file is not None:
            self._file(event)
        else:
            self._early.append(event)
        level = event.get("log_level", LogLevel.info)
        is_last = level is LogLevel.critical  # the program prints it when it exits
        if event.get(SUMMARY) or (level >= LogLevel.warn and not is_last):
            self._write(f"{_MARKS.get(level, '')}{' '.join(formatEvent(event).split())}\n")
