"""
Recordings made from existing data: a range of a journal, or some blocks of a recording.

Blocks of a recording are as proven in an excerpt as in the whole recording.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO

from twisted_exec.journal.interfaces import Event, EventKind
from twisted_exec.journal.snapshot import PrintedOutput, Snapshot
from twisted_exec.recording.chain import (
    CERTIFICATE,
    HEAD,
    MILLISECOND,
    Info,
    InvalidRecording,
    decode_head,
    omitted_line,
)
from twisted_exec.recording.playback import BlockStart, block_from
from twisted_exec.recording.signatures import HeadSigner
from twisted_exec.recording.verification import Blocks, Section
from twisted_exec.recording.writer import RecordingWriter

HEAD_BYTES = 4 << 20
"""A head follows after so much output: a recording whose end is lost is proven up to its last head."""
_MERGED_BYTES = 64 << 10
_DEFAULT_SIZE: Mapping[str, int] = {"columns": 80, "rows": 24}


class NothingPrinted(Exception):
    """The journal has no output in the range."""


_LEFT_OUT = (EventKind.INPUT, EventKind.HIDDEN)
"""Input is for the recordings that asked for it; a recording has all output, also what screens do not show."""


def export(
    journal: Snapshot,
    signer: HeadSigner,
    now: Callable[[], int],
    *,
    machine: Mapping[str, str],
    first: int | None = None,
    last: int | None = None,
) -> Iterator[bytes]:
    """
    Iterate over the text of a closed recording.

    :param first: only what was printed at this time or later, in nanoseconds since the epoch.
    :param last: only what was printed at this time or before.
    :param now: the time of day, in nanoseconds since the epoch.
    :raises NothingPrinted: there is no output in the range.
    :raises UnusableCertificate: the signer cannot sign now.
    """
    signer.require_valid(now() // MILLISECOND)
    writer: RecordingWriter | None = None
    size, signed = _DEFAULT_SIZE, 0
    for entry in _merged(journal.entries()):
        if last is not None and entry.time_ns > last:
            break
        is_output = isinstance(entry, PrintedOutput)
        if writer is None:
            if (first is not None and entry.time_ns < first) or not is_output:
                if not isinstance(entry, PrintedOutput) and entry.kind == EventKind.SIZE:
                    size = entry.data
                continue
            names = [machine[key] for key in ("namespace", "name") if key in machine]
            writer = RecordingWriter(
                Info(
                    secrets.token_hex(16),
                    dict(machine),
                    journal.epoch,
                    entry.offset,
                    entry.time_ns // MILLISECOND,
                ),
                signer,
                columns=size["columns"],
                rows=size["rows"],
                title="/".join(names),
            )
            yield writer.begin()
            signed = entry.offset
        if isinstance(entry, PrintedOutput):
            yield writer.output(entry.time_ns, entry.offset, entry.data)
            if entry.offset - signed >= HEAD_BYTES:
                yield writer.sign_head(now())
                signed = entry.offset
        elif entry.kind not in _LEFT_OUT:
            yield writer.event(entry)
    if writer is None:
        raise NothingPrinted("the journal has no output in this range")
    yield writer.close(now())


def _merged(entries: Iterator[PrintedOutput | Event]) -> Iterator[PrintedOutput | Event]:
    pieces: list[PrintedOutput] = []
    size = 0
    for entry in entries:
        if pieces and (
            not isinstance(entry, PrintedOutput)
            or entry.time_ns != pieces[0].time_ns
            or entry.offset != pieces[0].offset + size
            or size >= _MERGED_BYTES
        ):
            yield _joined(pieces)
            pieces, size = [], 0
        if isinstance(entry, PrintedOutput):
            pieces.append(entry)
            size += len(entry.data)
        else:
            yield entry
    if pieces:
        yield _joined(pieces)


def _joined(pieces: list[PrintedOutput]) -> PrintedOutput:
    data = b"".join(each.data for each in pieces)
    return PrintedOutput(pieces[0].offset, pieces[0].time_ns, data)


_COPY_BYTES = 1 << 20


def excerpt(file: BinaryIO, first: int, last: int) -> Iterator[bytes]:
    """
    Iterate over the text of an excerpt, which has whole blocks.

    :param file: a closed recording; an excerpt is one, too.
    :param first: milliseconds since the epoch, as is ``last``.
    :raises InvalidRecording: the recording is damaged or not closed, or has nothing in the range.
    """
    file.seek(0)
    sections = list(Blocks(file))
    heads = [decode_head(line)[0] for line in sections[-1].lines if line.startswith(HEAD)]
    if not heads or not heads[-1].closed:
        raise InvalidRecording("only of a closed recording can a part be cut out: close it first")
    begins = [_begin(file, section) for section in sections]
    is_wanted = _within(begins, first, last)
    if not any(is_wanted):
        raise InvalidRecording("the recording has nothing between these times")
    for number, section in enumerate(sections[:-1]):
        has_facts = any(line.startswith((CERTIFICATE, b"{")) for line in section.lines)
        if section.omitted >= 0:
            yield section.line
        elif is_wanted[number] or has_facts:
            yield from _copy(file, section)
        else:
            yield omitted_line(number, section.digest)
    yield from sections[-1].lines


def _begin(file: BinaryIO, section: Section) -> BlockStart | None:
    if section.omitted >= 0:
        return None
    at = block_from(file, section.first)
    return at if at is not None and at.position < section.end else None


def _within(begins: list[BlockStart | None], first: int, last: int) -> list[bool]:
    is_within, end = [], 1 << 62
    for begin in reversed(begins):
        # The events of a block happened before the next block began.
        is_within.append(begin is not None and begin.time <= last and end >= first)
        if begin is not None:
            end = begin.time
    return is_within[::-1]


def _copy(file: BinaryIO, section: Section) -> Iterator[bytes]:
    file.seek(section.first)
    left = section.end - section.first
    while left > 0:
        data = file.read(min(left, _COPY_BYTES))
        if not data:
            raise InvalidRecording("the recording became shorter")
        left -= len(data)
        yield data
