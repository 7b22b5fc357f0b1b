"""
SPDY/3.1, sans I/O: frames, and header blocks with their compression.

The payload of data frames is returned in pieces as it arrives.  All header blocks of one direction
form a single zlib stream.  A kilobyte can inflate to a megabyte, so numbers are checked against
limits before they are used.  Outgoing blocks are not compressed (*stored* blocks of RFC 1951).

Sources: SPDY Protocol, Draft 3, section 2, and 2.6.10 for header blocks;
``github.com/moby/spdystream``, ``spdy/{types,read,write}.go`` (and CVE-2026-35469 for what its
header blocks lacked).
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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

PIECE_BYTES = 32 << 10
"""The largest piece of a data frame's payload that is returned or sent at once."""

MAX_SETTINGS = 64
"""Most settings of one frame."""

# Status codes: of a stream in RST_STREAM, of a connection in GOAWAY.
PROTOCOL_ERROR, REFUSED_STREAM, CANCEL = 1, 3, 5
GOING_WELL, GOING_WRONG = 0, 1

_VERSION = 0x8003
_FIN, _UNIDIRECTIONAL = 1, 2
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 1, 2, 3, 4, 6, 7
_HEADERS, _WINDOW_UPDATE = 8, 9

_HEAD = struct.Struct(">II")
_TWO_NUMBERS = struct.Struct(">II")
_ID_MASK = 0x7FFFFFFF

# zlib adds a few bytes to data that it cannot compress.
_MOST_COMPRESSED_BYTES = MAX_BLOCK_BYTES + 1024
_LENGTHS = {
    _SYN_STREAM: (10, 10 + _MOST_COMPRESSED_BYTES),
    _SYN_REPLY: (4, 4 + _MOST_COMPRESSED_BYTES),
    _RST_STREAM: (8, 8),
    _SETTINGS: (4, 4 + 8 * MAX_SETTINGS),
    _PING: (4, 4),
    _GOAWAY: (8, 8),
    _HEADERS: (4, 4 + _MOST_COMPRESSED_BYTES),
    _WINDOW_UPDATE: (8, 8),
}


class HeaderWriter:
    """Encodes the header blocks of one direction."""

    def __init__(self) -> None:
        self._next = _BEGINNING  # the zlib header, with the id of the dictionary

    def go_on(self) -> None:
        """Go on behind the first block, which another process has written."""
        self._next = b""

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

    def export(self) -> list[Any] | None:
        """
        Return the state for another process, as JSON values.

        :return: ``None`` if there were so many blocks that they are not kept.
        """
        if self._replayed is None:
            return None
        replayed = b64encode(self._replayed).decode("ascii")
        return [replayed, self._replayed_plain, self._excess]

    def restore(self, values: list[Any]) -> None:
        replayed, self._replayed_plain, self._excess = values
        self._replayed = b64decode(replayed, validate=True)

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


@dataclass(frozen=True)
class SynStream:
    """Opens a stream."""

    stream_id: int
    headers: Headers
    fin: bool = False
    unidirectional: bool = False


@dataclass(frozen=True)
class SynReply:
    """Accepts a stream."""

    stream_id: int
    headers: Headers = ()
    fin: bool = False


@dataclass(frozen=True)
class RstStream:
    """Ends a stream in both directions.  ``status`` is the reason."""

    stream_id: int
    status: int


@dataclass(frozen=True)
class SPDYSettings:
    """Pairs of ``(identifier with its flags in the highest byte, value)``, at most 64."""

    values: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Ping:
    """To be echoed if its id has the peer's parity."""

    ping_id: int


@dataclass(frozen=True)
class GoAway:
    """The sender ends the connection."""

    last_stream_id: int
    status: int


@dataclass(frozen=True)
class HeaderFrame:
    """Further headers of an open stream (type HEADERS)."""

    stream_id: int
    headers: Headers
    fin: bool = False


@dataclass(frozen=True)
class WindowUpdate:
    """Flow control, which Kubernetes does not use."""

    stream_id: int
    delta: int


@dataclass(frozen=True)
class Data:
    """A piece of a data frame, 0 to 32 KiB.  ``fin``: the last piece of the stream."""

    stream_id: int
    data: bytes
    fin: bool = False


Frame = (
    SynStream
    | SynReply
    | RstStream
    | SPDYSettings
    | Ping
    | GoAway
    | HeaderFrame
    | WindowUpdate
    | Data
)


_OF_STREAMS = (SynStream, SynReply, RstStream, HeaderFrame)


class FrameReader:
    """Parses one direction of a connection."""

    def __init__(self) -> None:
        self._headers = HeaderReader()
        self._buffer = bytearray()
        self._start = 0  # of the unread part
        self._stream_id = 0  # of the data frame under way
        self._left = 0
        self._fin = False

    @property
    def rest_bytes(self) -> int:
        """The number of bytes that complete the current data frame; 0 between frames."""
        return self._left

    @property
    def unread(self) -> int:
        """The number of bytes that are fed, and belong to no frame or piece yet."""
        return len(self._buffer) - self._start

    def export(self) -> dict[str, Any] | None:
        """
        Return the state before :attr:`unread` as JSON values.

        :return: ``None`` if another process could not read further headers.
        """
        headers = self._headers.export()
        if headers is None:
            return None
        return {"headers": headers, "data": [self._stream_id, self._left, self._fin]}

    def restore(self, values: Mapping[str, Any]) -> None:
        """Continue the reader of another process."""
        self._headers.restore(values["headers"])
        self._stream_id, self._left, self._fin = values["data"]

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_frame(self) -> Frame | None:
        """
        Return the next frame, or piece of a data frame; ``None`` until more is fed.

        :raises RemoteProtocolError: the peer violated the protocol; call this method no more.
        """
        while not self._left:
            if len(self._buffer) - self._start < _HEAD.size:
                self._trim()
                return None
            first, second = _HEAD.unpack_from(self._buffer, self._start)
            if first >> 31:
                return self._control(first, second >> 24, second & 0xFFFFFF)
            if not first:
                raise RemoteProtocolError("data for stream 0")
            self._start += _HEAD.size
            self._stream_id, self._left = first, second & 0xFFFFFF
            self._fin = bool(second >> 24 & _FIN)
            if self._fin and not self._left:
                return Data(first, b"", True)
        return self._piece()

    def _piece(self) -> Data | None:
        size = min(self._left, len(self._buffer) - self._start, PIECE_BYTES)
        if not size:
            self._trim()
            return None
        data = self._take(size)
        self._left -= size
        return Data(self._stream_id, data, self._fin and not self._left)

    def _trim(self) -> None:
        # Once per read instead of once per frame: deleting from the front moves the rest.  An idle
        # connection keeps no buffer.
        del self._buffer[: self._start]
        self._start = 0

    def _take(self, size: int) -> bytes:
        start, self._start = self._start, self._start + size
        # Released at once, because a bytearray with a view cannot be shortened.
        with memoryview(self._buffer) as view:
            return bytes(view[start : self._start])

    def _control(self, first: int, flags: int, length: int) -> Frame | None:
        kind = first & 0xFFFF
        if first >> 16 != _VERSION or kind not in _LENGTHS:
            raise RemoteProtocolError(f"a control frame with the head {first:#010x} is unknown")
        least, most = _LENGTHS[kind]
        if not least <= length <= most:
            raise RemoteProtocolError(f"a control frame of type {kind} is {length} bytes long")
        if len(self._buffer) - self._start - _HEAD.size < length:
            self._trim()
            return None
        self._start += _HEAD.size
        # Headers are decompressed even if the frame is refused next: later blocks refer to them.
        frame = self._read(kind, flags, self._take(length))
        if isinstance(frame, _OF_STREAMS) and not frame.stream_id:
            raise RemoteProtocolError("a control frame for stream 0")
        return frame

    def _read(self, kind: int, flags: int, payload: bytes) -> Frame:
        fin = bool(flags & _FIN)
        if kind == _SETTINGS:
            return _settings(payload)
        number = int.from_bytes(payload[:4], "big")
        if kind == _SYN_STREAM:
            one_way = bool(flags & _UNIDIRECTIONAL)
            # Behind the ids of the stream and its associate, the priority and the slot (section
            # 2.6.1).
            return SynStream(number & _ID_MASK, self._headers.read(payload[10:]), fin, one_way)
        if kind == _SYN_REPLY:
            return SynReply(number & _ID_MASK, self._headers.read(payload[4:]), fin)
        if kind == _HEADERS:
            return HeaderFrame(number & _ID_MASK, self._headers.read(payload[4:]), fin)
        # spdystream refuses these, too (read.go).
        if flags:
            raise RemoteProtocolError(f"a control frame of type {kind} with flags")
        if kind == _PING:
            return _ping(number)
        second = int.from_bytes(payload[4:], "big")
        if kind == _RST_STREAM:
            return _rst_stream(number & _ID_MASK, second)
        if kind == _GOAWAY:
            return GoAway(number & _ID_MASK, second)
        return WindowUpdate(number & _ID_MASK, second)


def _settings(payload: bytes) -> SPDYSettings:
    if int.from_bytes(payload[:4], "big") * 8 != len(payload) - 4:
        raise RemoteProtocolError("a SETTINGS frame whose number of entries is wrong")
    return SPDYSettings(tuple(_TWO_NUMBERS.iter_unpack(payload[4:])))


def _ping(number: int) -> Ping:
    if not number:
        raise RemoteProtocolError("a PING without a number")
    return Ping(number)


def _rst_stream(stream_id: int, status: int) -> RstStream:
    if not status:
        raise RemoteProtocolError("a RST_STREAM without a status")
    return RstStream(stream_id, status)


class FrameWriter:
    """
    Encodes the frames with headers of one direction of a connection.

    The results must be sent in order.
    """

    def __init__(self) -> None:
        self._headers = HeaderWriter()

    def go_on(self) -> None:
        """Go on behind the frames of another process."""
        self._headers.go_on()

    def syn_stream(
        self, stream_id: int, headers: Iterable[tuple[bytes, bytes]], fin: bool = False
    ) -> bytes:
        # No associated stream, priority or slot, as in Go.
        fields = _TWO_NUMBERS.pack(_checked(stream_id), 0) + b"\0\0"
        return _control(_SYN_STREAM, fields + self._headers.write(headers), fin)

    def syn_reply(
        self, stream_id: int, headers: Iterable[tuple[bytes, bytes]] = (), fin: bool = False
    ) -> bytes:
        return _control(_SYN_REPLY, _id(stream_id) + self._headers.write(headers), fin)


def data(stream_id: int, payload: bytes, fin: bool = False) -> Iterator[bytes | memoryview]:
    """
    Yield headers and payloads, alternately, of as many data frames as ``payload`` needs.

    An empty payload gives no frame, unless it ends the stream.
    """
    view = memoryview(payload)
    for start in range(0, len(view), PIECE_BYTES):
        piece = view[start : start + PIECE_BYTES]
        last = fin and start + PIECE_BYTES >= len(view)
        yield _HEAD.pack(_checked(stream_id), last << 24 | len(piece))
        yield piece
    if fin and not payload:
        yield _HEAD.pack(_checked(stream_id), _FIN << 24)


def rst_stream(stream_id: int, status: int) -> bytes:
    """Encode the end of a stream in both directions."""
    return _control(_RST_STREAM, _TWO_NUMBERS.pack(_checked(stream_id), status))


def ping(ping_id: int) -> bytes:
    """Encode a ping or the answer to a ping."""
    return _control(_PING, ping_id.to_bytes(4, "big"))


def go_away(last_stream_id: int, status: int = GOING_WELL) -> bytes:
    """Encode a GOAWAY frame."""
    return _control(_GOAWAY, _TWO_NUMBERS.pack(last_stream_id, status))


def _control(kind: int, payload: bytes, fin: bool = False) -> bytes:
    return _HEAD.pack(_VERSION << 16 | kind, fin << 24 | len(payload)) + payload


def _id(stream_id: int) -> bytes:
    return _checked(stream_id).to_bytes(4, "big")


def _checked(stream_id: int) -> int:
    if not 0 < stream_id <= _ID_MASK:
        raise LocalProtocolError(f"no stream has the id {stream_id}: they are 1 to {_ID_MASK}")
    return stream_id
