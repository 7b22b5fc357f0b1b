"""
One end of a SPDY/3.1 connection, sans I/O.

:class:`SPDYConnection` is the part of SPDY that Kubernetes uses.  There is no flow control: an end
that cannot accept more stops reading, which blocks all streams.

Sources: SPDY Protocol, Draft 3, section 2; ``github.com/moby/spdystream``,
``{connection,stream}.go``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from twisted_exec.wire import spdy
from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError
from twisted_exec.wire.spdy import CANCEL, GOING_WELL, PROTOCOL_ERROR, REFUSED_STREAM
from twisted_exec.wire.spdy_headers import Headers


@dataclass(frozen=True)
class StreamOpened:
    """The peer opened a stream: accept or reset it now."""

    stream_id: int
    headers: Headers


@dataclass(frozen=True)
class StreamAccepted:
    """The peer accepted our stream: data may be sent."""

    stream_id: int


@dataclass(frozen=True)
class DataReceived:
    """1 byte to 32 KiB of a stream's data."""

    stream_id: int
    data: bytes


@dataclass(frozen=True)
class StreamEnded:
    """The peer closed its direction of a stream."""

    stream_id: int


@dataclass(frozen=True)
class StreamReset:
    """The peer ended a stream in both directions, or refused it."""

    stream_id: int
    status: int


@dataclass(frozen=True)
class PingReceived:
    """The peer expects an answer."""

    ping_id: int


@dataclass(frozen=True)
class PongReceived:
    """The peer answered our ping."""

    ping_id: int


@dataclass(frozen=True)
class GoAwayReceived:
    """The peer stops reading; no event follows.  ``status`` is 0 for a regular end."""

    status: int


Event = (
    StreamOpened
    | StreamAccepted
    | DataReceived
    | StreamEnded
    | StreamReset
    | PingReceived
    | PongReceived
    | GoAwayReceived
)


@dataclass(slots=True)
class _Stream:
    ours: bool
    answered: bool
    sends: bool  # we may send
    receives: bool  # the peer may send


class SPDYConnection:
    """
    One end of a connection.

    :param client: we are the side that requested the upgrade.
    """

    def __init__(self, *, client: bool, max_streams: int) -> None:
        self._reader, self._writer = spdy.FrameReader(), spdy.FrameWriter()
        self._streams: dict[int, _Stream] = {}
        self._parity = 1 if client else 0
        self._next_id = self._next_ping = 1 if client else 2
        self._last_id = 0  # the highest id of the peer's valid streams
        self._max_streams = max_streams
        self._events: deque[Event] = deque()
        self._out: list[bytes | memoryview] = []
        self._deaf = False  # reading has ended
        self._gone = False  # sending has ended

    # Receiving.

    @property
    def rest_bytes(self) -> int:
        return self._reader.rest_bytes

    def feed(self, data: bytes) -> None:
        if not self._deaf:
            self._reader.feed(data)

    def next_event(self) -> Event | None:
        """
        Return the next event; ``None`` until more is fed.

        :raises RemoteProtocolError: the peer violated the protocol: call :meth:`go_away`, and hang
            up.
        """
        try:
            while not self._events and not self._deaf:
                frame = self._reader.next_frame()
                if frame is None:
                    return None
                self._take(frame)
        except RemoteProtocolError:
            self._deaf = True
            raise
        return self._events.popleft() if self._events else None

    def _take(self, frame: spdy.Frame) -> None:
        if isinstance(frame, spdy.Data):
            self._data(frame)
        elif isinstance(frame, spdy.SynStream):
            self._syn_stream(frame)
        elif isinstance(frame, spdy.SynReply):
            self._syn_reply(frame)
        elif isinstance(frame, spdy.RstStream):
            if self._streams.pop(frame.stream_id, None) is not None:
                self._events.append(StreamReset(frame.stream_id, frame.status))
        elif isinstance(frame, spdy.Ping):
            self._ping(frame)
        elif isinstance(frame, spdy.GoAway):
            self._deaf = True
            self._events.append(GoAwayReceived(frame.status))
        elif isinstance(frame, spdy.HeaderFrame) and frame.fin:
            self._ended(frame.stream_id)

    def _data(self, frame: spdy.Data) -> None:
        stream = self._streams.get(frame.stream_id)
        # spdystream drops such data, too, without a reset (connection.go, handleDataFrame).
        if stream is None or not stream.answered or not stream.receives:
            return
        if frame.data:
            self._events.append(DataReceived(frame.stream_id, frame.data))
        if frame.fin:
            self._ended(frame.stream_id)

    def _syn_stream(self, frame: spdy.SynStream) -> None:
        # As Go does (checkStreamFrame).
        if self._gone:
            return
        stream_id = frame.stream_id
        # Draft 3, section 2.3.2: ids grow, and their parity tells who has opened the stream.
        if stream_id <= self._last_id or stream_id % 2 == self._parity:
            self._out.append(spdy.rst_stream(stream_id, PROTOCOL_ERROR))
            return
        self._last_id = stream_id
        theirs = sum(not stream.ours for stream in self._streams.values())
        if theirs >= self._max_streams or frame.unidirectional:
            self._out.append(spdy.rst_stream(stream_id, REFUSED_STREAM))
            return
        self._streams[stream_id] = _Stream(False, False, True, True)
        self._events.append(StreamOpened(stream_id, frame.headers))
        if frame.fin:
            self._ended(stream_id)

    def _syn_reply(self, frame: spdy.SynReply) -> None:
        stream = self._streams.get(frame.stream_id)
        if stream is None or stream.answered:
            return
        stream.answered = True
        self._events.append(StreamAccepted(frame.stream_id))
        if frame.fin:
            self._ended(frame.stream_id)

    def _ping(self, frame: spdy.Ping) -> None:
        # A PING with our parity is the echo of our own (section 2.6.5).
        if frame.ping_id % 2 == self._parity:
            self._events.append(PongReceived(frame.ping_id))
        else:
            self._events.append(PingReceived(frame.ping_id))

    def _ended(self, stream_id: int) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None and stream.receives:
            stream.receives = False
            self._events.append(StreamEnded(stream_id))
            self._forget(stream_id, stream)

    def _forget(self, stream_id: int, stream: _Stream) -> None:
        if not stream.sends and not stream.receives:
            del self._streams[stream_id]

    # Sending.

    def data_to_send(self) -> bytes:
        """Return and forget the outgoing bytes; may be empty."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def open(self, headers: Iterable[tuple[bytes, bytes]]) -> int:
        """
        Open a stream; return its id.

        Open the next stream only after this stream is answered: Go's server may reorder frames.
        """
        stream_id, self._next_id = self._next_id, self._next_id + 2
        self._send(self._writer.syn_stream(stream_id, headers))
        self._streams[stream_id] = _Stream(True, False, True, True)
        return stream_id

    def accept(self, stream_id: int) -> None:
        """
        Accept a stream of the peer.

        :raises LocalProtocolError: no such stream is waiting for an answer.
        """
        stream = self._streams.get(stream_id)
        if stream is None or stream.ours or stream.answered:
            raise LocalProtocolError(f"stream {stream_id} does not wait for an answer")
        self._send(self._writer.syn_reply(stream_id))
        stream.answered = True

    def can_send(self, stream_id: int) -> bool:
        stream = self._streams.get(stream_id)
        return stream is not None and stream.answered and stream.sends and not self._gone

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        """
        Send data, in frames of at most 32 KiB.

        :param fin: end our direction of the stream.
        :raises LocalProtocolError: :meth:`can_send` is false.
        """
        if not self.can_send(stream_id):
            raise LocalProtocolError(f"stream {stream_id} takes no data")
        self._out.extend(spdy.data(stream_id, data, fin))
        if fin:
            stream = self._streams[stream_id]
            stream.sends = False
            self._forget(stream_id, stream)

    def reset(self, stream_id: int, status: int = CANCEL) -> None:
        """End a stream in both directions, or refuse an unanswered stream."""
        stream = self._streams.pop(stream_id, None)
        # spdystream's resetStream checks the same.
        if stream is not None and stream.sends:
            self._send(spdy.rst_stream(stream_id, status))

    def ping(self) -> None:
        ping_id, self._next_ping = self._next_ping, self._next_ping + 2
        self._send(spdy.ping(ping_id))

    def answer(self, ping_id: int) -> None:
        self._send(spdy.ping(ping_id))

    def go_away(self, status: int = GOING_WELL) -> None:
        if not self._gone:
            self._send(spdy.go_away(self._last_id, status))
            self._gone = True

    @property
    def gone(self) -> bool:
        return self._gone

    def _send(self, frame: bytes) -> None:
        if self._gone:
            raise LocalProtocolError("nothing is sent behind a GOAWAY")
        self._out.append(frame)
