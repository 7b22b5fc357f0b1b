"""
Header blocks of SPDY/3.1: names and values, with one compression state per direction.

All blocks of one direction form a single zlib stream, whichever SPDY stream they belong to.  Each
ends with a sync flush, so that it can be read when its frame has arrived.  So every block must be
decompressed, even that of a refused frame: the next blocks refer to it.  Go's reader blocks
forever on a block that ends without a full sync flush.

A block can claim four billion headers, and a kilobyte can inflate to a megabyte, so every number is
checked against a limit before it is used.  Small blocks that inflate to the limit, one after the
other, would cost as much as a large one: beyond the first block headers may inflate only by the
ratio of ordinary ones.

zlib's state takes up to 300 KiB, and a console's connection lives for days after its five blocks.
So outgoing blocks are *stored*, a form of compression that needs no state.  Incoming blocks are
kept compressed, and decompressed again in the rare case that another one follows.

Sources: SPDY Protocol, Draft 3, section 2.6.10; ``github.com/moby/spdystream``,
``spdy/{read,write}.go`` (and CVE-2026-35469 for what it lacked).

The compression dictionary of SPDY/3, which both ends know before the first header block.

zlib finds repetitions in it, so that even the first block is short.  It is part of the protocol,
byte for byte: SPDY Protocol, Draft 3, section 2.6.10.1, where it is a table of bytes.  As text it
is a list of words in the form of a header block (a length of four bytes, then the word), followed
by common values.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError

SHA256 = "51d27341373f923f3cd88e1eb7162aeaa3723d7585ff2399201dc06498407f02"
"""Of :data:`DICTIONARY`, which is 1423 bytes long; the tests compare them."""

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
"""The preset dictionary of every header compression."""


Headers = tuple[tuple[bytes, bytes], ...]
"""Pairs of a lower-case name and one value; a name can occur more than once."""

MAX_BLOCK_BYTES = 64 << 10
"""Limit for one block, inflated."""

MAX_RATIO = 32
"""
Limit for the inflated size of all blocks after the first 64 KiB, in relation to their compressed
size.
"""

MAX_HEADERS = 64
"""Limit for one block; each value of a name counts."""

_MAX_REPLAY_BYTES = 2 << 10
_BEGINNING = b"\x78\x20" + zlib.adler32(DICTIONARY).to_bytes(4, "big")
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
            values[name.lower()] = value if previous is None else previous + b"\0" + value
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
    """Encode data as an uncompressed block (RFC 1951 §3.2.4)."""
    size = len(data)
    return b"\0" + size.to_bytes(2, "little") + (size ^ 0xFFFF).to_bytes(2, "little") + data


class HeaderReader:
    """Decodes the header blocks of one direction; they must come in order and without gaps."""

    def __init__(self) -> None:
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
            plain = state.decompress(block, MAX_BLOCK_BYTES + 1)
        except zlib.error:
            raise RemoteProtocolError("a header block cannot be decompressed") from None
        if len(plain) > MAX_BLOCK_BYTES:
            raise RemoteProtocolError(f"a header block is larger than {MAX_BLOCK_BYTES} bytes")
        if state.eof:
            raise RemoteProtocolError("the header compression was ended")
        self._excess = max(0, self._excess + len(plain) - MAX_RATIO * len(block))
        if self._excess > MAX_BLOCK_BYTES:
            raise RemoteProtocolError(
                f"the headers are more than {MAX_RATIO} times as large as their compressed form"
            )
        self._keep(block, len(plain), state)
        return _Block(plain).headers()

    def _keep(self, block: bytes, size: int, state: zlib._Decompress) -> None:
        """Keep the block, or zlib's state once the blocks outgrow it."""
        if self._replayed is None:
            return
        self._replayed += block
        self._replayed_plain += size
        if len(self._replayed) + self._replayed_plain > _MAX_REPLAY_BYTES:
            self._replayed, self._zlib = None, state


class _Block:
    """One inflated block."""

    def __init__(self, plain: bytes) -> None:
        self._plain, self._at = plain, 0

    def headers(self) -> Headers:
        count = self._number()
        if count > MAX_HEADERS:
            raise RemoteProtocolError(f"a header block has more than {MAX_HEADERS} headers")
        by_name: dict[bytes, list[bytes]] = {}
        for _ in range(count):
            name = self._text()
            if not name or name != name.lower() or name in by_name:
                raise RemoteProtocolError("header names are in lower case, and each comes once")
            by_name[name] = self._text().split(b"\0", MAX_HEADERS)
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
