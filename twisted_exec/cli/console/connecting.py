"""
The line in the terminal about a wait for the server.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime

ADDRESS = "looking for its address"
TLS = "TLS"
WAITING = "waiting for the machine"

_COLUMNS = 80
"""Of a terminal that does not say."""
_INTERNET = (socket.AF_INET, socket.AF_INET6)
ERASE = "\r\x1b[K"

SILENT_SECONDS = 0.5
"""Waits that take longer get a line."""


class ProgressLine:
    """
    A line in the terminal about a wait that begins now, with its seconds.

    :param write: writes on the terminal, which is in raw mode.
    :param is_plain: the terminal has no cursor to move.
    """

    def __init__(
        self,
        clock: IReactorTime,
        write: Callable[[str], None],
        text: Callable[[int], str],
        columns: Callable[[], int],
        *,
        is_plain: bool,
    ) -> None:
        self._clock, self._begun, self._write = clock, clock.seconds(), write
        self._text, self._columns = text, columns
        self._is_plain, self._is_drawn = is_plain, False
        self._timer: IDelayedCall | None = clock.callLater(SILENT_SECONDS, self._draw)

    @classmethod
    def on_stderr(cls, reactor: Any, text: Callable[[int], str]) -> ProgressLine | None:
        """Return a line on standard error; ``None`` if that is no terminal."""

        def write(data: bytes) -> None:
            with suppress(OSError):  # a terminal that is gone
                os.write(2, data)

        return cls.on_terminal(2, reactor, text, write) if os.isatty(2) else None

    @classmethod
    def on_terminal(
        cls,
        descriptor: int,
        reactor: Any,
        text: Callable[[int], str],
        write: Callable[[bytes], None],
    ) -> ProgressLine:
        """
        Return a line on a terminal.

        :param write: writes on the terminal, in the order of other messages.
        """

        def draw(line: str) -> None:
            write(line.encode())

        def columns() -> int:
            try:
                return os.get_terminal_size(descriptor).columns or _COLUMNS
            except OSError:  # a terminal that is gone
                return _COLUMNS

        is_plain = os.environ.get("TERM", "dumb") == "dumb"
        line = cls(reactor, draw, text, columns, is_plain=is_plain)
        reactor.addSystemEventTrigger("before", "shutdown", line.stop)  # after Ctrl-C
        return line

    def erase(self) -> None:
        """Remove the line before another message; it may come again."""
        if self._is_drawn and not self._is_plain:
            self._write(ERASE)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.erase()

    def _draw(self) -> None:
        self._timer = self._clock.callLater(1, self._draw) if not self._is_plain else None
        self._is_drawn = True
        text = self._text(int(self._clock.seconds() - self._begun + 0.5))
        if self._is_plain:
            self._write(f"{text}\r\n")
        else:
            # A second row could not be erased.
            self._write(f"{ERASE}{_shortened(text, max(1, self._columns() - 1))}")


def _shortened(text: str, size: int) -> str:
    """Return a text without a part of its middle, such as of an address: its end has the seconds."""
    if len(text) <= size:
        return text
    end = size // 2
    return f"{text[: size - end]}...{text[-end + 3 :]}" if end > 3 else text[-size:]


def step(reactor: Any, *, is_verified: bool) -> str:
    """
    Return the step of a connection that is being made.

    :param is_verified: the connection is open, and TLS done.
    """
    return WAITING if is_verified else TLS if _is_connected(reactor) else ADDRESS


def _is_connected(reactor: Any) -> bool:
    for reader in reactor.getReaders():
        with suppress(OSError), socket.socket(fileno=os.dup(reader.fileno())) as connection:
            if connection.family in _INTERNET and connection.getpeername():
                return True
    return False
