"""
An HTTP/2 client connection that carries many texts at once: plain GETs.

Following a silent log costs a connection, nine tenths of it for TLS; here a hundred logs share one.
The `h2` library implements the protocol.  Decisions made here:

* The window of the connection is as large as those of all its streams together, and is replenished
  for every byte that arrives: a reader that stops blocks only its own stream.
* While the peer does not read what we write, it is not read either: answers to it (PING, SETTINGS)
  cannot pile up.
* A silent peer gets a PING; without an answer the connection is dead, and within a minute every
  reader knows.
* After GOAWAY the connection takes no further request, but streams that the sender still serves
  continue; it closes with the last of them.  (`h2` would end the connection, so GOAWAY is handled
  before `h2` sees it.)
* Server push is disabled.

Sources: RFC 9113, §5.1.2, §5.2, §6.5-6.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import H2Error, StreamClosedError
from h2.settings import SettingCodes, Settings
from hpack.exceptions import HPACKError
from hyperframe.exceptions import HyperframeError
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.streaming.text.shared_stream import WINDOW, Headers, SharedStream
from twisted_exec.wire.http2 import Frames, GoneAway

MAX_STREAMS = 100
"""Streams per connection, even if the peer allows more: it limits the damage of a lost connection."""

MAX_HEADER_BYTES = 64 << 10

IDLE_SECONDS = 5.0
"""How long a connection without streams waits for the next."""

LOOK_SECONDS = 15.0
"""A silent peer gets a PING after at most two of these, and is dead after another."""

_CONNECTION_WINDOW = MAX_STREAMS * WINDOW
_LAST_NUMBER = 1 << 17
"""Last stream number before a new connection is used (of 2^31): `h2` remembers closed streams."""

_NONSENSE = (H2Error, HyperframeError, HPACKError, ValueError)


class _Http(H2Connection):
    MAX_CLOSED_STREAMS = 10 * MAX_STREAMS  # late frames of these are ignored


@implementer(IPushProducer)
class SharedConnection(Protocol):
    """
    :param gone: called once when it takes no further request: it was lost, or received GOAWAY.
    :ivar ready: fires after the peer's SETTINGS, fails if the connection is lost before.
    """

    transport: Any

    def __init__(self, clock: IReactorTime, gone: Callable[[SharedConnection], None]) -> None:
        self._clock, self._gone = clock, gone
        self._http = _Http(H2Configuration(client_side=True, header_encoding=None))
        self._frames = Frames()
        self._users: set[SharedStream] = set()
        self._streams: dict[int, SharedStream] = {}
        self._timer: IDelayedCall | None = None
        self._unread = 0  # bytes to replenish in the connection's window
        self._heard = self._asked = self._retired = self._lost = False
        self.ready: Deferred[None] = Deferred(self._unwanted)

    # The connection

    def connectionMade(self) -> None:
        """Called by Twisted, after the handshake."""
        initial = {
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
            SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEADER_BYTES,
        }
        self._http.local_settings = Settings(client=True, initial_values=initial)
        del self._http.local_settings[SettingCodes.ENABLE_CONNECT_PROTOCOL]  # only servers send it
        self._http.initiate_connection()
        self._http.increment_flow_control_window(_CONNECTION_WINDOW - WINDOW)
        self.transport.registerProducer(self, True)
        self._flush()

    def dataReceived(self, data: bytes) -> None:
        """Called by Twisted."""
        if self._lost:
            return
        self._heard = True
        for event in self._events(data):
            if self._lost:
                return
            self._take(event)
        self._flush()

    def _events(self, data: bytes) -> Iterator[Any]:
        try:
            for piece in self._frames.cut(data):
                if isinstance(piece, GoneAway):
                    yield piece
                else:
                    yield from self._http.receive_data(piece)
        except _NONSENSE:
            self._flush()  # the library's GOAWAY with the error
            self.abort()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Called by Twisted."""
        self._die()

    def pauseProducing(self) -> None:
        """Our output is blocked: stop reading the peer."""
        self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        """Our output flows again."""
        self.transport.resumeProducing()

    def stopProducing(self) -> None:
        """Called when the connection is lost; :meth:`connectionLost` handles it."""

    def _unwanted(self, ready: Deferred[None]) -> None:
        ready.errback(CancelledError())
        self.abort()

    def abort(self) -> None:
        """Reset the connection; all readers learn that their texts are incomplete."""
        if not self._lost:
            self.transport.abortConnection()
            self._die()

    def retire(self) -> None:
        """Take no further request; close behind the last response."""
        if not self._retired:
            self._retired = True
            self._gone(self)
        if not self._users and not self._lost:
            self._close()

    def _close(self) -> None:
        self._http.close_connection()
        self._flush()
        self.abort()

    def _die(self) -> None:
        if self._lost:
            return
        self._lost = True
        self._stop_timer()
        if not self._retired:
            self._retired = True
            self._gone(self)
        if not self.ready.called:
            self.ready.errback(ConnectionDone())
        for stream in list(self._streams.values()):
            self._end(stream, False)
        self._users.clear()

    def _flush(self) -> None:
        data = self._http.data_to_send()
        if data and not self._lost:
            self.transport.write(data)

    # Its streams

    @property
    def free(self) -> int:
        """Number of requests that it can still take."""
        if self._retired or not self.ready.called:
            return 0
        most = min(MAX_STREAMS, self._http.remote_settings.max_concurrent_streams)
        return most - len(self._users)

    def take(self) -> SharedStream:
        """Reserve a stream for a request."""
        stream = SharedStream(self)
        self._users.add(stream)
        if len(self._users) == 1:
            self._watch()
        return stream

    def open(self, stream: SharedStream, headers: Headers) -> bool:
        """See :meth:`Shared.open`."""
        if self._lost:
            return False
        try:
            number = self._http.get_next_available_stream_id()
            self._http.send_headers(number, headers, end_stream=True)
        except H2Error:
            self.retire()
            return False
        stream.number = number
        self._streams[number] = stream
        self._flush()
        if number >= _LAST_NUMBER:
            self.retire()
        return True

    def widen(self, stream: SharedStream, size: int) -> None:
        """See :meth:`Shared.widen`."""
        if stream.number in self._streams:
            with suppress(StreamClosedError):  # its end was received, and is about to be handled
                self._http.increment_flow_control_window(size, stream.number)
            self._flush()

    def leave(self, stream: SharedStream) -> None:
        """See :meth:`Shared.leave`."""
        if self._streams.pop(stream.number, None) is not None and not self._lost:
            with suppress(StreamClosedError):
                self._http.reset_stream(stream.number, ErrorCodes.CANCEL)
            self._flush()
        self._release(stream)

    def _release(self, stream: SharedStream) -> None:
        if stream not in self._users:
            return
        self._users.discard(stream)
        if self._users or self._lost:
            return
        if self._retired:
            self._close()
        else:
            self._start_timer(IDLE_SECONDS, self.retire)

    def _end(self, stream: SharedStream, complete: bool) -> None:
        if self._streams.pop(stream.number, None) is not None:
            self._release(stream)
            stream.end_came(complete)

    # Received events

    def _take(self, event: Any) -> None:
        stream = self._streams.get(getattr(event, "stream_id", None) or 0)
        if isinstance(event, DataReceived):
            self._take_data(event, stream)
        elif isinstance(event, GoneAway):
            self._peer_goes(event)
        elif isinstance(event, RemoteSettingsChanged):
            self._begin()
        elif stream is None:
            return
        elif isinstance(event, ResponseReceived):
            stream.head_came(event.headers)
        elif isinstance(event, StreamEnded | StreamReset):
            self._end(stream, isinstance(event, StreamEnded))

    def _begin(self) -> None:
        if not self.ready.called:
            self._start_timer(IDLE_SECONDS, self.retire)
            self.ready.callback(None)

    def _take_data(self, event: Any, stream: SharedStream | None) -> None:
        size = event.flow_controlled_length
        self._unread += size
        if self._unread > _CONNECTION_WINDOW // 2:
            unread, self._unread = self._unread, 0
            self._http.increment_flow_control_window(unread)
        if stream is not None:
            stream.data_came(event.data, size)

    def _peer_goes(self, event: GoneAway) -> None:
        self.retire()
        for stream in list(self._streams.values()):
            if stream.number > event.last_stream:
                self._end(stream, False)

    # Liveness

    def _watch(self) -> None:
        self._heard = self._asked = False
        self._start_timer(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        if self._asked and not self._heard:
            self.abort()
            return
        if not self._heard:
            self._http.ping(bytes(8))
            self._flush()
        self._asked, self._heard = not self._heard, False
        self._start_timer(LOOK_SECONDS, self._look)

    def _start_timer(self, seconds: float, then: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self._clock.callLater(seconds, then)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
