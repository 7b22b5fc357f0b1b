"""
Frames of SPDY/3.1, sans I/O.

The payload of data frames is returned in pieces as it arrives.

Sources: SPDY Protocol, Draft 3, section 2; ``github.com/moby/spdystream``,
``spdy/{types,read,write}.go``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError
from twisted_exec.wire.spdy_headers import MAX_BLOCK_BYTES, HeaderReader, Headers, HeaderWriter

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


_STREAM_FRAMES = (SynStream, SynReply, RstStream, HeaderFrame)


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
        if isinstance(frame, _STREAM_FRAMES) and not frame.stream_id:
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
