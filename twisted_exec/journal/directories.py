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

from twisted_exec.journal.file_access import opened
from twisted_exec.journal.retention import JournalUsage, Retention, SegmentFile

_KEY = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}")
_SEGMENT = re.compile(r"([0-9a-f]{16})\.(?:open|sealed)")
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
        with opened(self._layer, self.file(key, _DELETED), os.O_WRONLY | os.O_CREAT) as file:
            self._layer.write(file, f"{now}\n".encode())
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with opened(self._layer, self.file(key, _FACTS), flags) as file:
            self._layer.write(file, json.dumps(dict(facts)).encode())

    def unmark_deleted(self, key: str) -> None:
        self._layer.unlink(self.file(key, _DELETED))

    def deleted(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        for key in self.keys():
            try:
                self._layer.stat(self.file(key, _DELETED))
                with opened(self._layer, self.file(key, _FACTS)) as file:
                    facts = json.loads(self._layer.pread(file, _MAX_FACTS_BYTES, 0))
            except (OSError, ValueError):
                continue  # the machine exists
            if isinstance(facts, dict):
                yield key, {str(name): str(value) for name, value in facts.items()}

    # Retention.

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
            retention = retentions.get(key, Retention())
            yield JournalUsage(
                key, [segments[each] for each in sorted(segments)], retention, deleted_at
            )

    def _deleted_at(self, key: str) -> int:
        with opened(self._layer, self.file(key, _DELETED)) as descriptor:
            text = self._layer.pread(descriptor, 30, 0).strip()
        return int(text) if text.isdigit() else 1

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
