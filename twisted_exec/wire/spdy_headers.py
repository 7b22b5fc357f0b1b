"""
The header blocks of SPDY/3.1: names and values, through one compression per direction.

All blocks of one direction are one zlib stream, whatever stream they are for;
each ends with a sync flush, so that it can be read when its frame is there.  So
every block must be read, also that of a frame which is then refused: the next
ones are written in its terms.  Go's reader waits for ever for a block that ends
with less than a sync flush.

A block may say that it holds four thousand million headers, and a kilobyte may
inflate to a megabyte; nothing is believed before it is within the limits.

zlib's state costs up to 300 KiB, and a console's connection lives for days after its
five blocks.  So what we write is stored as it is, which is a form of compression that
needs no state; and what we read is kept compressed, to be read again when, hardly
ever, one more block comes.

Sources: SPDY Protocol, Draft 3, section 2.6.10; ``github.com/moby/spdystream``,
``spdy/{read,write}.go`` (and CVE-2026-35469 for what it lacked).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError
from twisted_exec.wire.spdy_dictionary import DICTIONARY

Headers = tuple[tuple[bytes, bytes], ...]
"""Names in lower case, each with one value; a name may be there more than once."""

MAX_BLOCK_BYTES = 64 << 10
"""Of one block, inflated."""

MAX_HEADERS = 64
"""Of one block, several values of a name counted each."""

_KEPT_BYTES = 2 << 10
_BEGINNING = b"\x78\x20" + zlib.adler32(DICTIONARY).to_bytes(4, "big")
_SYNC = b"\0\0\0\xff\xff"
_STORED_BYTES = 0xFFFF


class HeaderWriter:
    """Writes the blocks of one direction."""

    def __init__(self) -> None:
        self._next = _BEGINNING  # of zlib's, with the dictionary's id

    def write(self, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """
        The next block.

        :raises LocalProtocolError: more than the other side would read.
        """
        values: dict[bytes, bytes] = {}
        for name, value in headers:
            known = values.get(name.lower())
            values[name.lower()] = value if known is None else known + b"\0" + value
        plain = _number(len(values)) + b"".join(
            _number(len(name)) + name + _number(len(value)) + value
            for name, value in values.items()
        )
        if len(plain) > MAX_BLOCK_BYTES:
            raise LocalProtocolError(f"a header block of {len(plain)} bytes is too large")
        beginning, self._next = self._next, b""
        parts = range(0, len(plain), _STORED_BYTES)
        stored = (_stored(plain[start : start + _STORED_BYTES]) for start in parts)
        return beginning + b"".join(stored) + _SYNC


def _stored(data: bytes) -> bytes:
    """Data as it is, in a block of RFC 1951's section 3.2.4."""
    size = len(data)
    return b"\0" + size.to_bytes(2, "little") + (size ^ 0xFFFF).to_bytes(2, "little") + data


class HeaderReader:
    """Reads the blocks of one direction, in order and none left out."""

    def __init__(self) -> None:
        self._kept: bytes | None = b""  # all blocks, while that is less than zlib's state
        self._kept_plain = 0
        self._zlib: zlib._Decompress | None = None

    def read(self, block: bytes) -> Headers:
        """
        The next block's headers.

        :param block: compressed; its size must be bounded by the caller.
        :raises RemoteProtocolError: it is none, or beyond a limit.
        """
        state = self._zlib or zlib.decompressobj(zlib.MAX_WBITS, zdict=DICTIONARY)
        try:
            if self._kept:
                state.decompress(self._kept)
            plain = state.decompress(block, MAX_BLOCK_BYTES + 1)
        except zlib.error:
            raise RemoteProtocolError("a header block cannot be decompressed") from None
        if len(plain) > MAX_BLOCK_BYTES:
            raise RemoteProtocolError(f"a header block is larger than {MAX_BLOCK_BYTES} bytes")
        if state.eof:
            raise RemoteProtocolError("the header compression was ended")
        self._keep(block, len(plain), state)
        return _Block(plain).headers()

    def _keep(self, block: bytes, size: int, state: zlib._Decompress) -> None:
        """The block, or what zlib knows behind it when the blocks are too many."""
        if self._kept is None:
            return
        self._kept += block
        self._kept_plain += size
        if len(self._kept) + self._kept_plain > _KEPT_BYTES:
            self._kept, self._zlib = None, state


class _Block:
    """One block, inflated."""

    def __init__(self, plain: bytes) -> None:
        self._plain, self._at = plain, 0

    def headers(self) -> Headers:
        count = self._number()
        if count > MAX_HEADERS:
            raise RemoteProtocolError(f"a header block has more than {MAX_HEADERS} headers")
        found: dict[bytes, list[bytes]] = {}
        for _ in range(count):
            name = self._text()
            if not name or name != name.lower() or name in found:
                raise RemoteProtocolError("header names are in lower case, and each comes once")
            found[name] = self._text().split(b"\0", MAX_HEADERS)
        if self._at != len(self._plain):
            raise RemoteProtocolError("a header block is longer than its headers")
        pairs = tuple((name, value) for name, values in found.items() for value in values)
        if len(pairs) > MAX_HEADERS:
            raise RemoteProtocolError(f"a header block has more than {MAX_HEADERS} values")
        return pairs

    def _number(self) -> int:
        return int.from_bytes(self._bytes(4), "big")

    def _text(self) -> bytes:
        return self._bytes(self._number())

    def _bytes(self, count: int) -> bytes:
        start, self._at = self._at, self._at + count
        if self._at > len(self._plain):
            raise RemoteProtocolError("a header block is shorter than its headers")
        return self._plain[start : self._at]


def _number(value: int) -> bytes:
    return value.to_bytes(4, "big")
