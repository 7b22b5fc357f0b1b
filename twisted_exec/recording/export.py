"""A range of a journal as a recording."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping

from twisted_exec.api.times import span
from twisted_exec.journal.interfaces import Event, EventKind
from twisted_exec.journal.snapshot import PrintedOutput, Snapshot
from twisted_exec.recording.proof_lines import MILLISECOND, Info
from twisted_exec.recording.signatures import HeadSigner
from twisted_exec.recording.writer import RecordingWriter

HEAD_BYTES = 4 << 20
"""A head follows after so much output: a recording whose end is lost is proven up to its last head."""
_MERGED_BYTES = 64 << 10
_DEFAULT_SIZE: Mapping[str, int] = {"columns": 80, "rows": 24}


class NothingPrinted(Exception):
    """
    There is no output in the range.

    :param first: time of the first output outside of the range, in milliseconds since the epoch; 0 if there is none.
    :param last: that of the last one.
    """

    def __init__(self, message: str, first: int = 0, last: int = 0) -> None:
        there_is = f"; there is output {span(first / 1000, last / 1000)}" if first else ""
        super().__init__(f"{message}{there_is}")


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
        elif entry.kind != EventKind.INPUT:  # which is for the recordings that asked for it
            yield writer.event(entry)
    if writer is None:
        raise NothingPrinted("the journal has no output in this range", *_extent(journal))
    yield writer.close(now())


def _extent(journal: Snapshot) -> tuple[int, int]:
    """Return the times of the first and the last output, in milliseconds since the epoch; 0 without output."""
    first = last = 0
    for entry in journal.entries():
        if isinstance(entry, PrintedOutput):
            last = entry.time_ns // MILLISECOND
            first = first or last
    return first, last


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
