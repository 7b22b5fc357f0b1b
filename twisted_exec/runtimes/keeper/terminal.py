"""The terminals that the keeper holds, as transports of process protocols."""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.abstract import FileDescriptor
from twisted.internet.error import ConnectionDone, ProcessDone, ProcessTerminated
from twisted.internet.fdesc import readFromFD, writeToFD
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.console.interfaces import ILineTransport
from twisted_exec.console.line import LineEnded
from twisted_exec.runtimes.keeper.read_mark import ReadMark
from twisted_exec.streaming.interfaces import LINE_LOST, Ending
from twisted_exec.streaming.transports import unwritten


@implementer(ILineTransport)
class KeptTerminal(FileDescriptor):
    """
    The master of a pseudo-terminal: the transport of a process protocol.

    :param descriptor: non-blocking; closed by :meth:`connectionLost`.
    """

    connected = 1
    _is_writing = False  # input waits for the terminal

    def __init__(
        self, reactor: Any, descriptor: int, process: Any, mark: ReadMark, name: str
    ) -> None:
        super().__init__(reactor)
        self.fd = descriptor
        self._process = process
        self._mark, self._name = mark, os.fsencode(name)

    def begin(self, input: bytes) -> None:
        self._process.makeConnection(self)
        self.startReading()
        if input:
            self.write(input)

    def fileno(self) -> int:
        return self.fd

    def doRead(self) -> Any:
        self._mark.set(self._name)
        outcome = readFromFD(self.fd, self._received)
        self._mark.clear()
        return outcome

    def _received(self, data: bytes) -> None:
        self._process.childDataReceived(1, data)

    def write(self, data: bytes) -> None:
        """Write at once what the terminal takes, unless other input waits."""
        if self.disconnecting or not data:
            return
        if not self._is_writing:
            try:
                data = data[os.write(self.fd, data) :]
            except OSError:
                pass  # it is full, or has ended: the reactor's write finds out which
        if data:
            super().write(data)

    def writeSomeData(self, data: bytes) -> Any:
        return writeToFD(self.fd, data)

    def startWriting(self) -> None:
        self._is_writing = True
        super().startWriting()

    def stopWriting(self) -> None:
        self._is_writing = False
        super().stopWriting()

    def loseConnection(self) -> None:
        """Stop reading and writing; the terminal closes when the machine is stopped or released."""
        self.disconnecting = True
        self.stopReading()
        self.stopWriting()

    def release(self) -> bytes:
        if not self.connected:
            return b""
        input = unwritten(self)
        self.connectionLost(Failure(ConnectionDone()))
        return input

    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)
        os.close(self.fd)


def reason_of(status: int | None) -> Failure:
    """
    Return the end of a command as a failure.

    :param status: of wait(2); ``None`` if the keeper has ended.
    """
    if status is None:
        message = "the keeper of the runtime has ended, and its terminals with it"
        return Failure(LineEnded(Ending(LINE_LOST, message)))
    if status == 0:
        return Failure(ProcessDone(status))
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    return Failure(ProcessTerminated(code, number, status))
