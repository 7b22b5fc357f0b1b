"""
HTTP/2 connections that carry many texts at once, for one server and one set of credentials.

A server that chooses HTTP/1.1 gets a connection per request.  A silent peer gets a PING; without an
answer the connection is dead.  Sources: RFC 9113, §5.1.2, §5.2, §6.5-6.9.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from typing import Protocol as TypingProtocol

import h11
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
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import (
    IDelayedCall,
    IProtocol,
    IProtocolFactory,
    IPushProducer,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import BadGateway, BadRequest, GatewayTimeout
from twisted_exec.streaming.flow import swap_protocol
from twisted_exec.streaming.http.upgrade_client import (
    MAX_ERROR_BYTES,
    UpgradeRefused,
    UpgradeRequest,
)
from twisted_exec.streaming.text.download import Download, is_text
from twisted_exec.wire.frame_boundaries import Frames, GoneAway

WINDOW = 65535
"""Initial flow-control window of a stream in bytes: HTTP/2's default."""

Headers = Sequence[tuple[bytes, bytes]]


class StreamsConnection(TypingProtocol):
    """The connection, as its streams see it."""

    def open(self, stream: SharedStream, headers: Headers) -> bool:
        """Send a request; false if the connection takes no more."""

    def widen(self, stream: SharedStream, size: int) -> None:
        """Replenish the window by the number of bytes consumed."""

    def leave(self, stream: SharedStream) -> None:
        """Discard the rest of the response.  Repeated calls do nothing."""


class SharedStream:
    """
    A reserved stream of a connection; then a request, and its response.

    It has the checks and limits of :mod:`~twisted_exec.streaming.text.download`.
    """

    __slots__ = (
        "_answered",
        "_buffered",
        "_connection",
        "_ended",
        "_flowing",
        "_left",
        "_receiver",
        "_refusal",
        "_taken",
        "number",
    )

    def __init__(self, connection: StreamsConnection) -> None:
        self._connection = connection
        self.number = 0
        self._answered: Deferred[Download] | None = None
        self._refusal: tuple[int, Headers] | None = None
        self._receiver: tuple[Callable[[bytes], None], Callable[[bool], None]] | None = None
        self._buffered: bytearray | None = (
            None  # allocated on demand: most followed logs are silent
        )
        self._ended: bool | None = None  # whether the response is complete, once it has ended
        self._taken = 0  # bytes consumed and not yet replenished
        self._flowing = True
        self._left = False

    def ask(self, head: UpgradeRequest) -> Deferred[Download]:
        """
        Send a request; as :meth:`Asking.ask`.

        :raises BadRequest: HTTP cannot encode the request.
        """
        try:
            headers = _headers(head)
        except h11.LocalProtocolError:
            self.leave()
            raise BadRequest("a header of the request cannot be passed on") from None
        answered = self._answered = Deferred(self._cancelled)
        if self._left or not self._connection.open(self, headers):
            self._fail(BadGateway("the connection was closed before the request was sent"))
        return answered

    def _cancelled(self, answered: Deferred[Download]) -> None:
        self._answered = None
        self.leave()

    def late(self, seconds: float) -> None:
        """Fail after the time limit; a refusal whose body is incomplete still counts."""
        if self._refusal is not None:
            self._refuse()
        else:
            self._fail(GatewayTimeout(f"no answer to the request within {seconds:g} s"))

    def abort(self) -> None:
        self.leave()

    # Received

    def head_came(self, headers: Headers) -> None:
        answered = self._answered
        if answered is None:
            return
        status_text = dict(headers).get(b":status", b"")
        status = int(status_text) if len(status_text) == 3 and status_text.isdigit() else 0
        plain = [(name, value) for name, value in headers if not name.startswith(b":")]
        if is_text(status, plain):
            self._answered = None
            answered.callback(Download(self))
        else:
            self._refusal = status, plain

    def data_came(self, data: bytes, size: int) -> None:
        """
        Handle a piece of the body.

        :param size: bytes of the window that it used, including padding.
        """
        if self._left:
            return
        if self._receiver is not None and self._flowing and data and not self._buffered:
            self._receiver[0](data)  # nothing is buffered before it: deliver without a copy
            self._took(size)
            return
        if self._buffered is None:
            self._buffered = bytearray()
        if self._refusal is None:
            self._buffered += data
            self._took(size - len(data))
            self._pass_on()
            return
        self._buffered += data[: MAX_ERROR_BYTES - len(self._buffered)]
        self._took(size)
        if len(self._buffered) == MAX_ERROR_BYTES:
            self._refuse()

    def end_came(self, complete: bool) -> None:
        self._ended = complete
        if self._refusal is not None:
            self._refuse()  # with the part of the body that arrived
        elif self._answered is not None:
            self._fail(BadGateway("the connection was closed before the request was answered"))
        else:
            self._pass_on()

    # Called by the receiver

    def deliver(self, data: Callable[[bytes], None], ended: Callable[[bool], None]) -> None:
        if not self._left:
            self._receiver = data, ended
            self._pass_on()

    def flow(self, flowing: bool) -> None:
        self._flowing = flowing
        self._pass_on()

    def leave(self) -> None:
        self._left, self._receiver, self._buffered = True, None, None
        self._connection.leave(self)

    def _pass_on(self) -> None:
        while self._buffered and self._flowing and self._receiver is not None:
            data, self._buffered = bytes(self._buffered), None
            self._receiver[0](data)
            self._took(len(data))
        if self._ended is None or self._buffered or not self._flowing or self._receiver is None:
            return
        ended = self._receiver[1]
        self.leave()
        ended(self._ended)

    def _took(self, size: int) -> None:
        self._taken += size
        if self._taken > WINDOW // 2 and self._ended is None and not self._left:
            consumed, self._taken = self._taken, 0
            self._connection.widen(self, consumed)

    def _refuse(self) -> None:
        assert self._refusal is not None
        self._fail(UpgradeRefused(*self._refusal, bytes(self._buffered or b"")))

    def _fail(self, problem: Exception) -> None:
        answered, self._answered = self._answered, None
        self.leave()
        if answered is not None and not answered.called:
            answered.errback(problem)


def _headers(head: UpgradeRequest) -> Headers:
    """Encode a request for HTTP/2 (RFC 9113, §8.3.1), with HTTP/1.1's rules for valid values."""
    checked = h11.Request(
        method=head.method, target=head.path, headers=[(b"Host", head.host), *head.headers]
    )
    return [
        (b":method", bytes(checked.method)),
        (b":scheme", b"https"),
        (b":authority", head.host),
        (b":path", bytes(checked.target)),
        *((name, value) for name, value in checked.headers if name != b"host"),
    ]


MAX_STREAMS = 100
"""Most streams of a connection, to limit the damage of its loss."""

MAX_HEADER_BYTES = 64 << 10

IDLE_SECONDS = 5.0
"""How long a connection without streams waits for the next."""

LOOK_SECONDS = 15.0
"""After at most two such periods a silent peer gets a PING; after another it counts as dead."""

_CONNECTION_WINDOW = MAX_STREAMS * WINDOW
_LAST_NUMBER = 1 << 17
"""Last stream number before a new connection is used: `h2` remembers closed streams."""

_NONSENSE = (H2Error, HyperframeError, HPACKError, ValueError)


class _Http(H2Connection):
    MAX_CLOSED_STREAMS = 10 * MAX_STREAMS  # late frames of these are ignored


@implementer(IPushProducer)
class SharedConnection(TwistedProtocol):
    """
    An HTTP/2 connection, whose streams are texts.

    :ivar ready: fires after the peer's SETTINGS.
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
        initial = {
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
            SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEADER_BYTES,
        }
        self._http.local_settings = Settings(client=True, initial_values=initial)
        del self._http.local_settings[SettingCodes.ENABLE_CONNECT_PROTOCOL]  # only servers send it
        self._http.initiate_connection()
        # As large as the windows of all streams together: a reader that stops blocks only its own
        # stream.
        self._http.increment_flow_control_window(_CONNECTION_WINDOW - WINDOW)
        self.transport.registerProducer(self, True)
        self._flush()

    def dataReceived(self, data: bytes) -> None:
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
                # h2 never sees a GOAWAY, at which it would end the connection.
                if isinstance(piece, GoneAway):
                    yield piece
                else:
                    yield from self._http.receive_data(piece)
        except _NONSENSE:
            self._flush()  # the library's GOAWAY with the error
            self.abort()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._die()

    def pauseProducing(self) -> None:
        # Answers to a peer that does not read (PING, SETTINGS) cannot pile up.
        self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        self.transport.resumeProducing()

    def stopProducing(self) -> None:
        """Called when the connection is lost; :meth:`connectionLost` handles it."""

    def _unwanted(self, ready: Deferred[None]) -> None:
        ready.errback(CancelledError())
        self.abort()

    def abort(self) -> None:
        """Reset the connection; its readers learn that their texts are incomplete."""
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
        if self._retired or not self.ready.called:
            return 0
        most = min(MAX_STREAMS, self._http.remote_settings.max_concurrent_streams)
        return most - len(self._users)

    def take(self) -> SharedStream:
        stream = SharedStream(self)
        self._users.add(stream)
        if len(self._users) == 1:
            self._watch()
        return stream

    def open(self, stream: SharedStream, headers: Headers) -> bool:
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
        if stream.number in self._streams:
            with suppress(StreamClosedError):  # its end was received, and is about to be handled
                self._http.increment_flow_control_window(size, stream.number)
            self._flush()

    def leave(self, stream: SharedStream) -> None:
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
            # RFC 9113, §6.8: the peer has not processed these.
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


H2, HTTP_1_1 = b"h2", b"http/1.1"

OFFERED = (H2, HTTP_1_1)

READY_SECONDS = 3.0
"""Time limit for an HTTP/2 server's SETTINGS."""


class SharedDownloads:
    """The connections of one program; each request needs an :meth:`endpoint`."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._places: dict[Hashable, _Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    def endpoint(self, key: Hashable, inner: IStreamClientEndpoint) -> IStreamClientEndpoint:
        """
        Return an endpoint for a request that may share a connection.

        :param key: equal for the same server and credentials.
        :return: for :func:`~twisted_exec.streaming.http.upgrade_client.connect` with an
            :class:`~twisted_exec.streaming.http.upgrade_client.AskingFactory` of downloads.
        """
        return _Sharing(self, key, inner)

    def close(self) -> None:
        """Close idle connections now, and others behind their last stream."""
        for place in list(self._places.values()):
            place.close()

    def _connect(
        self, key: Hashable, inner: IStreamClientEndpoint, factory: IProtocolFactory
    ) -> Deferred[Any]:
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = _Place(self._clock, partial(self._emptied, key))
        return place.connect(inner, factory)

    def _emptied(self, key: Hashable, place: _Place) -> None:
        if self._places.get(key) is place:
            del self._places[key]


@implementer(IStreamClientEndpoint)
@dataclass(frozen=True)
class _Sharing:
    shared: SharedDownloads
    key: Hashable
    inner: IStreamClientEndpoint

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        return self.shared._connect(self.key, self.inner, protocolFactory)


@dataclass(eq=False)
class _Waiting:
    factory: IProtocolFactory
    done: Deferred[Any]


@dataclass(eq=False)
class _Place:
    clock: Any
    emptied: Callable[[_Place], None]
    connections: list[SharedConnection] = field(default_factory=list)
    waiting: list[_Waiting] = field(default_factory=list)
    attempts: list[Deferred[Any]] = field(default_factory=list)
    each = MAX_STREAMS
    """How many requests a further connection is expected to serve."""

    def connect(self, inner: IStreamClientEndpoint, factory: IProtocolFactory) -> Deferred[Any]:
        for connection in self.connections:
            if connection.free > 0:
                return succeed(connection.take())
        waiting = _Waiting(factory, Deferred(self._cancelled))
        self.waiting.append(waiting)
        self._reach(inner)
        return waiting.done

    def close(self) -> None:
        for connection in list(self.connections):
            connection.retire()

    def _cancelled(self, done: Deferred[Any]) -> None:
        self.waiting = [each for each in self.waiting if each.done is not done]
        self._settle()

    def _settle(self) -> None:
        if not self.waiting:
            attempts, self.attempts = self.attempts, []
            for attempt in attempts:
                attempt.cancel()
        if not (self.connections or self.waiting or self.attempts):
            self.emptied(self)

    def _reach(self, inner: IStreamClientEndpoint) -> None:
        while len(self.attempts) * self.each < len(self.waiting):
            attempt = Deferred.fromCoroutine(self._connection(inner))
            self.attempts.append(attempt)
            attempt.addBoth(self._reached, attempt, inner)

    def _reached(self, result: Any, attempt: Deferred[Any], inner: IStreamClientEndpoint) -> None:
        if attempt not in self.attempts:  # no request waits for it any more
            if not isinstance(result, Failure):
                result.transport.abortConnection()
            return
        self.attempts.remove(attempt)
        if isinstance(result, Failure):
            self._failed(result)
        elif isinstance(result, SharedConnection):
            self.each = MAX_STREAMS
            self._serve(result)
        else:
            self.each = 1
            self._serve_one(result)
        self._reach(inner)
        self._settle()

    async def _connection(self, inner: IStreamClientEndpoint) -> Any:
        protocol: Any = await inner.connect(_Undecideds(self))
        connection = protocol.shared
        if connection is None:
            return protocol
        connection.ready.addTimeout(READY_SECONDS, self.clock)
        await connection.ready
        if connection.free <= 0:
            connection.abort()
            raise ValueError("it takes no requests")
        return connection

    def _failed(self, why: Failure) -> None:
        requests, self.waiting = self.waiting[: self.each], self.waiting[self.each :]
        for each in requests:
            each.done.errback(why)

    def _serve(self, connection: SharedConnection) -> None:
        self.connections.append(connection)
        while self.waiting and connection.free > 0:
            self.waiting.pop(0).done.callback(connection.take())

    def _serve_one(self, connection: Any) -> None:
        if not self.waiting:
            connection.transport.abortConnection()
            return
        waiting = self.waiting.pop(0)
        protocol: Any = waiting.factory.buildProtocol(connection.transport.getPeer())
        swap_protocol(connection.transport, protocol)
        protocol.makeConnection(connection.transport)
        waiting.done.callback(protocol)

    def gone(self, connection: SharedConnection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
            self._settle()


class _Undecided(TwistedProtocol):
    transport: Any
    shared: SharedConnection | None = None

    def __init__(self, place: _Place) -> None:
        self._place = place

    def connectionMade(self) -> None:
        if getattr(self.transport, "negotiatedProtocol", None) == H2:
            self.shared = SharedConnection(self._place.clock, self._place.gone)
            swap_protocol(self.transport, self.shared)
            self.shared.makeConnection(self.transport)

    def dataReceived(self, data: bytes) -> None:
        self.transport.abortConnection()  # it sent bytes before our request: not an HTTP server


@dataclass
class _Undecideds(Factory):
    noisy = False

    place: _Place

    def buildProtocol(self, addr: object) -> _Undecided:
        return _Undecided(self.place)
