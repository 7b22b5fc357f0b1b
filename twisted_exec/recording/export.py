"""
The export of a range of a journal as a recording.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping

from twisted_exec.journal.interfaces import Event, Kind
from twisted_exec.journal.snapshot import Output, Snapshot

from .chain import MILLISECOND, Info
from .signatures import Signer
from .writer import Writer

HEAD_BYTES = 4 << 20
"""A head follows after so much output, so that a part whose end is lost is still proven."""
_MERGED_BYTES = 64 << 10
_DEFAULT_SIZE: Mapping[str, int] = {"columns": 80, "rows": 24}


class NothingPrinted(Exception):
    """The journal has no output in the range."""


def export(
    journal: Snapshot,
    signer: Signer,
    now: Callable[[], int],
    *,
    machine: Mapping[str, str],
    first: int | None = None,
    last: int | None = None,
) -> Iterator[bytes]:
    """
    Iterate over the text of a closed recording.

    :param now: the time of day, in nanoseconds since the epoch.
    :param machine: see :class:`Info`.
    :param first: only what was printed at this time or later, in nanoseconds since the epoch.
    :param last: only what was printed at this time or before.
    :raises NothingPrinted: there is no output in the range.
    :raises UnusableCertificate: the signer cannot sign now.
    """
    signer.require_valid(now() // MILLISECOND)
    writer: Writer | None = None
    size, signed = _DEFAULT_SIZE, 0
    for entry in _merged(journal.entries()):
        if last is not None and entry.time_ns > last:
            break
        is_output = isinstance(entry, Output)
        if writer is None:
            if (first is not None and entry.time_ns < first) or not is_output:
                if not isinstance(entry, Output) and entry.kind == Kind.SIZE:
                    size = entry.data
                continue
            names = [machine[key] for key in ("namespace", "name") if key in machine]
            writer = Writer(
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
        if isinstance(entry, Output):
            yield writer.output(entry.time_ns, entry.offset, entry.data)
            if entry.offset - signed >= HEAD_BYTES:
                yield writer.sign_head(now())
                signed = entry.offset
        elif entry.kind != Kind.INPUT:  # it is for the recordings that asked for it
            yield writer.event(entry)
    if writer is None:
        raise NothingPrinted("the journal has no output in this range")
    yield writer.close(now())


def _merged(entries: Iterator[Output | Event]) -> Iterator[Output | Event]:
    """Join output of one time, which the line often delivers byte by byte."""
    pieces: list[Output] = []
    size = 0
    for entry in entries:
        if pieces and (
            not isinstance(entry, Output)
            or entry.time_ns != pieces[0].time_ns
            or entry.offset != pieces[0].offset + size
            or size >= _MERGED_BYTES
        ):
            yield _joined(pieces)
            pieces, size = [], 0
        if isinstance(entry, Output):
            pieces.append(entry)
            size += len(entry.data)
        else:
            yield entry
    if pieces:
        yield _joined(pieces)


def _joined(pieces: list[Output]) -> Output:
    data = b"".join(each.data for each in pieces)
    return Output(pieces[0].offset, pieces[0].time_ns, data)
