"""
Print everything that a journal has retained: ``read_journal.py DIRECTORY``.

It needs nothing but Python; ``docs/reference/journal-format.rst`` describes the format.
"""

from __future__ import annotations

import os
import struct
import sys
import zlib
from collections.abc import Iterator
from hashlib import sha256

OPEN, SEALED, END = b"\x89TXJ-o\r\n", b"\x89TXJ-s\r\n", b"\x89TXJ-e\r\n"
OUTPUT, INDEX = 1, 9


def header(data: bytes, magic: bytes, epoch: bytes) -> tuple[int, int]:
    """Return offset of the first byte and CRC; raise ValueError if the segment cannot be used."""
    (crc,) = struct.unpack_from("<I", data, 56)
    if data[:8] != magic or crc != zlib.crc32(data[:56]) or data[16:24] != epoch:
        raise ValueError("not a segment of this journal")
    return struct.unpack_from("<Q", data, 24)[0], crc


def open_segment(data: bytes, epoch: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield offsets and output of an open segment."""
    offset, seed = header(data, OPEN, epoch)
    at = 208
    while at + 16 <= len(data):
        crc, length, kind = struct.unpack_from("<IHB", data, at)
        record, payload = data[at + 4 : at + 16 + length], data[at + 16 : at + 16 + length]
        if len(payload) < length or zlib.crc32(record, seed) != crc:
            return  # the end, or damage, after which an index record continues
        if kind == OUTPUT:
            yield offset, payload
            offset += length
        at += 16 + length


def sealed_segment(data: bytes, epoch: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield offsets and output of a sealed segment."""
    header(data, SEALED, epoch)
    trailer = data[-64:]
    index, _, _, count = struct.unpack_from("<QQQI", trailer, 8)
    if trailer[:8] != END or zlib.crc32(trailer[:52]) != struct.unpack_from("<I", trailer, 52)[0]:
        raise ValueError("the trailer is damaged")
    for entry in range(index, index + count * 88, 88):
        offset, position, raw, stored, times = struct.unpack_from("<Q16xQIII", data, entry)
        block = data[position : position + stored]
        if data[entry + 52] == 1:
            block = zlib.decompress(block)
        output = block[times : times + raw]
        if sha256(output).digest() == data[entry + 56 : entry + 88]:
            yield offset, output


def journal(directory: str) -> Iterator[tuple[int, bytes]]:
    """Yield offsets and output of a journal."""
    with open(os.path.join(directory, "epoch")) as file:
        epoch = bytes.fromhex(file.read())
    kinds: dict[str, str] = {}
    for name in sorted(os.listdir(directory)):
        first, _, kind = name.partition(".")
        if kind in ("open", "sealed"):
            kinds[first] = kind  # "sealed" sorts after "open"
    for first, kind in sorted(kinds.items()):
        with open(os.path.join(directory, f"{first}.{kind}"), "rb") as segment:
            data = segment.read()
        try:
            yield from (open_segment if kind == "open" else sealed_segment)(data, epoch)
        except (ValueError, struct.error, zlib.error) as error:
            print(f"{first}.{kind}: {error}", file=sys.stderr)


def main() -> None:
    """Write the output, and where it is missing."""
    if len(sys.argv) != 2:
        sys.exit("read_journal.py DIRECTORY")
    end: int | None = None
    for offset, output in journal(sys.argv[1]):
        if end is not None and offset != end:
            print(f"[{offset - end} offsets without output]", file=sys.stderr)
        sys.stdout.buffer.write(output)
        end = offset + len(output)


if __name__ == "__main__":
    main()
