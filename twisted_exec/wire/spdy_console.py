"""
A console's channels as the streams of a SPDY/3.1 connection, sans I/O.

Sources: ``k8s.io/kubelet/pkg/cri/streaming/remotecommand/httpstream.go``, ``k8s.io/cri-streaming`` (the
order at the end) and ``k8s.io/client-go/tools/remotecommand``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from twisted_exec.wire.channel import TERMINAL, V1, V3, V4, Channel, StreamClosed, StreamData
from twisted_exec.wire.endings import has_status
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.spdy import GOING_WELL, GOING_WRONG
from twisted_exec.wire.spdy_connection import (
    DataReceived,
    Event,
    GoAwayReceived,
    PingReceived,
    PongReceived,
    SPDYConnection,
    StreamAccepted,
    StreamEnded,
    StreamOpened,
    StreamReset,
)
from twisted_exec.wire.upgrade import values

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
