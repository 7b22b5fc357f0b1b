"""
An HTTP/2 server for tests: each stream is one connection to an HTTP/1.1 backend.

It is `h2`'s own server side.  Its backend (a test that writes responses by hand, or a whole
``twisted.web`` site) speaks plain HTTP/1.1, so that one test covers both versions of HTTP.
"""

from __future__ import annotations

from typing import Any

import h11
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RequestReceived,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import StreamClosedError
from h2.settings import SettingCodes, Settings
from OpenSSL import SSL
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import ITransport
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.streaming.flow import swap_protocol
from twisted_exec.tls.server import ServerTLS


class H2Front(Protocol):
    """
    :param behind: makes the HTTP/1.1 protocol that answers a stream.
    :param streams: how many the client may have at once.
    :ivar streams: those that are open, by number.
    :ivar reset: numbers of those that the client left.
    :ivar pings: whether PINGs are answered.
    """

    transport: Any

    def __init__(self, behind: Any, streams: int = 100) -> None:
        self.behind, self.limit = behind, streams
        self.http = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.streams: dict[int, BehindTransport] = {}
        self.reset: list[int] = []
        self.told: list[Any] = []
        self.lost = False

    def connectionMade(self) -> None:
        limit = {SettingCodes.MAX_CONCURRENT_STREAMS: self.limit}
        self.http.local_settings = Settings(client=False, initial_values=limit)
        self.http.initiate_connection()
        self.flush()

    def flush(self) -> None:
        data = self.http.data_to_send()
        if data and not self.lost:
            self.transport.write(data)

    def dataReceived(self, data: bytes) -> None:
        for event in self.http.receive_data(data):
            self.told.append(event)
            self._take(event)
        self.flush()

    def _take(self, event: Any) -> None:
        if isinstance(event, RequestReceived):
            stream = self.streams[event.stream_id] = BehindTransport(self, event.stream_id)
            stream.begin(event.headers)
        elif isinstance(event, StreamReset):
            self.reset.append(event.stream_id)
            if (left := self.streams.pop(event.stream_id, None)) is not None:
                left.lose()
        elif isinstance(event, WindowUpdated):
            for stream in list(self.streams.values()):
                stream.send()
        elif isinstance(event, ConnectionTerminated | DataReceived):
            pass

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = True
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            stream.lose()


@implementer(ITransport)
class BehindTransport(StringTransport):
    """One stream, as an HTTP/1.1 connection; bytes written are the response."""

    disconnecting = False

    def __init__(self, front: H2Front, number: int) -> None:
        super().__init__()
        self.front, self.number = front, number
        self.parser = h11.Connection(h11.CLIENT)
        self.parser.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
        self.parser.send(h11.EndOfMessage())
        self.waiting = bytearray()
        self.head: list[tuple[bytes, bytes]] = []
        self.complete = self.ended = self.closed = False
        self.paused = False

    def begin(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Pass the request to the backend."""
        told = dict(headers)
        self.head = headers
        lines = [b"GET %b HTTP/1.1" % told[b":path"], b"Host: %b" % told[b":authority"]]
        lines += [b"%b: %b" % pair for pair in headers if not pair[0].startswith(b":")]
        self.protocol = self.front.behind()
        self.protocol.makeConnection(self)
        # Each backend connection carries one request, so the backend must close it.
        self.protocol.dataReceived(b"\r\n".join(lines) + b"\r\nConnection: close\r\n\r\n")

    def lose(self) -> None:
        """The client left."""
        if not self.closed:
            self.ended = self.closed = True
            self.protocol.connectionLost(Failure(ConnectionDone()))

    def write(self, data: bytes) -> None:
        if self.ended:
            return
        try:
            self.parser.receive_data(data)
            self._parse()
        except h11.RemoteProtocolError:
            self.abortConnection()
        self.send()
        self.front.flush()

    def _parse(self) -> None:
        while not self.complete:
            event = self.parser.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return
            if isinstance(event, h11.Response):
                skipped = (b"connection", b"transfer-encoding", b"keep-alive")
                plain = [pair for pair in event.headers if pair[0] not in skipped]
                status = (b":status", b"%d" % event.status_code)
                self.front.http.send_headers(self.number, [status, *plain])
            elif isinstance(event, h11.Data):
                self.waiting += event.data
            elif isinstance(event, h11.EndOfMessage):
                self.complete = True

    def send(self) -> None:
        """Send as much output as the client's windows take."""
        if self.ended:
            return
        http = self.front.http
        try:
            while self.waiting:
                size = min(
                    http.local_flow_control_window(self.number),
                    http.max_outbound_frame_size,
                    len(self.waiting),
                )
                if size <= 0:
                    break
                http.send_data(self.number, bytes(self.waiting[:size]))
                del self.waiting[:size]
            if self.complete and not self.waiting:
                self.ended = True
                self.front.streams.pop(self.number, None)
                http.end_stream(self.number)
        except StreamClosedError:
            return
        self._pace()

    def _pace(self) -> None:
        """Pause the backend while output waits here."""
        if self.producer is not None and self.paused != bool(self.waiting):
            self.paused = bool(self.waiting)
            if self.paused:
                self.producer.pauseProducing()
            else:
                self.producer.resumeProducing()

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        assert streaming, "a site makes its own of those that are pulled"
        self.producer, self.streaming = producer, streaming

    def unregisterProducer(self) -> None:
        self.producer = None

    def abortConnection(self) -> None:
        """Reset this stream only."""
        if not self.ended:
            self.ended = self.closed = True
            self.front.streams.pop(self.number, None)
            self.front.http.reset_stream(self.number, ErrorCodes.INTERNAL_ERROR)
            self.front.flush()
            self.protocol.connectionLost(Failure(ConnectionDone()))

    def loseConnection(self) -> None:
        if not self.complete:
            self.abortConnection()
        elif not self.closed:
            self.closed = True
            self.protocol.connectionLost(Failure(ConnectionDone()))


class H2Fronts(Factory):
    """
    Makes an HTTP/2 frontend for a factory of HTTP/1.1 protocols.

    :ivar made: the connections so far.
    """

    noisy = False

    def __init__(self, behind: Any, streams: int = 100) -> None:
        self.behind, self.streams = behind, streams
        self.made: list[H2Front] = []

    def buildProtocol(self, addr: Any) -> H2Front:
        front = H2Front(lambda: self.behind.buildProtocol(addr), self.streams)
        self.made.append(front)
        return front


class H2TLS(ServerTLS):
    """Chooses HTTP/2 where a client offers it, as a kube-apiserver does."""

    def _build(self, *contents: bytes) -> SSL.Context:
        context = super()._build(*contents)
        context.set_alpn_select_callback(_select)
        return context


def _select(connection: SSL.Connection, offered: list[bytes]) -> bytes:
    return b"h2" if b"h2" in offered else b"http/1.1"


class ByALPN(H2Fronts):
    """Speaks the protocol that ALPN has chosen."""

    def buildProtocol(self, addr: Any) -> Any:
        return _Either(self, addr)


class _Either(Protocol):
    transport: Any

    def __init__(self, fronts: ByALPN, addr: Any) -> None:
        self._fronts, self._addr = fronts, addr

    def dataReceived(self, data: bytes) -> None:
        make = self._fronts.behind.buildProtocol
        if self.transport.negotiatedProtocol == b"h2":
            make = super(ByALPN, self._fronts).buildProtocol
        protocol = make(self._addr)
        swap_protocol(self.transport, protocol)
        protocol.makeConnection(self.transport)
        protocol.dataReceived(data)
