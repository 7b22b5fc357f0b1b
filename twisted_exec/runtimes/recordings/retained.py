"""
Segments that only recordings still need.
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from twisted_exec.api import quantity
from twisted_exec.api.display import reason_of
from twisted_exec.tls.private_directories import private_directory

_SEGMENT = re.compile(r"([0-9a-f]{16})\.(?:open|sealed)")


@dataclass(frozen=True)
class Needed:
    """
    A range of a journal that a recording needs; ``end`` is ``None`` while the recording goes on.
    """

    first: int
    end: int | None

    def overlaps(self, first: int, end: int | None) -> bool:
        """
        Return whether a segment has a part of the range; without an end, everything behind it.
        """
        return (end is None or end > self.first) and (self.end is None or first < self.end)


@dataclass(frozen=True)
class Lost:
    """A segment that is not retained, because of the limit or a problem of the disk."""

    key: str
    first: int
    end: int | None
    why: str


class RetainedSegments:
    """
    Segments of journals that recordings still need when retention removes them from the journals.

    Such a segment gets a second name (a hard link) in a directory, which has a limit of its own.

    :param limit_bytes: of all segments; 0 for a twentieth of the file system.
    :ivar needed: the ranges that recordings need, by the key of the journal; replaced as a whole.
    :ivar lost: segments that could not be retained; the owner empties this list.
    """

    def __init__(self, path: str, limit_bytes: int = 0, layer: Any = os) -> None:
        self._path, self._limit, self._layer = path, limit_bytes, layer
        self.needed: Mapping[str, Sequence[Needed]] = {}
        self.lost: list[Lost] = []
        self._own = Counter[str]()
        self._counting = threading.Lock()  # not held while a file is used

    def open(self) -> None:
        """
        Create the directory if it is missing, and measure it.

        :raises DirectoryError: the directory is not private, or cannot be created.
        """
        private_directory(self._path)
        self._own.clear()
        for key, _, size in self._segments():
            self._own[key] += size

    @property
    def bytes(self) -> int:
        return sum(self._own.values())

    def own_bytes(self, key: str) -> int:
        return self._own[key]

    @property
    def limit_bytes(self) -> int:
        if self._limit:
            return self._limit
        filesystem = self._layer.statvfs(self._path)
        return int(filesystem.f_blocks * filesystem.f_frsize // 20)

    def directory(self, key: str) -> str:
        """Return the directory with the segments of a journal, which may not exist."""
        return os.path.join(self._path, key)

    def removing(self, path: str) -> None:
        """
        Retain a segment that is about to be removed, if a recording needs it; maybe in a thread.
        """
        directory, name = os.path.split(path)
        key, match = os.path.basename(directory), _SEGMENT.fullmatch(name)
        needed = self.needed.get(key)
        if match is None or needed is None:
            return
        first = int(match[1], 16)
        end = self._next(directory, first)
        if not any(each.overlaps(first, end) for each in needed):
            return
        try:
            while not self._link(key, path, os.path.join(self.directory(key), name)):
                pass
        except OSError as error:
            self.lost.append(Lost(key, first, end, reason_of(error)))

    def _next(self, directory: str, first: int) -> int | None:
        try:
            names = self._layer.listdir(directory)
        except OSError:
            return None  # then more may be retained than recordings need
        matches = map(_SEGMENT.fullmatch, names)
        later = [each for match in matches if match and (each := int(match[1], 16)) > first]
        return min(later, default=None)

    def _link(self, key: str, path: str, target: str) -> bool:
        try:
            size = self._layer.stat(path).st_size
        except FileNotFoundError:
            return True  # a segment has one of two names, for open and for sealed
        if self._own[key] + size > self.limit_bytes - self.bytes - size:
            raise OSError(
                f"recordings may retain {quantity.binary(self.limit_bytes)} (--recording-bytes), and those of one machine half "
                "of what the others leave"
            )
        try:
            self._layer.mkdir(os.path.dirname(target), 0o700)
        except FileExistsError:
            pass
        try:
            self._layer.link(path, target)
        except FileExistsError:
            return True
        except FileNotFoundError:
            return False  # release has removed the empty directory meanwhile
        self._count(key, size)
        return True

    def _count(self, key: str, size: int) -> None:
        with self._counting:
            self._own[key] += size

    def release(self) -> None:
        """Remove the segments that no recording needs any more."""
        firsts: dict[str, list[int]] = {}
        for directory, first, _ in self._segments():
            firsts.setdefault(directory, []).append(first)
        for path, key, first, size in list(self._named()):
            # The next segment may still be in the journal, so the end of this segment may be
            # too high here.
            end = min((each for each in firsts[key] if each > first), default=None)
            if any(each.overlaps(first, end) for each in self.needed.get(key, ())):
                continue
            self._layer.unlink(path)
            self._count(key, -size)
        for key in self._layer.listdir(self._path):
            with suppress(OSError):  # it is not empty, maybe since just now
                self._layer.rmdir(self.directory(key))

    def _segments(self) -> Iterator[tuple[str, int, int]]:
        for _, key, first, size in self._named():
            yield key, first, size

    def _named(self) -> Iterator[tuple[str, str, int, int]]:
        for key in self._layer.listdir(self._path):
            for name in self._layer.listdir(self.directory(key)):
                if match := _SEGMENT.fullmatch(name):
                    path = os.path.join(self.directory(key), name)
                    yield path, key, int(match[1], 16), self._layer.stat(path).st_size
