"""
A console over SPDY, without I/O: its channels as streams of one connection.

The client opens a stream for each channel and says which by a header
(``streamtype``); it waits for each answer before it opens the next one.  The
server begins when all that it waits for are there.  What it waits for it may not
know: our own proxies pass on no more than the connection.  Then the error stream
and output are enough, which clients open early; input and sizes may join later, and
whatever comes on them waits for the beginning.  What never comes is not waited for
longer than the adapter's patience (:meth:`ServerStreams.settle`).

At the end the server writes how it ended on the error stream, resets what it reads,
ends what it writes, and waits for the client to go.  A stream that is opened so
late gets its end at once: clients wait half a minute for an answer.

Sources: ``k8s.io/kubelet/pkg/cri/streaming/remotecommand/httpstream.go``,
``k8s.io/cri-streaming`` (its order at the end), ``k8s.io/client-go/tools/remotecommand``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from twisted_exec.wire.channel import V1, V4, Channel, StreamClosed, StreamData
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.remotecommand import has_status
from twisted_exec.wire.spdy import (
    Connection,
    DataReceived,
    Event,
    GoAwayReceived,
    PingReceived,
    PongReceived,
    StreamAccepted,
    StreamEnded,
    StreamOpened,
    StreamReset,
)
from twisted_exec.wire.spdy_frames import GOING_WELL, GOING_WRONG
from twisted_exec.wire.upgrade import values

V2 = "v2.channel.k8s.io"
V3 = "v3.channel.k8s.io"
SPDY_PROTOCOLS = (V4, V3, V2, V1)
"""What we speak over SPDY, the one we like best first.  There is no version 5."""

MAX_STREAMS = len(Channel)
"""Of one console."""

HELD_BYTES = 64 << 10
"""Of what comes before the beginning, each piece counted with what it costs to keep it."""

_PIECE_COST = 256

STREAM_TYPE = b"streamtype"
_CHANNELS = {channel.name.lower().encode(): channel for channel in Channel}
_ENOUGH = frozenset({Channel.ERROR, Channel.STDOUT})
_ENDED = frozenset({Channel.ERROR, Channel.STDOUT, Channel.STDERR})
_ORDER = (Channel.ERROR, Channel.STDIN, Channel.STDOUT, Channel.STDERR, Channel.RESIZE)

TERMINAL = frozenset({Channel.ERROR, Channel.STDIN, Channel.STDOUT, Channel.RESIZE})
"""What a console with a terminal has."""


@dataclass(frozen=True)
class Ready:
    """The streams are there; comes once, before any data."""


@dataclass(frozen=True)
class PeerDone:
    """The peer has said all, and nothing follows: it is time to go."""


ConsoleEvent = Ready | StreamData | StreamClosed | PingReceived | PongReceived | PeerDone


class _Streams(ABC):
    """What both ends share: channels, and what waits for the beginning."""

    def __init__(self, protocol: str, *, client: bool) -> None:
        self.protocol = protocol
        self.ready = False
        self._connection = Connection(client=client, max_streams=0 if client else MAX_STREAMS)
        self._ids: dict[Channel, int] = {}
        self._channels: dict[int, Channel] = {}
        self._events: deque[ConsoleEvent] = deque()
        self._held: deque[ConsoleEvent] = deque()
        self._held_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take bytes, in any split."""
        self._connection.feed(data)

    def next_event(self) -> ConsoleEvent | None:
        """
        What happened next; ``None`` until more was fed.

        :raises RemoteProtocolError: the peer broke the protocol; nothing more is read.
        """
        while not self._events:
            event = self._connection.next_event()
            if event is None:
                return None
            self._take(event)
        return self._events.popleft()

    def data_to_send(self) -> bytes:
        """What is to be sent now; may be empty."""
        return self._connection.data_to_send()

    def send(self, channel: Channel, data: bytes) -> None:
        """Send data; it is dropped when the channel has no stream, or one that takes no more."""
        stream_id = self._ids.get(channel)
        if stream_id is not None and self._connection.can_send(stream_id):
            self._connection.send(stream_id, data)

    def end(self, channel: Channel) -> None:
        """There is no more on a channel."""
        stream_id = self._ids.get(channel)
        if stream_id is not None and self._connection.can_send(stream_id):
            self._connection.send(stream_id, b"", fin=True)

    def ping(self) -> None:
        """Ask for an answer, unless all is said."""
        if not self._connection.gone:
            self._connection.ping()

    def answer(self, ping: PingReceived) -> None:
        """Answer the peer's question, unless all is said."""
        if not self._connection.gone:
            self._connection.answer(ping.ping_id)

    def go_away(self, *, broken: bool = False) -> None:
        """
        Say that this was all; nothing is sent any more.

        :param broken: the peer broke the protocol.
        """
        self._connection.go_away(GOING_WRONG if broken else GOING_WELL)

    def _take(self, event: Event) -> None:
        if isinstance(event, DataReceived):
            channel = self._channels.get(event.stream_id)
            if channel is not None:
                self._tell(StreamData(channel, event.data), _PIECE_COST + len(event.data))
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
        """The peer sends no more on a channel."""

    def _tell(self, event: ConsoleEvent, size: int = 0) -> None:
        """Tell of ``event``, behind the beginning."""
        if self.ready:
            self._events.append(event)
            return
        self._held.append(event)
        self._held_bytes += size
        if self._held_bytes > HELD_BYTES:
            self._too_early()

    def _too_early(self) -> None:
        """More came before the beginning than is held."""
        raise RemoteProtocolError("data before all streams were open")

    def _begin(self) -> None:
        if not self.ready:
            self.ready = True
            self._events.append(Ready())
            self._events.extend(self._held)
            self._held.clear()


class ServerStreams(_Streams):
    """
    The machine's end.

    :param protocol: one of :data:`SPDY_PROTOCOLS`.
    :param expected: the channels that the request says will come, if it does.
    """

    def __init__(self, protocol: str, expected: frozenset[Channel] | None = None) -> None:
        super().__init__(protocol, client=False)
        self._expected = expected or _ENOUGH
        self._status: bytes | None = None

    def start(self) -> None:
        """The client begins."""

    def settle(self) -> bool:
        """
        Wait no longer: begin with the streams that there are.

        :return: whether there are any.
        """
        if self._ids:
            self._begin()
        return self.ready

    def finish(self, document: bytes) -> None:
        """
        Say how it ended, to streams that are opened later as well; the client leaves next.

        :param document: as :func:`~twisted_exec.wire.remotecommand.encode_ending` makes it.
        """
        self._status = document
        for channel in list(self._ids):
            self._finish(channel)

    def leave(self) -> None:
        """All is said; the same as :meth:`go_away`."""
        self.go_away()

    def _finish(self, channel: Channel) -> None:
        stream_id = self._ids[channel]
        if channel in (Channel.STDIN, Channel.RESIZE):
            self._connection.reset(stream_id)
        elif not self._connection.can_send(stream_id):
            pass
        elif channel is Channel.ERROR:
            self._connection.send(stream_id, self._status or b"", fin=True)
        elif not (self.protocol == V1 and self._status and Channel.ERROR in self._ids):
            # A client of version 1 takes the end of its output for success, whatever
            # comes on the error stream; when something does, it leaves by itself.
            self._connection.send(stream_id, b"", fin=True)

    def _take(self, event: Event) -> None:
        if isinstance(event, StreamOpened):
            self._opened(event)
        else:
            super()._take(event)

    def _opened(self, event: StreamOpened) -> None:
        told = b"".join(values(event.headers, STREAM_TYPE)[:1]).lower()
        channel = _CHANNELS.get(told)
        if channel in self._ids:
            self._connection.reset(event.stream_id)
            return
        self._connection.accept(event.stream_id)
        if channel is None:
            return  # answered and passed over, as kubelets do with types they do not know
        self._ids[channel], self._channels[event.stream_id] = event.stream_id, channel
        if self._status is not None:
            self._finish(channel)
        elif self._expected <= self._ids.keys():
            self._begin()

    def _closed(self, channel: Channel, reset: bool) -> None:
        # A reset is an end as well: clients reset their input when they leave.
        if channel is Channel.STDIN:
            self._tell(StreamClosed(channel))

    def _too_early(self) -> None:
        self._begin()  # a client that has so much to say has opened all it wants


class ClientStreams(_Streams):
    """
    The user's end.

    :param protocol: the one that the server chose, of :data:`SPDY_PROTOCOLS`.
    :param channels: those to open, in Kubernetes' order whatever theirs is.  Servers
        wait for what the request asked for, and some for a terminal's whatever it did.
        ``RESIZE`` is left out where the version has no sizes.
    """

    def __init__(self, protocol: str, channels: Collection[Channel] = TERMINAL) -> None:
        super().__init__(protocol, client=True)
        has_sizes = protocol in (V3, V4)
        self._wanted = deque(
            channel
            for channel in _ORDER
            if channel in {Channel.ERROR, *channels}
            and (has_sizes or channel is not Channel.RESIZE)
        )
        self._awaited: Channel | None = None  # it has not been answered yet
        self._open = set(self._wanted) & _ENDED

    def start(self) -> None:
        """Open the first stream."""
        self._awaited = channel = self._wanted.popleft()
        stream_id = self._connection.open([(STREAM_TYPE, channel.name.lower().encode())])
        self._ids[channel], self._channels[stream_id] = stream_id, channel

    def settle(self) -> bool:
        """
        Wait no longer.

        :return: whether all streams are there; without them there is no session.
        """
        return self.ready

    def leave(self) -> None:
        """Reset what is open, and go away."""
        if not self._connection.gone:
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
        if self._wanted:
            self.start()
        else:
            self._begin()

    def _closed(self, channel: Channel, reset: bool) -> None:
        if channel is self._awaited and reset:
            self._refused(channel)
            return
        # Older kubelets reset all streams when they are done.  Where success has a
        # Status, its absence is none; where it has not, that is how it looks.
        if channel is not Channel.ERROR or not (reset and has_status(self.protocol)):
            self._tell(StreamClosed(channel))
        self._open.discard(channel)
        if not self._open:
            self._begin()
            self._tell(PeerDone())

    def _refused(self, channel: Channel) -> None:
        if channel is not Channel.RESIZE:
            raise RemoteProtocolError(f"the server refused the stream {channel.name.lower()}")
        self._next()
