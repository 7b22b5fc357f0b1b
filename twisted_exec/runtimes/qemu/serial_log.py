"""
QEMU's own log of a serial port, from which the journal gets what a machine printed without a runtime.

QEMU writes each byte of the serial port to its socket, if a client is connected, and then to the
log.  A runtime reads the socket.  So the log has everything, in the same order, and the journal has
the same bytes up to some position of the log.  That position is not stored.  It follows from the end
of the journal, which is written with one system call for each piece of output: whenever a runtime is
killed, the next one continues with the first byte that the journal lacks.  A small file beside the
log says which offset of the journal belongs to which position of the log.

The log has another use for the reader of a new connection: where in the log does the socket's stream
begin?  :class:`Splice` finds out by counting.

What the journal has is deallocated (FALLOC_FL_PUNCH_HOLE), which changes neither the log's size nor
its positions, so QEMU may write meanwhile.  Where the file system cannot do that, the log grows.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from twisted_exec.journal.interfaces import Kind

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_BLOCK_BYTES = 1 << 20
_BASE_BYTES = 256
_MAX_CATCH_UP_BYTES = 64 << 20
_COMPARED_BYTES = 64 << 10
_FIRST_BYTES = 32

_fallocate: Any = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)
if _fallocate is not None:
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class SerialLog:
    """
    The log of one QEMU.

    :param directory: private directory of the machine; created on demand.
    :param journal: the machine's journal.
    """

    _log = Logger()

    def __init__(self, directory: str, journal: Any) -> None:
        self.path = os.path.join(directory, "serial.log")
        self._base_path = os.path.join(directory, "serial.base")
        self._directory, self._journal = directory, journal
        self._can_punch = _fallocate is not None
        self._surplus = 0

    def create(self) -> str:
        """
        Create the log of a new QEMU.

        :return: its path; empty if it cannot be written, which must not keep the machine from
            starting.
        """
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            for path in (self.path, self._base_path):
                if os.path.lexists(path):
                    os.unlink(path)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            os.close(os.open(self.path, flags, 0o600))
            os.close(os.open(self._base_path, flags, 0o600))
            self._write_base(self._journal.end, 0, 0)
        except OSError as error:
            self._log.warn(
                "{path}: {why}; output during the next stop of the runtime will be lost",
                path=self.path,
                why=error.strerror,
            )
            return ""
        return self.path

    @property
    def exists(self) -> bool:
        """False for a QEMU of an earlier release."""
        return os.path.exists(self.path) and os.path.exists(self._base_path)

    def size(self) -> int:
        """Return the number of bytes that QEMU has logged; 0 if the log was deleted."""
        try:
            return os.stat(self.path, follow_symlinks=False).st_size
        except OSError:
            return 0

    def read(self, position: int, limit: int) -> bytes:
        """Return logged bytes; none if there are none or they cannot be read."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                return os.pread(descriptor, limit, position)
            finally:
                os.close(descriptor)
        except OSError:
            return b""

    def position(self) -> int:
        """Return the position of the first byte that the journal lacks."""
        base = self._read_base()
        journal = self._journal
        if base is None or base["epoch"] != journal.epoch or base["journal"] > journal.end:
            # Another journal, which has nothing of this machine.
            return 0 if base is None else int(base["punched"])
        read: int = journal.end - base["journal"]
        for event in journal.events(base["journal"], journal.end):
            if event.kind == Kind.GAP and event.data["bytes"] is None:
                read -= event.data["end"] - event.offset  # offsets that no byte has
        return max(int(base["punched"]), int(base["log"]) + read)

    def skip_excess(self) -> int:
        """
        Leave out the oldest bytes, if there are so many that reading them would take too long.

        :return: the number of skipped bytes.
        """
        position, size = self.position(), self.size()
        skipped = size - _MAX_CATCH_UP_BYTES - position
        if skipped <= 0:
            return 0
        base = self._read_base()
        self._write_base(self._journal.end, position + skipped, base["punched"] if base else 0)
        return skipped

    def tidy(self) -> None:
        """Free the disk blocks of what the journal has; call this now and then while connected."""
        base = self._read_base()
        if base is None:
            return
        position, size = self.position(), self.size()
        # QEMU drops what a full disk does not take, while the journal gets it by the socket.
        surplus = max(0, position - size)
        lost, self._surplus = min(surplus, self._surplus), surplus
        try:
            if lost:
                self._surplus = 0
                self._write_base(self._journal.end, position - lost, base["punched"])
                return
            end = min(position, size) // _BLOCK_BYTES * _BLOCK_BYTES
            if self._can_punch and end > base["punched"]:
                self._write_base(base["journal"], base["log"], end)
                self._punch(end)
        except OSError as error:
            self._log.warn("{path}: {why}", path=self.path, why=error.strerror)

    def _punch(self, end: int) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if _fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, 0, end) != 0:
                number = ctypes.get_errno()
                if number in (errno.EOPNOTSUPP, errno.ENOSYS):
                    self._can_punch = False
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
        """Write in place: one system call, which also works when the disk is full."""
        base = {
            "epoch": self._journal.epoch,
            "journal": journal,
            "log": log,
            "punched": punched,
        }
        descriptor = os.open(self._base_path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.pwrite(descriptor, json.dumps(base).encode().ljust(_BASE_BYTES), 0)
        finally:
            os.close(descriptor)


class Splice:
    """
    Finds the position of the log at which the stream of a new connection begins.

    Let *A* be that position.  The log's size at some moment is at most *A* plus the bytes that the
    socket has brought when it is empty at a later moment; and it is at least *A* plus the bytes that
    the socket had brought some time before, because QEMU writes to the log right after the socket.
    When the machine is silent for a moment, both bounds are equal.  Of a machine that prints without
    pause the bytes themselves are compared.

    :param log: the log.
    :ivar captured: the stream so far.
    """

    def __init__(self, log: SerialLog) -> None:
        self._serial_log = log
        self.captured = bytearray()
        self._size, self._count = log.size(), 0
        self._least, self._most = 0, -1

    def measure(self, unread: Callable[[], int]) -> int | None:
        """
        Compare both; call this every few milliseconds.

        :param unread: returns the number of bytes that wait in the socket.
        :return: the position, when it is known.
        """
        if unread():
            return None
        size, count = self._serial_log.size(), len(self.captured)
        self._least = max(self._least, self._size - count)
        most = size - self._count
        self._most = most if self._most < 0 else min(self._most, most)
        self._size, self._count = size, count
        if self._least >= self._most:
            return max(0, self._most)
        return self._find()

    def _find(self) -> int | None:
        """Return the only position at which the log has the captured bytes; ``None`` if there are several."""
        if not self.captured or self._most - self._least > _COMPARED_BYTES:
            return None
        captured = bytes(self.captured[:_COMPARED_BYTES])
        window = self._serial_log.read(self._least, self._most - self._least + len(captured))
        positions = []
        for at in range(self._most - self._least + 1):
            if not captured.startswith(window[at : at + _FIRST_BYTES]):
                continue
            if captured.startswith(window[at : at + len(captured)]):
                positions.append(self._least + at)
                if len(positions) > 1:
                    return None
        return positions[0] if positions else None

    def best(self) -> int:
        """Return the most likely position, when time is up."""
        return max(0, self._least)
