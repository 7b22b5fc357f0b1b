"""
A client in a terminal of its own.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import termios
import tty
from collections.abc import Sequence

from tests.procfs import descendants

_SECONDS = 60


class Terminal:
    """
    A program in a terminal, with the methods of :class:`~tests.benchmarks.console.Console`.

    :ivar pid: of the program.
    """

    def __init__(self, argv: Sequence[str], **environment: str) -> None:
        self._last = b""
        self.pid, self._fd = pty.fork()
        if not self.pid:
            os.environ.update(environment)
            os.execvp(argv[0], argv)
        # Other clients would keep the terminal open.
        os.set_inheritable(self._fd, False)
        tty.setraw(self._fd, termios.TCSANOW)

    def type(self, data: bytes) -> None:
        os.write(self._fd, data)

    def receive(self) -> bytes:
        if not select.select([self._fd], [], [], _SECONDS)[0]:
            raise TimeoutError(f"no output for {_SECONDS} s; the last output was {self._last!r}")
        try:
            self._last = os.read(self._fd, 65536)
        except OSError:
            raise ConnectionError(f"the program has ended: {self._last!r}") from None
        return self._last

    def until(self, mark: bytes) -> None:
        seen = b""
        while mark not in seen:
            seen = seen[-len(mark) :] + self.receive()

    def count(self, total: int) -> None:
        while total > 0:
            total -= len(self.receive())

    @property
    def pids(self) -> Sequence[int]:
        """The program and those that it has started."""
        return self.pid, *descendants(self.pid)

    def close(self) -> None:
        """End the program at once."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._fd)

    def hang_up(self) -> None:
        """Close the terminal, as its window does, and wait until the program has ended."""
        os.close(self._fd)
        os.waitpid(self.pid, 0)
