"""
The serial port of a virtual machine: one line, over a socket, or over a file and a FIFO.

A QEMU that outlives the runtime usually has a file and a FIFO (:class:`SerialLog`,
:class:`LogPort`): output to a socket would be lost while no runtime is connected.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from twisted.internet import fdesc
from twisted.internet.abstract import FileDescriptor
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IConsumer, ITransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.filepath import FilePath
from zope.interface import implementer

from twisted_exec.console.interfaces import ILineTransport
from twisted_exec.journal.interfaces import EventKind
from twisted_exec.streaming.flow import unwritten

if TYPE_CHECKING:
    from twisted.internet.inotify import INotify


class QemuSerialPort(Protocol):
    """One connection to the socket."""

    transport: Any

    def __init__(self, line: QemuSerialLine) -> None:
        self._line = line

    def dataReceived(self, data: bytes) -> None:
        self._line.received(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._line.port_lost(self)


@implementer(ILineTransport, ITransport, IConsumer)
class QemuSerialLine:
    """
    The transport of a line's protocol.

    :param lost: called after each loss of the connection; :attr:`is_open` says whether to
        reconnect.
    """

    disconnecting = False

    def __init__(self, lost: Callable[[], None], active: Callable[[], None] = lambda: None) -> None:
        self._lost, self._active = lost, active
        self._port: Any = None
        self._protocol: Any = None
        self._producer: Any = None
        self._paused = False
        self._over = False
        # Input that waits for BREAKs, and how many of these QEMU has not carried out yet.
        self._held, self._breaks = b"", 0

    @property
    def is_open(self) -> bool:
        """True until the session closed the line or the machine ended."""
        return not self._over and not self.disconnecting

    def begin(self, protocol: Any) -> None:
        self._protocol = protocol
        protocol.makeConnection(self)

    def join(self, port: Any, protocol: Any = None) -> None:
        """Use a new connection for the line."""
        self._port = port
        if self._paused:
            port.transport.pauseProducing()
        if protocol is not None:
            self._protocol = protocol
            protocol.makeConnection(self)
        elif self._producer is not None:
            port.transport.registerProducer(self._producer, True)
            self._producer.resumeProducing()

    def received(self, data: bytes) -> None:
        self._active()
        if self._protocol is not None and not self._over:
            self._protocol.dataReceived(data)

    def port_lost(self, port: Any) -> None:
        if port is not self._port:
            return
        self._port = None
        if self._producer is not None and self.is_open:
            self._producer.pauseProducing()
        self._lost()

    def end(self, reason: Failure) -> None:
        if not self._over and self._protocol is not None:
            self._over = True
            self._protocol.connectionLost(reason)

    def unsent(self) -> bytes:
        """Return input that QEMU has not got; it is lost with the connection."""
        transport = self._port and self._port.transport
        if not isinstance(transport, FileDescriptor):
            return self._held
        return unwritten(transport) + self._held

    def break_begins(self) -> None:
        """
        Hold input back until :meth:`break_ends`.

        BREAK is a command of QMP, so QEMU could read a key that the user typed after it from the
        serial socket first.
        """
        self._breaks += 1
        if self._producer is not None:
            self._producer.pauseProducing()

    def break_ends(self, result: Any) -> Any:
        """Send the input that was held back, unless another BREAK is under way."""
        self._breaks -= 1
        if not self._breaks:
            held, self._held = self._held, b""
            if self._port is not None:  # otherwise input is lost with the connection
                self._port.transport.write(held)
                if self._producer is not None:
                    self._producer.resumeProducing()
        return result

    def drop(self) -> None:
        if self._port is not None:
            self._port.transport.abortConnection()

    # ILineTransport, ITransport and IConsumer.

    def write(self, data: bytes) -> None:
        self._active()
        if self._breaks:
            self._held += data
        elif self._port is not None:
            self._port.transport.write(data)

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        self.disconnecting = True
        if self._port is not None:
            self._port.transport.loseConnection()
        else:
            self.end(Failure(ConnectionDone()))

    def getPeer(self) -> Any:
        return self._port.transport.getPeer() if self._port is not None else None

    def getHost(self) -> Any:
        return self._port.transport.getHost() if self._port is not None else None

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self._producer = producer
        if self._port is not None:
            self._port.transport.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        self._producer = None
        if self._port is not None:
            self._port.transport.unregisterProducer()

    def pauseProducing(self) -> None:
        self._paused = True
        if self._port is not None:
            self._port.transport.pauseProducing()

    def resumeProducing(self) -> None:
        self._paused = False
        if self._port is not None:
            self._port.transport.resumeProducing()

    def stopProducing(self) -> None:
        self.loseConnection()


# The kernel's linux/falloc.h; a hole needs both flags (fallocate(2)).
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_BLOCK_BYTES = 1 << 20
_AHEAD_BYTES = 1 << 20
_BASE_BYTES = 256
_MAX_CATCH_UP_BYTES = 64 << 20

# The name with 64: its offsets have 64 bits on each machine.
_fallocate: Any = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)
if _fallocate is not None:
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class SerialLog:
    """
    The files of one QEMU.

    A small file beside the log says which offset of the journal belongs to which position of the
    log. So a runtime continues with the first byte that the journal lacks.

    The part that the journal has is deallocated (FALLOC_FL_PUNCH_HOLE), which changes neither the
    log's size nor its positions. Where the file system cannot do that, the log grows.
    """

    _log = Logger()

    def __init__(self, directory: str, journal: Any) -> None:
        self.path = os.path.join(directory, "serial.log")
        self.input_path = os.path.join(directory, "serial.in")
        self._base_path = os.path.join(directory, "serial.base")
        self._directory, self._journal = directory, journal
        self._can_punch = _fallocate is not None

    def create(self) -> None:
        """Create the files of a new QEMU."""
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        for path in (self.path, self.input_path, self._base_path):
            if os.path.lexists(path):
                os.unlink(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        os.mkfifo(self.input_path, 0o600)
        os.close(os.open(self.path, flags, 0o600))
        os.close(os.open(self._base_path, flags, 0o600))
        self._write_base(self._journal.end, 0, 0)
        self._allocate()

    def open_input(self) -> int:
        """Open the FIFO, for reading as well: then it neither waits for QEMU nor has an end."""
        flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self.input_path, flags)

    def remove(self) -> None:
        for path in (self.path, self.input_path, self._base_path):
            with suppress(OSError):
                os.unlink(path)

    @property
    def exists(self) -> bool:
        """True if the files exist."""
        return all(map(os.path.exists, (self.path, self.input_path, self._base_path)))

    def size(self) -> int:
        """Return the number of bytes that QEMU has logged; 0 if the log was deleted."""
        try:
            return os.stat(self.path, follow_symlinks=False).st_size
        except OSError:
            return 0

    def read(self, position: int, limit: int) -> bytes:
        """Return logged bytes; none if they cannot be read."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                return os.pread(descriptor, limit, position)
            finally:
                os.close(descriptor)
        except OSError:
            return b""

    def position(self) -> int:
        base = self._read_base()
        journal = self._journal
        if base is None or base["epoch"] != journal.epoch or base["journal"] > journal.end:
            # Another journal, which has nothing of this machine.
            return 0 if base is None else int(base["punched"])
        read: int = journal.end - base["journal"]
        # A machine must not stop because the disk does not answer at this moment.
        with suppress(OSError):
            for event in journal.events(base["journal"], journal.end, EventKind.GAP):
                if event.data["bytes"] is None:
                    read -= event.data["end"] - event.offset  # offsets that no byte has
            for event in journal.events(base["journal"], journal.end, EventKind.BOOT):
                # The journal's own bytes, unless the runtime was killed before they were written.
                read -= min(event.data.get("reset_bytes", 0), journal.end - event.offset)
        return max(int(base["punched"]), int(base["log"]) + read)

    def skip_excess(self) -> int:
        """Leave out the oldest bytes, if there are too many to read; return their number."""
        position, size = self.position(), self.size()
        skipped = size - _MAX_CATCH_UP_BYTES - position
        if skipped <= 0:
            return 0
        self._journal.lost()
        base = self._read_base()
        self._write_base(self._journal.end, position + skipped, base["punched"] if base else 0)
        return skipped

    def tidy(self, position: int) -> None:
        """Free the disk blocks of what the journal has, and allocate others ahead."""
        base = self._read_base()
        if base is None:
            return
        try:
            end = position // _BLOCK_BYTES * _BLOCK_BYTES
            # A journal whose disk fails has the newest output in memory only.
            is_safe = not getattr(self._journal, "failure", "")
            if self._can_punch and is_safe and end > base["punched"]:
                # The note first: after a kill in between, nothing is read from the hole.
                self._write_base(self._journal.end, position, end)
                self._punch(end)
            self._allocate()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                self._log.warn("{path}: {why}", path=self.path, why=error.strerror)

    def _allocate(self) -> None:
        if self._can_punch:
            self._call_fallocate(_KEEP_SIZE, self.size(), _AHEAD_BYTES)

    def _punch(self, end: int) -> None:
        self._call_fallocate(_KEEP_SIZE | _PUNCH_HOLE, 0, end)

    def _call_fallocate(self, mode: int, first: int, length: int) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if _fallocate(descriptor, mode, first, length) != 0:
                number = ctypes.get_errno()
                if number in (errno.EOPNOTSUPP, errno.ENOSYS):
                    self._can_punch = False
                    return
                raise OSError(number, os.strerror(number))
        finally:
            os.close(descriptor)

    def _read_base(self) -> dict[str, Any] | None:
        try:
            with open(self._base_path, "rb") as file:
                base = json.loads(file.read(_BASE_BYTES))
        except (OSError, ValueError):
            return None
        is_valid = isinstance(base, dict) and all(
            isinstance(base.get(key), int) for key in ("journal", "log", "punched")
        )
        return base if is_valid else None

    def _write_base(self, journal: int, log: int, punched: int) -> None:
        base = {
            "epoch": self._journal.epoch,
            "journal": journal,
            "log": log,
            "punched": punched,
        }
        descriptor = os.open(self._base_path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            # Padded: a shorter note must cover the whole of a longer one before it.
            os.pwrite(descriptor, json.dumps(base).encode().ljust(_BASE_BYTES), 0)
        finally:
            os.close(descriptor)


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
        """Close now: a guest that reads nothing would never let pending input drain."""
        if self.connected:
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
