"""
Where frames end, for a hop that passes them on unread.

Between two frames, and nowhere else, a hop can say a word of its own.  One that must end a session
whose next hop cannot be asked to (a cluster of another make) therefore follows the heads of what goes
to the user: eight bytes of each SPDY frame, two to ten of each of WebSocket.  What they hold is
not looked at.  In SPDY the last word needs the number of the error stream as well, which stands in one
of the first frames of the user; after that nothing of the user is followed.

The same heads tell whether the other end has said how the session ended: whatever comes on the error
channel or stream, or a close in the protocol's order.  A connection that is lost without that looks to
kubectl like success (kubernetes#73056), unless the hop says that it was lost.

What a hop does not understand has no edges: it is passed on, and the session can only be cut.

Sources: SPDY Protocol, Draft 3, section 2.2; RFC 6455, section 5.2;
``k8s.io/client-go/tools/remotecommand`` for what clients read last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from twisted_exec.wire import spdy_frames
from twisted_exec.wire.channel import PROTOCOLS, UNNAMED, Channel, encode, is_text
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.remotecommand import Ending, encode_ending, has_status
from twisted_exec.wire.remotecommand_streams import SPDY_PROTOCOLS, STREAM_TYPE
from twisted_exec.wire.spdy_frames import FrameReader, SynStream
from twisted_exec.wire.upgrade import SPDY

MOST_FOLLOWED_BYTES = 64 << 10
"""Of the user's, in which the error stream must have been opened."""

_TEXT, _BINARY, _CLOSE, _FINAL = 1, 2, 8, 0x80
_NORMAL, _GOING_AWAY = 1000, 1001
_LONGEST_REASON = 123
_ERRORS = (Channel.ERROR, ord("0") + Channel.ERROR)
_FIN = 1
_GO_AWAY = b"\x80\x03\x00\x07"


class Edges(ABC):
    """
    Follows one session.  Subclasses know the frames.

    :ivar at_edge: what went to the user ends with a whole message.
    :ivar owed: the other end is to tell how the session ended, and has not yet.
    """

    at_edge = True
    owed = False
    _head_bytes = 2  # as long as a head is at least

    def __init__(self) -> None:
        self._head = b""  # as much of one as has come
        self._left = 0  # of the payload
        self._is_fresh = False  # its first byte is to come, and a channel while a status is owed

    def to_user(self, data: bytes, *, stop: bool = False) -> int:
        """
        These bytes go to the user.

        :param stop: only up to the next edge.
        :return: how many of them go: all, unless ``stop``.
        """
        start, size = 0, len(data)
        while start < size and not (stop and self.at_edge):
            if self._left:
                if self._is_fresh:
                    self._is_fresh = False
                    self.owed = data[start] not in _ERRORS
                step = min(self._left, size - start)
                self._left -= step
                start += step
                self.at_edge = self._is_edge()
            else:
                start += self._take_head(data, start)
        return start

    def from_user(self, data: bytes) -> bool:
        """
        These bytes come from the user.

        :return: more of them are to be told.
        """
        return False

    @abstractmethod
    def last_words(self, ending: Ending) -> bytes:
        """
        What a hop says to the user at an edge.

        Where the other end has told how the session ended, that stands: no more than an end is
        said.  kubectl reads all that comes as one document, and cannot read two.
        """

    def _has_told(self, protocol: str) -> bool:
        return has_status(protocol) and not self.owed

    def _take_head(self, data: bytes, start: int) -> int:
        wanted = self._wanted() - len(self._head)
        piece = data[start : start + wanted]
        self._head += piece
        self.at_edge = False
        if len(self._head) >= self._wanted():
            self._left = self._payload()
            self._head = b""
            self.at_edge = self._is_edge()
        return len(piece)

    def _wanted(self) -> int:
        """How long the head is, by what there is of it."""
        return self._head_bytes

    @abstractmethod
    def _payload(self) -> int:
        """How many bytes follow the head, which is whole."""

    def _is_edge(self) -> bool:
        return not self._left


class SPDYEdges(Edges):
    """
    Of SPDY/3.1.

    :param protocol: of remote command, such as ``v4.channel.k8s.io``; ``None`` for other streams,
        which are told to go away.
    """

    _head_bytes = 8

    def __init__(self, protocol: str | None) -> None:
        super().__init__()
        self._protocol = protocol
        self.owed = protocol is not None and has_status(protocol)
        self._error_stream = 0
        self._reader = FrameReader() if protocol is not None else None
        self._followed = 0

    def from_user(self, data: bytes) -> bool:
        """As :meth:`Edges.from_user`: until the error stream was opened."""
        if self._reader is None:
            return False
        self._followed += len(data)
        try:
            self._reader.feed(data)
            found = self._find_error_stream(self._reader)
        except RemoteProtocolError:  # which the next hop will say
            found = True
        if found or self._followed > MOST_FOLLOWED_BYTES:
            self._reader = None
        return self._reader is not None

    def _find_error_stream(self, reader: FrameReader) -> bool:
        while (frame := reader.next_frame()) is not None:
            if isinstance(frame, SynStream) and _is_error(frame):
                self._error_stream = frame.stream_id
                return True
        return False

    def last_words(self, ending: Ending) -> bytes:
        """The Status on the error stream, and its end; then nothing more is read here."""
        away = spdy_frames.go_away(self._error_stream)
        if not self._error_stream or self._protocol is None or self._has_told(self._protocol):
            return away
        document = encode_ending(ending, self._protocol)
        return b"".join([*spdy_frames.data(self._error_stream, document, fin=True), away])

    def _payload(self) -> int:
        kind, flags, size = self._head[:4], self._head[4], int.from_bytes(self._head[5:], "big")
        stream = int.from_bytes(kind, "big")
        if kind == _GO_AWAY or (stream == self._error_stream and (size or flags & _FIN)):
            self.owed = False
        return size


def _is_error(frame: SynStream) -> bool:
    told = dict(frame.headers).get(STREAM_TYPE, b"")
    return told.lower() == Channel.ERROR.name.lower().encode()


class WebSocketEdges(Edges):
    """
    Of WebSocket.

    :param protocol: of remote command, such as ``v5.channel.k8s.io``; ``None`` for other streams,
        which are closed.
    """

    def __init__(self, protocol: str | None) -> None:
        super().__init__()
        self._protocol = protocol
        self.owed = protocol is not None and has_status(protocol)
        self._within = False  # a message whose last frame has not come

    def last_words(self, ending: Ending) -> bytes:
        """The Status on the error channel, and the close that follows it."""
        if self._protocol is None:
            return _frame(_CLOSE, _close(_GOING_AWAY, ending.message))
        if self._has_told(self._protocol):
            return _frame(_CLOSE, _close(_NORMAL, ""))
        message = encode(Channel.ERROR, encode_ending(ending, self._protocol), self._protocol)
        kind = _TEXT if is_text(self._protocol) else _BINARY
        code = _NORMAL if has_status(self._protocol) else _GOING_AWAY
        return _frame(kind, message) + _frame(_CLOSE, _close(code, ""))

    def _wanted(self) -> int:
        if len(self._head) < 2:
            return 2
        told = self._head[1] & 0x7F
        masked = 4 if self._head[1] >> 7 else 0  # no server may; its frames have edges even so
        return 2 + masked + {126: 2, 127: 8}.get(told, 0)

    def _payload(self) -> int:
        first, told = self._head[0], self._head[1] & 0x7F
        kind = first & 0x0F
        if kind < _CLOSE:  # what controls may come within a message
            self._within = not first & _FINAL
        # A server greets with a channel and nothing on it.
        self._is_fresh = self.owed and kind in (_TEXT, _BINARY) and told > 1
        if kind == _CLOSE:
            self.owed = False
        if told < 126:
            return told
        return int.from_bytes(self._head[2 : 4 if told == 126 else 10], "big")

    def _is_edge(self) -> bool:
        return not self._left and not self._within


def _close(code: int, reason: str) -> bytes:
    told = reason.encode()[:_LONGEST_REASON].decode("utf-8", "ignore")
    return code.to_bytes(2, "big") + told.encode()


def _frame(kind: int, payload: bytes) -> bytes:
    """One message of a server: 64 KiB at most, unmasked, whole."""
    head = bytes((_FINAL | kind,))
    if len(payload) < 126:
        return head + bytes((len(payload),)) + payload
    return head + b"\x7e" + len(payload).to_bytes(2, "big") + payload


def edges(upgrade: bytes, protocol: str, *, commands: bool) -> Edges:
    """
    What follows a session.

    :param upgrade: what the connection was upgraded to: ``websocket`` or ``SPDY/3.1``.
    :param protocol: what the next hop chose, or empty.
    :param commands: it is remote command (exec, attach) when the protocol's name says so:
        those that forward ports use the same names for other channels.
    """
    known = protocol if commands and protocol in _KNOWN else None
    return SPDYEdges(known) if upgrade == SPDY else WebSocketEdges(known)


_KNOWN = frozenset({*PROTOCOLS, *SPDY_PROTOCOLS, UNNAMED})
