"""
A connection on which many texts come at once: HTTP/2, as a client of plain GETs.

What one holds for itself is what it costs to follow a log without a word in it, and TLS is nine tenths
of that; a hundred share one here.  The `h2` library knows the protocol; what is decided here:

* The window of the whole connection is as wide as those of all its streams, and is opened again for
  whatever comes: a reader that stops holds up its own stream, and none beside it.
* A peer that does not read what we write is not read either: what answers it (PING, SETTINGS)
  cannot pile up.
* A peer that has not been heard for a while is asked (PING); without an answer it is gone, and within
  a minute every reader knows.
* GOAWAY ends nothing that its sender still answers: such a connection takes no further request, and
  goes with the last of them.  (`h2` would take it for the end, so it does not get to see it.)
* Nothing may be pushed.

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
"""At once on one connection, whatever more the peer takes: what is lost with it is bounded, too."""

MAX_HEADER_BYTES = 64 << 10

IDLE_SECONDS = 5.0
"""A connection without streams waits so long for the next."""

LOOK_SECONDS = 15.0
"""A peer that is silent is asked after at most two of these, and gone after another."""

_CONNECTION_WINDOW = MAX_STREAMS * WINDOW
_LAST_NUMBER = 1 << 17
"""Of a stream; then another connection is made.  There are 2^31, and `h2` remembers those that ended."""

_NONSENSE = (H2Error, HyperframeError, HPACKError, ValueError)


class _Http(H2Connection):
    MAX_CLOSED_STREAMS = 10 * MAX_STREAMS  # what still comes of these is passed over


@implementer(IPushProducer)
class SharedConnection(Protocol):
    """
    :param gone: called once when it takes no further request: it was lost, or its peer is about to go.
    :ivar ready: fires when the peer has said what it takes, fails when it was lost before.
    """

    transport: Any

    def __init__(self, clock: IReactorTime, gone: Callable[[SharedConnection], None]) -> None:
        self._clock, self._gone = clock, gone
        self._http = _Http(H2Configuration(client_side=True, header_encoding=None))
        self._frames = Frames()
        self._users: set[SharedStream] = set()
        self._streams: dict[int, SharedStream] = {}
        self._timer: IDelayedCall | None = None
        self._unread = 0  # bytes that the connection's window lacks
        self._heard = self._asked = self._retired = self._lost = False
        self.ready: Deferred[None] = Deferred(self._unwanted)

    # The connection.

    def connectionMade(self) -> None:
        """Called by Twisted, behind the handshake."""
        wanted = {
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
            SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEADER_BYTES,
        }
        self._http.local_settings = Settings(client=True, initial_values=wanted)
        del self._http.local_settings[SettingCodes.ENABLE_CONNECT_PROTOCOL]  # a server's to say
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
            self._flush()  # what is wrong, in the library's words
            self.abort()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Called by Twisted."""
        self._die()

    def pauseProducing(self) -> None:
        """The peer reads nothing: nor do we."""
        self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        """It reads again."""
        self.transport.resumeProducing()

    def stopProducing(self) -> None:
        """Called when it was lost, which :meth:`connectionLost` is told as well."""

    def _unwanted(self, ready: Deferred[None]) -> None:
        ready.errback(CancelledError())
        self.abort()

    def abort(self) -> None:
        """Close for good, and tell all readers that theirs is not complete."""
        if not self._lost:
            self.transport.abortConnection()
            self._die()

    def retire(self) -> None:
        """Take no further request; close behind the last answer."""
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

    # Its streams.

    @property
    def free(self) -> int:
        """How many more requests it takes now."""
        if self._retired or not self.ready.called:
            return 0
        most = min(MAX_STREAMS, self._http.remote_settings.max_concurrent_streams)
        return most - len(self._users)

    def take(self) -> SharedStream:
        """A place for a request."""
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
            with suppress(StreamClosedError):  # its end has come, and we are about to hear it
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

    # What comes.

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

    def _peer_goes(self, told: GoneAway) -> None:
        self.retire()
        for stream in list(self._streams.values()):
            if stream.number > told.last_stream:
                self._end(stream, False)

    # Whether it is still there.

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
