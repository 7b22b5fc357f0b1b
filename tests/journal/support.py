"""
A disk for journals without a store.
"""

from __future__ import annotations

import os
from typing import Any

from twisted_exec.journal.files import Files, Place
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.sealed_segment import seal


def close_segments() -> None:
    """
    Close the segments that a test left open, as the end of a process does.

    Journals are dropped without being closed to simulate that a program was killed.
    """
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}").removesuffix(" (deleted)")
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
        if target.endswith((".open", ".sealed")):
            os.close(int(name))


class ManualDisk:
    """
    The place of one journal; the test seals and forces output to the disk when it wants.

    :ivar full: files with a segment that can be sealed.
    :ivar failures: the reasons that the journal reported.
    """

    def __init__(self, path: str, layer: Any = os, run: int = 1, cut: int = 0) -> None:
        self.place = Place(layer, path, run, cut)
        self.full: list[Files] = []
        self.failures: list[str] = []

    def open(self, journal: Journal) -> Files:
        return Files(self.place, journal.now(), self.full.append, journal.memory_epoch)

    def changed(self, journal: Journal) -> None:
        """Nothing: the test calls :func:`sync`."""

    def failed(self, journal: Journal, reason: str) -> None:
        self.failures.append(reason)

    def seal_all(self) -> None:
        """Seal every full segment."""
        for files in self.full:
            for first in list(files.pending):
                seal_one(files, first)
        self.full.clear()


def seal_one(files: Files, first: int) -> None:
    """Seal one segment, as the store does in a thread."""
    place = files.place
    seal(place.layer, files.path(first, "open"), files.path(first, "sealed"), first, files.epoch)
    files.sealed(first)


def sync(journal: Journal) -> None:
    """Force the output of a journal to the disk."""
    files = journal.files
    assert files is not None
    checkpoint = files.open.checkpoint()
    files.open.sync(checkpoint)
    files.open.synchronized(checkpoint)
    journal.is_dirty = False


def contents(journal: Journal) -> bytes:
    """Everything that can be read, without gaps."""
    read = bytearray()
    offset = journal.start
    while (offset := journal.next_available(offset)) < journal.end:
        data = journal.read(offset, 100_000)
        if data:
            read += data
            offset += len(data)
    return bytes(read)
