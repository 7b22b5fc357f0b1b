"""
Cursors of a journal's readers: in memory, or in a file beside the segments.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from zope.interface import implementer

from twisted_exec.journal.file_access import opened, replace_file
from twisted_exec.journal.interfaces import ICursor
from twisted_exec.program.disk_thread import Unanswered

_CONTENT = re.compile(rb"([0-9a-f]{16}) ([0-9]{1,19})\n")


@implementer(ICursor)
class MemoryCursor:
    """A cursor that ends with its journal."""

    def __init__(self) -> None:
        self._offset: int | None = None

    def load(self) -> int | None:
        return self._offset

    def save(self, offset: int) -> None:
        self._offset = offset


@implementer(ICursor)
class FileCursor:
    """A small file beside the segments, with epoch and offset."""

    def __init__(
        self,
        layer: Any,
        path: str,
        epoch: str,
        call: Callable[[Callable[[], Any]], Any] = lambda function: function(),
    ) -> None:
        self._layer, self._path, self._epoch, self._call = layer, path, epoch, call

    def load(self) -> int | None:
        try:
            match = self._call(self._load)
        except Unanswered:
            raise  # the file may have a position
        except OSError:
            return None
        if match is None or match[1].decode() != self._epoch:
            return None
        return int(match[2])

    def _load(self) -> re.Match[bytes] | None:
        with opened(self._layer, self._path) as descriptor:
            return _CONTENT.fullmatch(self._layer.pread(descriptor, 100, 0))

    def save(self, offset: int) -> None:
        self._call(partial(self._save, offset))

    def _save(self, offset: int) -> None:
        replace_file(self._layer, self._path, f"{self._epoch} {offset}\n".encode())
