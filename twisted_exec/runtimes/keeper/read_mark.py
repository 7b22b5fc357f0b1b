"""The note of the terminal that the runtime is reading, for a run after a kill."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from typing import Any

_NOTE_BYTES = 256
_NOTES = 16


class ReadMark:
    """
    Notes in a file: of the terminal that is being read, and of earlier ones.

    A runtime that is killed while it reads loses that output, and the next runtime finds the note.
    It keeps the note until the journal has the gap, because it may be killed, too.
    """

    def __init__(self, path: str) -> None:
        self._note: Any = bytearray(_NOTES * _NOTE_BYTES)
        self._found: list[bytes] | None = None
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(path, flags, 0o600)
        except OSError:
            return
        try:
            is_new = os.fstat(descriptor).st_size == 0
            # A write into a mapped hole would kill this process if the disk were full.
            os.posix_fallocate(descriptor, 0, _NOTES * _NOTE_BYTES)
            self._note = mmap.mmap(descriptor, _NOTES * _NOTE_BYTES)
        except OSError:
            return
        finally:
            os.close(descriptor)
        if not is_new:
            self._find()
        self.clear()

    def _find(self) -> None:
        """Move the note of the terminal that was being read to the notes of earlier ones."""
        last, *earlier = (self._read(number) for number in range(_NOTES))
        found = [each for each in earlier if each]
        if last and last not in found:
            if len(found) == len(earlier):
                return  # no place is left: all terminals may lack output
            self._write(1 + earlier.index(b""), last)
            found.append(last)
        self._found = found

    def _read(self, number: int) -> bytes:
        at = number * _NOTE_BYTES
        return bytes(self._note[at + 1 : at + 1 + self._note[at]])

    def _write(self, number: int, name: bytes) -> None:
        # The length comes last: it makes the note valid.
        at = number * _NOTE_BYTES
        self._note[at + 1 : at + 1 + len(name)] = name
        self._note[at] = len(name)

    def was_interrupted(self, name: bytes) -> bool:
        """Return whether an earlier runtime may have lost output of this terminal."""
        return self._found is None or name in self._found

    def forget(self, name: bytes) -> None:
        """Take note that the journal of a terminal says that output was lost."""
        if self._found is not None and name in self._found:
            self._found.remove(name)
            for number in range(1, _NOTES):
                if self._read(number) == name:
                    self._note[number * _NOTE_BYTES] = 0

    def set(self, name: bytes) -> None:
        """
        Note that a terminal is being read.

        :param name: at most 255 bytes.
        """
        self._note[1 : 1 + len(name)] = name
        self._note[0] = len(name)

    def clear(self) -> None:
        self._note[0] = 0

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Note that a terminal is being read, in a ``with`` statement."""
        self.set(os.fsencode(name))
        try:
            yield
        finally:
            self.clear()

    def close(self) -> None:
        note, self._note = self._note, bytearray(_NOTES * _NOTE_BYTES)
        if isinstance(note, mmap.mmap):
            note.close()
