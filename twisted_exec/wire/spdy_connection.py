"""
One end of a SPDY/3.1 connection, sans I/O, and a console's channels as its streams.

:class:`SPDYConnection` is the part of SPDY that Kubernetes uses.  There is no flow control: an end
that cannot accept more stops reading, which blocks all streams.

Sources: SPDY Protocol, Draft 3, section 2; ``github.com/moby/spdystream``,
``{connection,stream}.go``; for consoles
``k8s.io/kubelet/pkg/cri/streaming/remotecommand/httpstream.go``, ``k8s.io/cri-streaming`` (the
order at the end) and ``k8s.io/client-go/tools/remotecommand``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from twisted_exec.wire import spdy
from twisted_exec.wire.channel import TERMINAL, V1, V3, V4, Channel, StreamClosed, StreamData
from twisted_exec.wire.endings import has_status
from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError
from twisted_exec.wire.spdy import (
    CANCEL,
    GOING_WELL,
    GOING_WRONG,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    Headers,
)
from twisted_exec.wire.upgrade import values

__all__ = [
    "CANCEL",
    "MAX_BUFFERED_BYTES",
    "MAX_STREAMS",
    "PROTOCOL_ERROR",
    "REFUSED_STREAM",
    "STREAM_TYPE",
    "ClientStreams",
    "ConsoleEvent",
    "DataReceived",
    "Event",
    "GoAwayReceived",
    "PeerDone",
    "PingReceived",
    "PongReceived",
    "Ready",
    "SPDYConnection",
    "ServerStreams",
    "StreamAccepted",
    "StreamEnded",
    "StreamOpened",
    "StreamReset",
]

MAX_STREAMS = len(Channel)
"""The most streams of one console."""

MAX_BUFFERED_BYTES = 64 << 10
"""Limit for buffered data before the start, with its overhead."""

_PIECE_COST = 256

# Go writes ``streamType``, which SPDY sends in lower case.
STREAM_TYPE = b"streamtype"
_CHANNELS = {channel.name.lower().encode(): channel for channel in Channel}
# Our own proxies only forward the connection, so the server may not know which streams to expect.
# These are enough, because clients open them early; stdin and sizes may follow.
_ENOUGH = frozenset({Channel.ERROR, Channel.STDOUT})
# client-go waits for the end of these (v4.go).
_ENDED = frozenset({Channel.ERROR, Channel.STDOUT, Channel.STDERR})
# client-go's order (v2.go, v3.go).
_ORDER = (Channel.ERROR, Channel.STDIN, Channel.STDOUT, Channel.STDERR, Channel.RESIZE)


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

    # For another process.

    @property
    def unread(self) -> int:
        return self._reader.unread

    def export(self) -> dict[str, Any] | None:
        """
        Return the state before :attr:`unread` as JSON values; call it when :meth:`next_event` has
        returned ``None``.

        :return: ``None`` if another process cannot go on.
        """
        reader = self._reader.export()
        if reader is None or self._deaf or self._gone:
            return None
        return {
            "reader": reader,
            "streams": [[id, *astuple(each)] for id, each in self._streams.items()],
            "lastId": self._last_id,
            "nextPing": self._next_ping,
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Continue the end of another process."""
        self._reader.restore(values["reader"])
        self._writer.go_on()
        self._streams = {id: _Stream(*each) for id, *each in values["streams"]}
        self._last_id, self._next_ping = values["lastId"], values["nextPing"]

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


@dataclass(frozen=True)
class Ready:
    """The console begins with the streams that are open."""


@dataclass(frozen=True)
class PeerDone:
    """The peer has finished: it is time to leave."""


ConsoleEvent = Ready | StreamData | StreamClosed | PingReceived | PongReceived | PeerDone


class _Streams(ABC):
    def __init__(self, protocol: str, *, client: bool) -> None:
        self.protocol = protocol
        self.ready = False
        # Only clients open streams.
        self._connection = SPDYConnection(client=client, max_streams=0 if client else MAX_STREAMS)
        self._ids: dict[Channel, int] = {}
        self._channels: dict[int, Channel] = {}
        self._events: deque[ConsoleEvent] = deque()
        self._early: deque[ConsoleEvent] = deque()
        self._early_bytes = 0

    @property
    def rest_bytes(self) -> int:
        return self._connection.rest_bytes

    def feed(self, data: bytes) -> None:
        self._connection.feed(data)

    def next_event(self) -> ConsoleEvent | None:
        while not self._events:
            event = self._connection.next_event()
            if event is None:
                return None
            self._take(event)
        return self._events.popleft()

    def data_to_send(self) -> bytes:
        return self._connection.data_to_send()

    def send(self, channel: Channel, data: bytes) -> None:
        stream_id = self._ids.get(channel)
        if stream_id is not None and self._connection.can_send(stream_id):
            self._connection.send(stream_id, data)

    def end(self, channel: Channel) -> None:
        stream_id = self._ids.get(channel)
        if stream_id is not None and self._connection.can_send(stream_id):
            self._connection.send(stream_id, b"", fin=True)

    def ping(self) -> None:
        if not self._connection.gone:
            self._connection.ping()

    def answer(self, ping: PingReceived) -> None:
        if not self._connection.gone:
            self._connection.answer(ping.ping_id)

    def go_away(self, *, broken: bool = False) -> None:
        self._connection.go_away(GOING_WRONG if broken else GOING_WELL)

    def _take(self, event: Event) -> None:
        if isinstance(event, DataReceived):
            channel = self._channels.get(event.stream_id)
            if channel is not None:
                self._report(StreamData(channel, event.data), _PIECE_COST + len(event.data))
        elif isinstance(event, StreamEnded | StreamReset):
            channel = self._channels.get(event.stream_id)
            if channel is not None:
                self._closed(channel, isinstance(event, StreamReset))
        elif isinstance(event, GoAwayReceived):
            self._events.append(PeerDone())
        else:
            assert isinstance(event, PingReceived | PongReceived)
            self._events.append(event)

    @abstractmethod
    def _closed(self, channel: Channel, reset: bool) -> None:
        """Handle the end of the peer's direction of a channel."""

    def _report(self, event: ConsoleEvent, size: int = 0) -> None:
        if self.ready:
            self._events.append(event)
            return
        self._early.append(event)
        self._early_bytes += size
        if self._early_bytes > MAX_BUFFERED_BYTES:
            self._too_early()

    def _too_early(self) -> None:
        raise RemoteProtocolError("data before all streams were open")

    def _begin(self) -> None:
        if not self.ready:
            self.ready = True
            self._events.append(Ready())
            self._events.extend(self._early)
            self._early.clear()


class ServerStreams(_Streams):
    """
    The machine's end.

    :param expected: the channels that the request announces, if it does.
    """

    def __init__(self, protocol: str, expected: frozenset[Channel] | None = None) -> None:
        super().__init__(protocol, client=False)
        self._expected = expected or _ENOUGH
        self._status: bytes | None = None

    def start(self) -> None:
        """Start; the client opens the streams."""

    @property
    def unread(self) -> int:
        """The number of bytes that are fed, and belong to no event yet."""
        return self._connection.unread

    def export(self) -> dict[str, Any] | None:
        """
        Return the state before :attr:`unread` of a console that has begun, as JSON values.

        :return: ``None`` if another process cannot go on.
        """
        connection = self._connection.export()
        if connection is None or not self.ready or self._status is not None:
            return None
        channels = {channel.name: id for channel, id in self._ids.items()}
        return {"connection": connection, "channels": channels}

    def restore(self, values: Mapping[str, Any]) -> None:
        """Continue the console of another process."""
        self._connection.restore(values["connection"])
        self._ids = {Channel[name]: id for name, id in values["channels"].items()}
        self._channels = {id: channel for channel, id in self._ids.items()}
        self.ready = True

    def settle(self) -> bool:
        """
        Start with the streams that are open.

        :return: whether any stream is open.
        """
        if self._ids:
            self._begin()
        return self.ready

    def finish(self, document: bytes) -> None:
        """Report the ending, also to streams that are opened later."""
        self._status = document
        for channel in list(self._ids):
            self._finish(channel)

    def leave(self) -> None:
        self.go_away()

    def _finish(self, channel: Channel) -> None:
        stream_id = self._ids[channel]
        if channel in (Channel.STDIN, Channel.RESIZE):
            # The order of k8s.io/cri-streaming (httpstream.go, finish).
            self._connection.reset(stream_id)
        elif not self._connection.can_send(stream_id):
            pass
        elif channel is Channel.ERROR:
            self._connection.send(stream_id, self._status or b"", fin=True)
        elif not (self.protocol == V1 and self._status and Channel.ERROR in self._ids):
            # A version 1 client takes the end of stdout for success, whatever comes on the error
            # stream.  If that carries something, the client leaves by itself.
            self._connection.send(stream_id, b"", fin=True)

    def _take(self, event: Event) -> None:
        if isinstance(event, StreamOpened):
            self._opened(event)
        else:
            super()._take(event)

    def _opened(self, event: StreamOpened) -> None:
        stream_type = b"".join(values(event.headers, STREAM_TYPE)[:1]).lower()
        channel = _CHANNELS.get(stream_type)
        if channel in self._ids:
            self._connection.reset(event.stream_id)
            return
        self._connection.accept(event.stream_id)
        if channel is None:
            return  # accepted and ignored: kubelets do so with unknown types
        self._ids[channel], self._channels[event.stream_id] = event.stream_id, channel
        # The session has ended already, but the client waits half a minute for an answer.
        if self._status is not None:
            self._finish(channel)
        elif self._expected <= self._ids.keys():
            self._begin()

    def _closed(self, channel: Channel, reset: bool) -> None:
        # A reset is an end, too: clients reset stdin when they leave.
        if channel is Channel.STDIN:
            self._report(StreamClosed(channel))

    def _too_early(self) -> None:
        self._begin()  # a client with so much input has opened all the streams it wants


class ClientStreams(_Streams):
    """
    The user's end.

    :param channels: the channels to open, in Kubernetes' order; ``RESIZE`` only in versions with
        sizes.
    """

    def __init__(self, protocol: str, channels: Collection[Channel] = TERMINAL) -> None:
        super().__init__(protocol, client=True)
        has_sizes = protocol in (V3, V4)
        self._to_open = deque(
            channel
            for channel in _ORDER
            if channel in {Channel.ERROR, *channels}
            and (has_sizes or channel is not Channel.RESIZE)
        )
        self._awaited: Channel | None = None  # waiting for the server's answer
        self._open = set(self._to_open) & _ENDED

    def start(self) -> None:
        self._awaited = channel = self._to_open.popleft()
        stream_id = self._connection.open([(STREAM_TYPE, channel.name.lower().encode())])
        self._ids[channel], self._channels[stream_id] = stream_id, channel

    def settle(self) -> bool:
        """Return whether all streams are open."""
        return self.ready

    def leave(self) -> None:
        """Reset the open streams and send GOAWAY."""
        if not self._connection.gone:
            # kubectl leaves in the same way.
            for stream_id in self._channels:
                self._connection.reset(stream_id)
            self._connection.go_away()

    def _take(self, event: Event) -> None:
        if isinstance(event, StreamAccepted):
            self._next()
        else:
            super()._take(event)

    def _next(self) -> None:
        self._awaited = None
        if self._to_open:
            self.start()
        else:
            self._begin()

    def _closed(self, channel: Channel, reset: bool) -> None:
        if channel is self._awaited and reset:
            self._refused(channel)
            return
        # Older kubelets reset all streams at the end.  In a protocol with a Status, a reset error
        # stream carries none; in one without, this is what success looks like.
        if channel is not Channel.ERROR or not (reset and has_status(self.protocol)):
            self._report(StreamClosed(channel))
        self._open.discard(channel)
        if not self._open:
            # Early data must be reported before PeerDone.
            self._begin()
            self._report(PeerDone())

    def _refused(self, channel: Channel) -> None:
        if channel is not Channel.RESIZE:
            raise RemoteProtocolError(f"the server refused the stream {channel.name.lower()}")
        self._next()
