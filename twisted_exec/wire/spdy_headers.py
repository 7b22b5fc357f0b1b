"""
Header blocks of SPDY/3.1 with their compression, sans I/O.

All header blocks of one direction form a single zlib stream.  A kilobyte can inflate to a megabyte,
so numbers are checked against limits before they are used.  Outgoing blocks are not compressed
(*stored* blocks of RFC 1951).

Sources: SPDY Protocol, Draft 3, section 2.6.10; ``github.com/moby/spdystream``,
``spdy/{types,read,write}.go`` (and CVE-2026-35469 for what its header blocks lacked).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError

SHA256 = "51d27341373f923f3cd88e1eb7162aeaa3723d7585ff2399201dc06498407f02"
"""The SHA-256 of :data:`DICTIONARY`."""

_WORDS = [
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
]
_WORDS += ["200 OK"]
_WORDS += ["version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin"]

_VALUES = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    "401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    "503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, "
    "Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,"
    "text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch"
    "charset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)

DICTIONARY = b"".join(
    len(word).to_bytes(4, "big") + word.encode("ascii") for word in _WORDS
) + _VALUES.encode("ascii")

Headers = tuple[tuple[bytes, bytes], ...]
"""Pairs of a lower-case name and one value; names may repeat."""

MAX_BLOCK_BYTES = 64 << 10
"""Limit for one block, inflated."""

MAX_RATIO = 32
"""
Limit for the inflated size of blocks in relation to their compressed size, beyond the first 64 KiB.
"""

MAX_HEADERS = 64
"""Limit for one block; each value of a name counts."""

_MAX_REPLAY_BYTES = 2 << 10
# CMF, FLG with FDICT, and the dictionary's id (RFC 1950 §2.2).
_BEGINNING = b"\x78\x20" + zlib.adler32(DICTIONARY).to_bytes(4, "big")
# An empty stored block.  Go's reader blocks forever on a block that ends without a full sync flush:
# a partial flush ends kubectl with "Timeout occurred".
_SYNC = b"\0\0\0\xff\xff"
_STORED_BYTES = 0xFFFF


class HeaderWriter:
    """Encodes the header blocks of one direction."""

    def __init__(self) -> None:
        self._next = _BEGINNING  # the zlib header, with the id of the dictionary

    def write(self, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """
        Encode the next block.

        :raises LocalProtocolError: the block exceeds what the peer would read.
        """
        values: dict[bytes, bytes] = {}
        for name, value in headers:
            previous = values.get(name.lower())
            # A name comes once, with its values joined by NUL (Draft 3, section 2.6.10).
            values[name.lower()] = value if previous is None else previous + b"\0" + value
        plain = _number(len(values)) + b"".join(
            _number(len(name)) + name + _number(len(value)) + value
            for name, value in values.items()
        )
        if len(plain) > MAX_BLOCK_BYTES:
            raise LocalProtocolError(f"a header block of {len(plain)} bytes is too large")
        beginning, self._next = self._next, b""
        parts = range(0, len(plain), _STORED_BYTES)
        # Stored blocks need no state: zlib's takes up to 300 KiB, and a console's connection lives
        # for days after its five blocks.
        stored = (_stored(plain[start : start + _STORED_BYTES]) for start in parts)
        return beginning + b"".join(stored) + _SYNC


def _stored(data: bytes) -> bytes:
    size = len(data)
    return b"\0" + size.to_bytes(2, "little") + (size ^ 0xFFFF).to_bytes(2, "little") + data


class HeaderReader:
    """Decodes the header blocks of one direction, in order and without gaps."""

    def __init__(self) -> None:
        # Blocks are kept compressed, and decompressed again in the rare case that another block
        # follows.
        self._replayed: bytes | None = (
            b""  # all blocks so far, while they are smaller than zlib's state
        )
        self._replayed_plain = 0
        self._excess = 0  # inflated bytes beyond the ratio
        self._zlib: zlib._Decompress | None = None

    def read(self, block: bytes) -> Headers:
        """
        Decode the next block.

        :param block: compressed; the caller must bound its size.
        :raises RemoteProtocolError: the block is malformed or exceeds a limit.
        """
        state = self._zlib or zlib.decompressobj(zlib.MAX_WBITS, zdict=DICTIONARY)
        try:
            if self._replayed:
                state.decompress(self._replayed)
            # One byte more shows that the block is too large, without inflating all of it.
            plain = state.decompress(block, MAX_BLOCK_BYTES + 1)
        except zlib.error:
            raise RemoteProtocolError("a header block cannot be decompressed") from None
        if len(plain) > MAX_BLOCK_BYTES:
            raise RemoteProtocolError(f"a header block is larger than {MAX_BLOCK_BYTES} bytes")
        # All blocks of a direction are one stream; after its end none could be read.
        if state.eof:
            raise RemoteProtocolError("the header compression was ended")
        # Small blocks that inflate to the limit, one after the other, would cost as much as a large
        # one: beyond the first block headers may inflate only by the ratio of ordinary ones.
        self._excess = max(0, self._excess + len(plain) - MAX_RATIO * len(block))
        if self._excess > MAX_BLOCK_BYTES:
            raise RemoteProtocolError(
                f"the headers are more than {MAX_RATIO} times as large as their compressed form"
            )
        self._keep(block, len(plain), state)
        return _Block(plain).headers()

    def _keep(self, block: bytes, size: int, state: zlib._Decompress) -> None:
        if self._replayed is None:
            return
        self._replayed += block
        self._replayed_plain += size
        if len(self._replayed) + self._replayed_plain > _MAX_REPLAY_BYTES:
            self._replayed, self._zlib = None, state


class _Block:
    def __init__(self, plain: bytes) -> None:
        self._plain, self._at = plain, 0

    def headers(self) -> Headers:
        count = self._number()
        # A block can claim four billion headers: spdystream believed the number (CVE-2026-35469).
        if count > MAX_HEADERS:
            raise RemoteProtocolError(f"a header block has more than {MAX_HEADERS} headers")
        by_name: dict[bytes, list[bytes]] = {}
        for _ in range(count):
            name = self._text()
            # Draft 3, section 2.6.10.
            if not name or name != name.lower() or name in by_name:
                raise RemoteProtocolError("header names are in lower case, and each comes once")
            # The limit bounds the list before its items are counted.
            by_name[name] = self._text().split(b"\0", MAX_HEADERS)
        # spdystream demands it, too (read.go, WrongCompressedPayloadSize).
        if self._at != len(self._plain):
            raise RemoteProtocolError("a header block is longer than its headers")
        pairs = tuple((name, value) for name, values in by_name.items() for value in values)
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
