"""
The output of a QEMU that outlives the runtime: a file, and how much of it the journal has.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
from contextlib import suppress
from typing import Any

from twisted.logger import Logger

from twisted_exec.journal.interfaces import EventKind, IJournal

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

    def __init__(self, directory: str, journal: IJournal) -> None:
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

    def leave_input(self, descriptor: int, input: bytes) -> None:
        """Write the last input into the FIFO, which gets as large as this takes."""
        written = 0
        try:
            size = fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, size + len(input))
            written = os.write(descriptor, input)
        except OSError:
            pass  # this user has many large pipes (pipe(7))
        if written < len(input):
            lost = len(input) - written
            self._log.warn("{path}: {count} bytes of input are lost", path=self.path, count=lost)

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
            is_safe = not self._journal.failure
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
