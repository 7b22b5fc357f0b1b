"""
Frame boundaries of WebSocket and SPDY streams that a hop forwards unread.

A hop can insert a message of its own only between two frames.  It also has to know whether the
other end has reported how the session ended: kubectl takes a lost connection for success
(kubernetes#73056), unless the hop reports the loss.

Sources: SPDY Protocol, Draft 3, section 2.2; RFC 6455, section 5.2;
``k8s.io/client-go/tools/remotecommand`` for what clients read last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from twisted_exec.wire import spdy
from twisted_exec.wire.channel import PROTOCOLS, SPDY_PROTOCOLS, UNNAMED, Channel, encode, is_text
from twisted_exec.wire.endings import Ending, encode_ending, has_status
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.resume import RESTART_CODE
from twisted_exec.wire.spdy import FrameReader, SynStream
from twisted_exec.wire.spdy_console import STREAM_TYPE
from twisted_exec.wire.upgrade import SPDY

MAX_TRACKED_BYTES = 64 << 10
"""The error stream must be opened within this many bytes from the user."""

MOST_FRAMES = 256
"""The most frames that one call tracks."""

_TEXT, _BINARY, _CLOSE, _FINAL = 1, 2, 8, 0x80
_WHOLE = (_FINAL | _TEXT, _FINAL | _BINARY)
_NORMAL, _GOING_AWAY = 1000, 1001
# A control frame carries 125 bytes (RFC 6455 §5.5), and the code takes two.
_LONGEST_REASON = 123
# RFC 6455 §7.4.2: codes below 1000 are not used.
_CLOSE_CODES = range(1000 >> 8, (4999 >> 8) + 1)
_RESTART = RESTART_CODE.to_bytes(2, "big")
# The base64 protocols name the channel by its digit.
_ERRORS = (Channel.ERROR, ord("0") + Channel.ERROR)
_FIN = 1
_GO_AWAY = b"\x80\x03\x00\x07"

LONGEST_CLOSE_BYTES = 127

_KNOWN = frozenset({*PROTOCOLS, *SPDY_PROTOCOLS, UNNAMED})


class FrameBoundaries(ABC):
    """
    Frame boundaries of one session.

    :ivar at_edge: everything sent to the user ends with a complete message.
    :ivar owed: the other end still has to report how the session ended.
    """

    at_edge = True
    owed = False
    _head_bytes = 2  # as long as a head is at least

    def __init__(self) -> None:
        self._head = b""  # the part of a frame header received so far
        self._left = 0  # payload bytes still to come
        self._is_fresh = (
            False  # the next byte is the first of a payload: the channel, while a status is owed
        )

    def to_user(self, data: bytes, *, stop: bool = False) -> int:
        """
        Track bytes that go to the user, up to :data:`MOST_FRAMES` frames of them.

        :param stop: stop at the next boundary.
        :return: how many of the bytes to send now; the rest is to be tracked later, unless ``stop``
            and :attr:`at_edge`.
        """
        start, size, left = 0, len(data), MOST_FRAMES
        while start < size and left and not (stop and self.at_edge):
            if self._left:
                if self._is_fresh:
                    self._is_fresh = False
                    self.owed = data[start] not in _ERRORS
                step = min(self._left, size - start)
                self._left -= step
                start += step
                self.at_edge = self._is_edge()
            else:
                left -= 1
                start += self._take_head(data, start)
        return start

    def from_user(self, data: bytes) -> bool:
        """
        Track bytes that come from the user.

        :return: whether to pass in further bytes.
        """
        return False

    @abstractmethod
    def last_words(self, ending: Ending) -> bytes:
        """
        Return what a hop sends to the user at a boundary to end the session.

        After a Status this is only the protocol's close: kubectl reads the error channel as one
        document.
        """

    def _has_reported(self, protocol: str) -> bool:
        return has_status(protocol) and not self.owed

    def _take_head(self, data: bytes, start: int) -> int:
        missing = self._head_length() - len(self._head)
        piece = data[start : start + missing]
        self._head += piece
        self.at_edge = False
        if len(self._head) >= self._head_length():
            self._left = self._payload()
            self._head = b""
            self.at_edge = self._is_edge()
        return len(piece)

    def _head_length(self) -> int:
        return self._head_bytes

    @abstractmethod
    def _payload(self) -> int:
        """Return the number of bytes that follow the complete frame header."""

    def _is_edge(self) -> bool:
        return not self._left


class SPDYFrameBoundaries(FrameBoundaries):
    """
    Frame boundaries in SPDY/3.1.

    :param protocol: a remote command protocol such as ``v4.channel.k8s.io``; ``None`` for other
        streams.
    """

    _head_bytes = 8

    def __init__(self, protocol: str | None) -> None:
        super().__init__()
        self._protocol = protocol
        self.owed = protocol is not None and has_status(protocol)
        self._error_stream = 0
        self._reader = FrameReader() if protocol is not None else None
        self._tracked = 0

    def from_user(self, data: bytes) -> bool:
        if self._reader is None:
            return False
        self._tracked += len(data)
        try:
            self._reader.feed(data)
            done = self._find_error_stream(self._reader)
        except RemoteProtocolError:  # the next hop reports it
            done = True
        if done or self._tracked > MAX_TRACKED_BYTES:
            self._reader = None
        return self._reader is not None

    def _find_error_stream(self, reader: FrameReader) -> bool:
        while (frame := reader.next_frame()) is not None:
            if isinstance(frame, SynStream) and _is_error(frame):
                self._error_stream = frame.stream_id
                return True
        return False

    def last_words(self, ending: Ending) -> bytes:
        away = spdy.go_away(self._error_stream)
        if not self._error_stream or self._protocol is None or self._has_reported(self._protocol):
            return away
        document = encode_ending(ending, self._protocol)
        return b"".join([*spdy.data(self._error_stream, document, fin=True), away])

    def _payload(self) -> int:
        kind, flags, size = self._head[:4], self._head[4], int.from_bytes(self._head[5:], "big")
        stream = int.from_bytes(kind, "big")
        # A data frame begins with its stream id, and a control frame with a set bit, so they cannot
        # be confused.
        if kind == _GO_AWAY or (stream == self._error_stream and (size or flags & _FIN)):
            self.owed = False
        return size


def _is_error(frame: SynStream) -> bool:
    stream_type = dict(frame.headers).get(STREAM_TYPE, b"")
    return stream_type.lower() == Channel.ERROR.name.lower().encode()


class WebSocketFrameBoundaries(FrameBoundaries):
    """
    Frame boundaries in WebSocket.

    :param protocol: a remote command protocol such as ``v5.channel.k8s.io``; ``None`` for other
        streams.
    """

    def __init__(self, protocol: str | None) -> None:
        super().__init__()
        self._protocol = protocol
        self.owed = protocol is not None and has_status(protocol)
        self._within = False  # inside a fragmented message

    def to_user(self, data: bytes, *, stop: bool = False) -> int:
        size = len(data)
        if (
            # One whole frame: the second byte is its length, without the mask bit, and below 126.
            2 < size < 128
            and data[1] == size - 2
            and data[0] in _WHOLE
            and not (self._left or self._head or self._within or stop)
        ):
            self.owed = self.owed and data[2] not in _ERRORS
            return size
        return super().to_user(data, stop=stop)

    def last_words(self, ending: Ending) -> bytes:
        if self._protocol is None:
            return _frame(_CLOSE, _close(_GOING_AWAY, ending.message))
        if self._has_reported(self._protocol):
            # kubectl takes any code but 1000 for a failure, even after a Success (websocket.go,
            # readDemuxLoop).
            return _frame(_CLOSE, _close(_NORMAL, ""))
        message = encode(Channel.ERROR, encode_ending(ending, self._protocol), self._protocol)
        kind = _TEXT if is_text(self._protocol) else _BINARY
        # kubectl takes 1000 without a Status for exit code 0.
        code = _NORMAL if has_status(self._protocol) else _GOING_AWAY
        return _frame(kind, message) + _frame(_CLOSE, _close(code, ""))

    def _head_length(self) -> int:
        if len(self._head) < 2:
            return 2
        length = self._head[1] & 0x7F
        masked = (
            4 if self._head[1] >> 7 else 0
        )  # servers must not mask, but such frames have boundaries, too
        # RFC 6455 §5.2.
        return 2 + masked + {126: 2, 127: 8}.get(length, 0)

    def _payload(self) -> int:
        first, length = self._head[0], self._head[1] & 0x7F
        kind = first & 0x0F
        if kind < _CLOSE:  # control frames may come between the fragments of a message
            self._within = not first & _FINAL
        # A server opens each channel with an empty message: that is no status yet.
        self._is_fresh = self.owed and kind in (_TEXT, _BINARY) and length > 1
        if kind == _CLOSE:
            self.owed = False
        if length < 126:
            return length
        return int.from_bytes(self._head[2 : 4 if length == 126 else 10], "big")

    def _is_edge(self) -> bool:
        return not self._left and not self._within


def _close(code: int, reason: str) -> bytes:
    # The cut may be inside a character, but the reason must be UTF-8 (RFC 6455 §5.5.1).
    text = reason.encode()[:_LONGEST_REASON].decode("utf-8", "ignore")
    return code.to_bytes(2, "big") + text.encode()


def _frame(kind: int, payload: bytes) -> bytes:
    """Encode one unmasked, unfragmented server message of at most 64 KiB."""
    head = bytes((_FINAL | kind,))
    if len(payload) < 126:
        return head + bytes((len(payload),)) + payload
    return head + b"\x7e" + len(payload).to_bytes(2, "big") + payload


def ends_with_close(data: bytes) -> bool:
    """
    Return whether the last bytes of a server are a WebSocket's Close frame that ends the session.

    Close 1012 does not: the client resumes.  Output may look like a Close, though rarely.

    :param data: at least :data:`LONGEST_CLOSE_BYTES`, or all.
    """
    for length in range(LONGEST_CLOSE_BYTES - 1):
        start = len(data) - 2 - length
        if start < 0:
            break
        # A body begins with a code of two bytes (RFC 6455 §5.5.1), so none has one byte.
        if data[start] == _FINAL | _CLOSE and data[start + 1] == length != 1:
            code = data[start + 2 : start + 4]
            return not length or (code[0] in _CLOSE_CODES and code != _RESTART)
    return False


def frame_boundaries(upgrade: bytes, protocol: str, *, commands: bool) -> FrameBoundaries:
    """
    Return the frame boundaries of a new session.

    :param upgrade: the protocol of the upgraded connection: ``websocket`` or ``SPDY/3.1``.
    :param protocol: the subprotocol that the next hop chose, or empty.
    :param commands: the request is for remote command (exec, attach).
    """
    remote_command = protocol if commands and protocol in _KNOWN else None
    return (
        SPDYFrameBoundaries(remote_command)
        if upgrade == SPDY
        else WebSocketFrameBoundaries(remote_command)
    )
