"""
Enter in the terminal of a program that otherwise reads nothing.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from twisted_exec.cli.console.stdio import Input
from twisted_exec.cli.console.terminal import nonblocking


class Enter:
    """
    Calls ``pressed`` for each Enter, while the program is in the foreground.

    :param fd: the terminal, or a pipe.
    """

    def __init__(self, fd: int, pressed: Callable[[], None], reactor: Any) -> None:
        self._fd, self._pressed, self._reactor = fd, pressed, reactor
        self._open = ExitStack()
        self._input: Input | None = None

    def start(self) -> None:
        """Start reading; nothing happens if the descriptor cannot be waited for, as a file."""
        if os.isatty(self._fd):
            # In the background a read would stop the program; ignored, the read fails instead.
            signal.signal(signal.SIGTTIN, signal.SIG_IGN)
            signal.signal(signal.SIGCONT, lambda *_: self._reactor.callFromThread(self._read))
        with suppress(OSError):
            self._fd = self._open.enter_context(nonblocking(self._fd, os.O_RDONLY))
            self._read()

    def stop(self) -> None:
        """Stop reading."""
        if self._input is not None:
            self._input.stop()
        self._input = None
        self._open.close()

    def _read(self) -> None:
        if self._input is None:
            self._input = Input(self._fd, self._received, self._ended, self._reactor)
            try:
                self._input.startReading()
            except OSError:  # epoll does not wait for files
                self._ended()

    def _received(self, data: bytes) -> None:
        if b"\n" in data:
            self._pressed()

    def _ended(self) -> None:
        self._input = None
