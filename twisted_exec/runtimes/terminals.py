"""
Pseudo-terminals and their commands: see ioctl_tty(2) and pty(7).
"""

from __future__ import annotations

import errno
import fcntl
import grp
import os
import struct
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.runtimes.processes import ProcessFamily
from twisted_exec.streaming.interfaces import TerminalSize

_READ_BYTES = 64 << 10
_MAX_REST_BYTES = 1 << 20
_FULL_READ_BYTES, _MOST_READS = 1024, 15
READ_SECONDS = 0.0005
"""Reads of a terminal in one turn of the reactor begin within this time."""


def set_size(descriptor: int, size: TerminalSize) -> None:
    """Set the size of a terminal; its processes get SIGWINCH if it changed."""
    cells = struct.pack("4H", size.rows, size.columns, 0, 0)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, cells)


def give(descriptor: int, uid: int) -> None:
    """Change the owner of a terminal, as login(1) does, so that the user can open it by name."""
    os.fchown(descriptor, uid, tty_group())
    os.fchmod(descriptor, 0o620)


def tty_group() -> int:
    """Return the group of terminals, -1 if this host has none."""
    try:
        return grp.getgrnam("tty").gr_gid
    except KeyError:
        return -1


def read_rest(descriptor: int) -> Iterator[bytes]:
    """
    Read the output that is left in a terminal after its processes have ended, about 1 MiB at most.
    """
    remaining = _MAX_REST_BYTES
    while remaining > 0:
        try:
            data = os.read(descriptor, _READ_BYTES)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EIO):
                raise
            return
        if not data:
            return
        remaining -= len(data)
        yield data


class TerminalProcess(ProcessProtocol):
    """
    Connects Twisted's process to the line's protocol.

    :param reading: surrounds a read of the terminal at its end, until the line has the output.
    """

    transport: Any
    _log = Logger()

    def __init__(
        self,
        line: Any,
        family: ProcessFamily,
        closed: Callable[[], None] = lambda: None,
        reading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._line, self._reading = line, reading
        self._family = family
        self._closed = closed
        self._reason: Failure | None = None
        self._ended = False
        self._waiting: list[Deferred[None]] = []

    def connectionMade(self) -> None:
        self._line.makeConnection(self.transport)

    def childDataReceived(self, child_fd: int, data: bytes) -> None:
        if self._ended:
            return
        if len(data) >= _FULL_READ_BYTES:
            data = self._more(data)
        self._line.dataReceived(data)

    def _more(self, data: bytes) -> bytes:
        parts, fd = [data], self.transport.fd
        until = time.perf_counter() + READ_SECONDS
        for _ in range(_MOST_READS):
            if time.perf_counter() >= until:
                break
            try:
                more = os.read(fd, 65_536)
            except OSError:
                break  # nothing left, or the end, which the next turn finds
            parts.append(more)
            if len(more) < _FULL_READ_BYTES:
                break
        return b"".join(parts)

    def resize(self, size: TerminalSize) -> None:
        if self.transport is not None and self.transport.connected:
            set_size(self.transport.fd, size)

    async def reaped(self, seconds: float, clock: IReactorTime) -> None:
        """Wait for the exit status, which arrives after the end, but no longer than ``seconds``."""
        if self._reason is None:
            waiter: Deferred[None] = Deferred()
            self._waiting.append(waiter)
            # It never arrives if SIGCHLD is not handled or other code reaps the process.
            await waiter.addTimeout(seconds, clock).addErrback(lambda _: None)

    def processExited(self, reason: Failure) -> None:
        self._reason = reason
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.called:
                waiter.callback(None)
        if self._ended:
            return  # stopped: its processes have ended already
        ending = self._family.end()
        ending.addErrback(lambda failure: self._log.failure("ending processes", failure=failure))
        ending.addBoth(lambda _: self.close())

    def processEnded(self, reason: Failure) -> None:
        """Do nothing: processExited has the exit status."""

    def close(self) -> None:
        """Read remaining output, close the terminal, and end the line."""
        if self._ended:
            return
        if self.transport.connected and not self.transport.disconnecting:
            # While the line was paused, output stayed in the terminal.
            with self._reading():
                for data in read_rest(self.transport.fd):
                    self._line.dataReceived(data)
        self._ended = True
        if self.transport.connected:
            # Not loseConnection, which waits until pending input has been read.
            self.transport.unregisterProducer()
            self.transport.connectionLost(Failure(ConnectionDone()))
        self._closed()
        self._line.connectionLost(self._reason or Failure(ConnectionDone()))

    def release(self) -> bytes:
        """
        Leave the command running, and the line as it is; return the input that was not written.
        """
        if self._ended:
            return b""
        self._ended = True
        input: bytes = self.transport.release()
        return input
