"""
The directories of journals, named by their keys.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from twisted_exec.journal.file_access import check_directory, opened, replace_file
from twisted_exec.journal.retention import (
    DEFAULT_RETENTION,
    JournalUsage,
    Retention,
    SegmentFile,
    Space,
)

_KEY = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}")
_SEGMENT = re.compile(r"([0-9a-f]{16})\.(?:open|sealed)")
_TIME = re.compile(rb"([0-9]{1,19})\n")
_DELETED = "deleted"
_FACTS = "facts"
_MAX_FACTS_BYTES = 64 << 10


def is_key(text: str) -> bool:
    """Return whether a text is the key of a journal: a UUID, or 32 hexadecimal digits."""
    return _KEY.fullmatch(text) is not None


class Directories:
    """
    The directories of one store. Methods raise :class:`OSError`.

    :ivar removing: called with each path of a segment before it is removed, maybe in a thread.
    """

    def __init__(self, layer: Any, path: str) -> None:
        self._layer, self._path = layer, path
        self.removing: Callable[[str], None] = lambda path: None

    def file(self, *names: str) -> str:
        return os.path.join(self._path, *names)

    def keys(self) -> Iterator[str]:
        return (name for name in self._layer.listdir(self._path) if is_key(name))

    # Deleted machines.

    def mark_deleted(self, key: str, facts: Mapping[str, str], now: int) -> None:
        """
        Note that a machine was deleted, and the facts about it.

        :param now: in nanoseconds since the epoch.
        """
        check_directory(self._layer, self.file(key))  # all files of a marked directory are removed
        # The mark last, so that each marked journal has its facts.
        replace_file(self._layer, self.file(key, _FACTS), json.dumps(dict(facts)).encode())
        replace_file(self._layer, self.file(key, _DELETED), f"{now}\n".encode())

    def unmark_deleted(self, key: str) -> None:
        with suppress(FileNotFoundError):
            self._layer.unlink(self.file(key, _DELETED))

    def deleted(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        for key in self.keys():
            try:
                self._layer.stat(self.file(key, _DELETED))
                with opened(self._layer, self.file(key, _FACTS)) as file:
                    facts = json.loads(self._layer.pread(file, _MAX_FACTS_BYTES, 0))
            except (OSError, ValueError):
                continue  # the machine exists, or its facts are lost: only its UID is known
            if isinstance(facts, dict):
                yield key, {str(name): str(value) for name, value in facts.items()}

    # Retention.

    def space(self) -> Space:
        """Return the space of their file system."""
        filesystem = self._layer.statvfs(self._path)
        unit = filesystem.f_frsize
        return Space(filesystem.f_blocks * unit, filesystem.f_bavail * unit)

    def usages(self, retentions: Mapping[str, Retention]) -> Iterator[JournalUsage]:
        for key in self.keys():
            segments = {}
            deleted_at = 0
            try:
                for name in self._layer.listdir(self.file(key)):
                    if match := _SEGMENT.fullmatch(name):
                        entry = self._layer.lstat(self.file(key, name))
                        first = int(match[1], 16)
                        if stat.S_ISREG(entry.st_mode):
                            segments[first] = SegmentFile(first, entry.st_size, entry.st_mtime_ns)
                    elif name == _DELETED:
                        deleted_at = self._deleted_at(key)
            except OSError:
                continue  # it changes just now
            retention = retentions.get(key, DEFAULT_RETENTION)
            yield JournalUsage(
                key, [segments[each] for each in sorted(segments)], retention, deleted_at
            )

    def _deleted_at(self, key: str) -> int:
        with opened(self._layer, self.file(key, _DELETED)) as descriptor:
            match = _TIME.fullmatch(self._layer.pread(descriptor, 30, 0))
            if match is None:  # a power cut, or a release that did not replace the file as a whole
                return int(self._layer.fstat(descriptor).st_mtime_ns)
        return int(match[1])

    def remove_segment(self, key: str, first: int) -> None:
        """
        Remove a segment of a journal that is not in use; with the last segment, the whole journal.
        """
        for kind in ("open", "sealed"):
            path = self.file(key, f"{first:016x}.{kind}")
            self.removing(path)
            try:
                self._layer.unlink(path)
            except FileNotFoundError:
                pass
        if not any(_SEGMENT.fullmatch(name) for name in self._layer.listdir(self.file(key))):
            self.remove(key)

    def remove(self, key: str) -> None:
        for name in self._layer.listdir(self.file(key)):
            if _SEGMENT.fullmatch(name):
                self.removing(self.file(key, name))
            with suppress(IsADirectoryError):  # then the last call fails, and the rest is gone
                self._layer.unlink(self.file(key, name))
        self._layer.rmdir(self.file(key))
