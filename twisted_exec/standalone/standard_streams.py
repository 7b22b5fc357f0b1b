"""
Standard output and input.

The commands that a user can type when the program is ready go to standard output
(:class:`FirstCommands`).

The program stops together with its parent process (:func:`stop_with_parent`), which holds the other
end of our standard input.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IReactorTime, IReadDescriptor
from twisted.logger import ILogObserver, LogEvent, Logger, LogPublisher, globalLogPublisher
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


_log = Logger()
_STDIN = 0
_BYTES = 4096


def stop_with_parent(reactor: Any, descriptor: int = _STDIN) -> None:
    """
    Stop the reactor at the end of a descriptor's input.

    :param descriptor: a pipe or a socket.
    """
    reactor.addReader(_Input(reactor, descriptor))


@implementer(IReadDescriptor)
class _Input:
    def __init__(self, reactor: Any, descriptor: int) -> None:
        self._reactor, self._descriptor = reactor, descriptor

    def fileno(self) -> int:
        return self._descriptor

    def logPrefix(self) -> str:
        return "stdin"

    def doRead(self) -> None:
        try:
            data = os.read(self._descriptor, _BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.connectionLost(None)

    def connectionLost(self, reason: object) -> None:
        self._reactor.removeReader(self)
        if self._reactor.running:
            _log.info("standard input has ended: stopping with the parent process")
            self._reactor.callLater(0, self._stop)

    def _stop(self) -> None:
        if self._reactor.running:
            self._reactor.stop()
