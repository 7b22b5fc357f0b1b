"""
The files of a journal as another process reads them, while the runtime may go on writing.

Reading changes nothing: only the runtime repairs files.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from twisted_exec.journal.file_access import ForeignFile, opened
from twisted_exec.journal.interfaces import Event, EventKind
from twisted_exec.journal.records import (
    FIRST_RECORD,
    Damaged,
    RecordKind,
    decode_event,
    open_header,
    records,
)
from twisted_exec.journal.segments import SealedSegment, check_segment

_SEGMENT = re.compile(r"([0-9a-f]{16})\.(?:open|sealed)")
_EPOCH = re.compile(rb"[0-9a-f]{16}")
_MAX_SEGMENT_BYTES = 64 << 20


@dataclass(frozen=True)
class PrintedOutput:
    """
    Output that was printed at one time.

    :param time_ns: nanoseconds since the epoch.
    """

    offset: int
    time_ns: int
    data: bytes


class NotAJournal(Exception):
    """The directory is not that of a journal."""


class Snapshot:
    """
    A journal as it is now.

    :param directory: of one journal, in ``consoles`` of a state directory.
    :param retained: further directories with segments of the journal.
    :param epoch: of the journal, if it is known; then the directory may be missing.
    :raises NotAJournal: the directory has no epoch.
    """

    def __init__(
        self,
        directory: str,
        layer: Any = os,
        *,
        retained: Sequence[str] = (),
        epoch: str = "",
    ) -> None:
        self._directories, self._layer = (directory, *retained), layer
        self.epoch: str = epoch or self._read_epoch(directory)

    def _read_epoch(self, directory: str) -> str:
        layer = self._layer
        try:
            with opened(layer, os.path.join(directory, "epoch")) as descriptor:
                epoch: bytes = layer.pread(descriptor, 64, 0).strip()
        except (FileNotFoundError, NotADirectoryError):
            epoch = b""
        if not _EPOCH.fullmatch(epoch):
            raise NotAJournal(
                f"{directory!r} is not the directory of a journal, such as consoles/UID in the "
                "state directory of a runtime"
            )
        return epoch.decode("ascii")

    def entries(self, begin: int = 0) -> Iterator[PrintedOutput | Event]:
        """
        Iterate over what is retained, in order.

        Missing output between two pieces is an event of the kind ``gap``, also if the journal has
        none.

        :param begin: begin at the segment with this offset, or one before.
        :raises NewerFormat: a segment is of a later release.
        """
        expected: int | None = None
        firsts = self._firsts()
        for first in firsts[max(0, bisect_left(firsts, begin) - 1) :]:
            for entry in self._segment(first):
                if isinstance(entry, PrintedOutput):
                    if expected is not None and entry.offset > expected:
                        missing = {"bytes": entry.offset - expected, "end": entry.offset}
                        yield Event(expected, entry.time_ns, EventKind.GAP, missing)
                    expected = entry.offset + len(entry.data)
                elif entry.kind == EventKind.GAP:
                    expected = max(expected or 0, entry.data["end"])
                yield entry

    def _firsts(self) -> list[int]:
        firsts: set[int] = set()
        for directory in self._directories:
            try:
                names = self._layer.listdir(directory)
            except FileNotFoundError:
                continue
            firsts |= {int(match[1], 16) for name in names if (match := _SEGMENT.fullmatch(name))}
        return sorted(firsts)

    def _segment(self, first: int) -> Iterator[PrintedOutput | Event]:
        epoch = bytes.fromhex(self.epoch)
        names = [
            os.path.join(directory, f"{first:016x}.{suffix}")
            for directory in self._directories
            # The runtime may seal the segment meanwhile: then the open file is gone.
            for suffix in ("sealed", "open", "sealed")
        ]
        for path in names:
            is_open = path.endswith(".open")
            try:
                if is_open:
                    data = self._read(path)
                    header, seed = open_header(data, epoch, first)
                    check_segment(header, first, epoch)
                else:
                    segment = SealedSegment(self._layer, path, first, epoch)
            except (FileNotFoundError, Damaged, ForeignFile):
                continue
            yield from _open(data, first, seed) if is_open else _sealed(segment)
            return

    def _read(self, path: str) -> bytes:
        with opened(self._layer, path) as descriptor:
            data: bytes = self._layer.pread(descriptor, _MAX_SEGMENT_BYTES, 0)
        return data


def _open(data: bytes, offset: int, seed: int) -> Iterator[PrintedOutput | Event]:
    for kind, time_ns, first, last in records(data, seed, FIRST_RECORD):
        payload = data[first:last]
        if kind == RecordKind.OUTPUT:
            yield PrintedOutput(offset, time_ns, payload)
            offset += len(payload)
        elif kind != RecordKind.INDEX:
            try:
                event, _ = decode_event(kind, time_ns, payload)
            except Damaged:
                continue
            if event is not None:
                yield event


def _sealed(segment: SealedSegment) -> Iterator[PrintedOutput | Event]:
    events = list(segment.events())
    for number in range(len(segment.firsts)):
        try:
            block = segment.block(number)
        except Damaged:
            continue
        for first, last, time_ns in block.runs():
            at = block.first + first
            end = block.first + last
            while events and events[0].offset < end:
                event = events.pop(0)
                if event.offset > at:
                    yield PrintedOutput(
                        at, time_ns, block.data[at - block.first : event.offset - block.first]
                    )
                    at = event.offset
                yield event
            yield PrintedOutput(at, time_ns, block.data[at - block.first : last])
    yield from events
