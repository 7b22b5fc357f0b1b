"""
The transport of a serial line over a file and a FIFO.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet import fdesc
from twisted.internet.abstract import FileDescriptor
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from twisted.python.filepath import FilePath

from twisted_exec.runtimes.qemu.serial_log import SerialLog
from twisted_exec.streaming.transports import unwritten

if TYPE_CHECKING:
    from twisted.internet.inotify import INotify

READ_BYTES = 64 << 10
_POLL_SECONDS = 0.05


class LogWatcher:
    """Notices when QEMUs write."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._notifier: INotify | None = None
        self._paths: set[str] = set()

    def watch(self, path: str, changed: Callable[[], None]) -> bool:
        """Call ``changed`` whenever a file has grown; return false if that is not possible."""
        try:
            from twisted.internet.inotify import IN_MODIFY, INotify
        except ImportError:
            return False
        try:
            if self._notifier is None:
                self._notifier = INotify(self._reactor)
                self._notifier.startReading()
            self._notifier.watch(FilePath(path), IN_MODIFY, callbacks=[lambda *_: changed()])
        except Exception:  # of a private module of Twisted
            return False
        self._paths.add(path)
        return True

    def unwatch(self, path: str) -> None:
        if path not in self._paths or self._notifier is None:
            return
        self._paths.discard(path)
        try:
            self._notifier.ignore(FilePath(path))
        except KeyError:
            pass  # the file was deleted
        if not self._paths:
            notifier, self._notifier = self._notifier, None
            notifier.loseConnection()


class LogPort(FileDescriptor):
    """
    Reads the log from the journal's end on, and writes to the FIFO.

    :ivar position: that of the first byte of the log that was not read.
    """

    def __init__(self, log: SerialLog, line: Any, watcher: LogWatcher, reactor: Any) -> None:
        super().__init__(reactor)
        self._serial_log, self._line, self._watcher = log, line, watcher
        self._descriptor = log.open_input()
        self.position = log.position()
        self._paused = False
        self._later: Any = None
        self._polls = False
        self.connected = 1

    @property
    def transport(self) -> LogPort:
        return self

    def start(self) -> None:
        self._polls = not self._watcher.watch(self._serial_log.path, self.read)
        self.read()

    def read(self) -> None:
        if self._later is not None and self._later.active():
            self._later.cancel()
        self._later = None
        if self._paused or not self.connected:
            return
        data = self._serial_log.read(self.position, READ_BYTES)
        if data:
            self.position += len(data)
            self._line.received(data)
        if len(data) == READ_BYTES:
            self._later = self.reactor.callLater(0, self.read)  # type: ignore[attr-defined]
        elif self._polls:
            self._later = self.reactor.callLater(  # type: ignore[attr-defined]
                _POLL_SECONDS, self.read
            )

    def finish(self) -> None:
        while self.connected and (data := self._serial_log.read(self.position, READ_BYTES)):
            self.position += len(data)
            self._line.received(data)
        self.loseConnection()

    # FileDescriptor.

    def fileno(self) -> int:
        return self._descriptor

    def writeSomeData(self, data: bytes) -> Any:
        return fdesc.writeToFD(self._descriptor, data)

    def pauseProducing(self) -> None:
        self._paused = True

    def resumeProducing(self) -> None:
        self._paused = False
        self.read()

    def loseConnection(self) -> None:
        """Close now, and leave pending input in the FIFO for a guest that reads it later."""
        if self.connected:
            if input := unwritten(self):
                self._serial_log.leave_input(self._descriptor, input)
            self.connectionLost(Failure(ConnectionDone()))

    abortConnection = loseConnection

    def connectionLost(self, reason: Failure) -> None:
        if self._later is not None and self._later.active():
            self._later.cancel()
        self._watcher.unwatch(self._serial_log.path)
        super().connectionLost(reason)
        os.close(self._descriptor)
        self._descriptor = -1
        self._line.port_lost(self)
