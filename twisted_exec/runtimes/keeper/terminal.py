"""
Terminals of the keeper, as transports of the runtime.

Each master is read and written directly: the keeper takes no part in that.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

from twisted.internet.abstract import FileDescriptor
from twisted.internet.error import ConnectionDone, ProcessDone, ProcessTerminated
from twisted.internet.fdesc import readFromFD, writeToFD
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.console.interfaces import ILineTransport
from twisted_exec.console.line import LineEnded
from twisted_exec.streaming.interfaces import LINE_LOST, Ending

_NOTE_BYTES = 256


class ReadMark:
    """
    A note in a file about the output that is between a terminal and its journal.

    A runtime that is killed at such a moment loses that output, and the next one has to know.  The
    kernel keeps the content of a mapped file whatever ends the process.  There is only one note, because
    a runtime reads one terminal at a time.

    :param path: the file; created if missing.
    """

    def __init__(self, path: str) -> None:
        self._note: Any = bytearray(_NOTE_BYTES)
        self._found: bytes | None = None
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(path, flags, 0o600)
        except OSError:
            return
        try:
            is_new = os.fstat(descriptor).st_size == 0
            # A write into a mapped hole would kill this process if the disk were full.
            os.posix_fallocate(descriptor, 0, _NOTE_BYTES)
            self._note = mmap.mmap(descriptor, _NOTE_BYTES)
        except OSError:
            return
        finally:
            os.close(descriptor)
        if not is_new:
            length = self._note[0]
            self._found = bytes(self._note[1 : 1 + length])
        self.clear()

    def was_interrupted(self, name: bytes) -> bool:
        """Return whether an earlier runtime has lost output of this terminal; true if that is unknown."""
        return self._found is None or self._found == name

    def set(self, name: bytes) -> None:
        """
        Note that a terminal is read.

        :param name: at most 255 bytes.
        """
        self._note[1 : 1 + len(name)] = name
        self._note[0] = len(name)

    def clear(self) -> None:
        """Note that the output is in the journal."""
        self._note[0] = 0

    def close(self) -> None:
        """Unmap the file; later notes have no effect."""
        note, self._note = self._note, bytearray(_NOTE_BYTES)
        if isinstance(note, mmap.mmap):
            note.close()


@implementer(ILineTransport)
class KeptTerminal(FileDescriptor):
    """
    The master of a pseudo-terminal: the transport of a process protocol.

    :param descriptor: non-blocking; closed by :meth:`connectionLost`.
    :param process: gets output by ``childDataReceived``.
    :param name: of the terminal, for the mark.
    """

    connected = 1

    def __init__(
        self, reactor: Any, descriptor: int, process: Any, mark: ReadMark, name: str
    ) -> None:
        super().__init__(reactor)
        self.fd = descriptor
        self._process = process
        self._mark, self._name = mark, os.fsencode(name)

    def begin(self, input: bytes) -> None:
        """
        Connect the process and start reading.

        :param input: that an earlier runtime could not write.
        """
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
        if not self.disconnecting:
            super().write(data)

    def writeSomeData(self, data: bytes) -> Any:
        return writeToFD(self.fd, data)

    def loseConnection(self) -> None:
        """Stop reading and writing; the terminal closes when the machine is stopped or released."""
        self.disconnecting = True
        self.stopReading()
        self.stopWriting()

    def release(self) -> bytes:
        """Close this descriptor of the terminal, and return the input that was not written."""
        if not self.connected:
            return b""
        # The attributes of abstract.FileDescriptor, which has no method for that.
        input = bytes(self.dataBuffer[self.offset :]) + b"".join(self._tempDataBuffer)
        self.connectionLost(Failure(ConnectionDone()))
        return input

    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)
        os.close(self.fd)


def reason_of(status: int | None) -> Failure:
    """
    Return the end of a command as Twisted reports it.

    :param status: as of :func:`os.waitpid`; ``None`` if it is not known.
    """
    if status is None:
        message = "the keeper of the runtime has ended, and its terminals with it"
        return Failure(LineEnded(Ending(LINE_LOST, message)))
    if status == 0:
        return Failure(ProcessDone(status))
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    return Failure(ProcessTerminated(code, number, status))
