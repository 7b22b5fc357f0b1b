"""
Socket transports that send at once, and TLS without write aggregation.

Twisted's ``transport.write`` never writes: it queues, arms the reactor's write
event and waits a turn, which costs two ``epoll_ctl`` and a turn of latency per
keystroke.  Here ``write`` asks the kernel first when nothing is queued before
it; only what the kernel would not take is queued, in Twisted's own buffers,
with Twisted's own producer signals.  What stays exactly as in Twisted: the order of
bytes, ``registerProducer``, flushing by ``loseConnection``, and that ``write`` calls
nobody back; a send that fails is left for the reactor to find a turn later.

Small writes are not held back for each other: what is spliced comes in whole
frames, and twisted.web's head and body come in few pieces.  So the sockets also get
TCP_NODELAY, and keep-alive, so that a peer whose host vanished is noticed: within a minute, for a log
that is followed may have nothing to say for weeks, and the kernel's own two hours are long.

``Port.transport`` is Twisted's documented place for another server transport.
``Connector._makeTransport`` is the same for clients, undocumented and unchanged since
2005; ``tests/tls/test_transport.py`` is its canary, and that of
``TLSMemoryBIOProtocol``'s method names.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, cast

from OpenSSL.SSL import Error, WantReadError, ZeroReturnError
from twisted.internet import tcp, unix
from twisted.internet.base import BaseConnector, ReactorBase
from twisted.internet.interfaces import (
    IConnector,
    IDelayedCall,
    IListeningPort,
    IOpenSSLClientConnectionCreator,
    IOpenSSLServerConnectionCreator,
    IProtocolFactory,
    IReactorTime,
    ITransport,
)
from twisted.internet.posixbase import PosixReactorBase
from twisted.internet.protocol import ClientFactory, Protocol, connectionDone
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import directlyProvides, providedBy

if TYPE_CHECKING:
    _Socket = tcp.Connection
else:
    _Socket = object


class _AtOnce(_Socket):
    """Mixed in before a socket transport: :meth:`write` tries the kernel first."""

    def write(self, data: bytes) -> None:
        """As :meth:`ITransport.write`; what the kernel takes now is never queued."""
        if data and isinstance(data, bytes) and self._may_send_now():
            sent = self._send(data)
            if sent == len(data):
                return
            data = data[sent:]
        super().write(data)

    def _send(self, data: bytes) -> int:
        """How much the kernel took."""
        try:
            return self.socket.send(data)
        except OSError:
            # Full, or broken.  Which one is not acted upon here: the caller
            # is in the middle of something, and doWrite meets the same error
            # in the reactor's turn, where the connection may be ended.
            return 0

    def writeSequence(self, iovec: Any) -> None:
        """As :meth:`ITransport.writeSequence`, in one send."""
        self.write(b"".join(iovec))

    def _may_send_now(self) -> bool:
        return not (
            self.dataBuffer
            or self._tempDataBuffer
            or not self.connected
            or self.disconnecting
            or self._writeDisconnecting
            or self._writeDisconnected
            or self._aborting
            or self.TLS  # startTLS: the bytes are not yet encrypted
            # A pull producer is resumed by doWrite, so something must be queued.
            or (self.producer is not None and not self.streamingProducer)
        )


KEEP_ALIVE = (
    (socket.TCP_KEEPIDLE, 30),
    (socket.TCP_KEEPINTVL, 10),
    (socket.TCP_KEEPCNT, 3),
)
"""After a minute without any answer of its kernel a peer is gone (tcp(7))."""


def _tune(plug: socket.socket) -> None:
    plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE:
        plug.setsockopt(socket.IPPROTO_TCP, option, value)


class TCPServer(_AtOnce, tcp.Server):
    """An accepted TCP connection."""

    def __init__(self, sock: socket.socket, *rest: Any) -> None:
        try:
            _tune(sock)
        except OSError:
            pass  # reset before it was accepted: reading will tell
        super().__init__(sock, *rest)


class _UNIXAtOnce(_AtOnce):
    _sendmsgQueue: list[int]

    def _may_send_now(self) -> bool:
        # A descriptor travels with the first byte after it: that is doWrite's.
        return not self._sendmsgQueue and super()._may_send_now()


class UNIXServer(_UNIXAtOnce, unix.Server):
    """An accepted UNIX connection."""


class TCPClient(_AtOnce, tcp.Client):
    """An outgoing TCP connection."""

    def createInternetSocket(self) -> socket.socket:
        """Called by Twisted for the socket to connect."""
        plug: socket.socket = super().createInternetSocket()
        _tune(plug)
        return plug


class UNIXClient(_UNIXAtOnce, unix.Client):
    """An outgoing UNIX connection."""


class _Once(BaseConnector):
    """
    A connector that is not asked to connect again, as none of an endpoint is.

    It and its connection know each other, it and its factory, too: cut at the end, or
    each connection would be left to the garbage collector.
    """

    def connectionLost(self, reason: Failure) -> None:
        """Called by its connection."""
        super().connectionLost(reason)
        self.factory = self.transport = None  # type: ignore[assignment]


class TCPConnector(_Once, tcp.Connector):
    """Makes :class:`TCPClient` connections."""

    def _makeTransport(self) -> TCPClient:
        return TCPClient(self.host, self.port, self.bindAddress, self, self.reactor)


class _UNIXConnector(_Once, unix.Connector):
    def _makeTransport(self) -> Any:
        return UNIXClient(self.address, self, self.reactor, self.checkPID)


def accept_unbuffered(port: IListeningPort) -> None:
    """Make a listening port's *later* connections send at once.  Unknown kinds stay as they are."""
    if type(port) is tcp.Port:
        port.transport = TCPServer  # type: ignore[assignment]
    elif type(port) is unix.Port:
        port.transport = UNIXServer


class Connecting:
    """A reactor whose outgoing connections send at once; all else is the reactor's."""

    def __init__(self, reactor: ReactorBase) -> None:
        self._reactor = reactor
        directlyProvides(self, providedBy(reactor))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def tcp_connector(self, *where: Any) -> TCPConnector:
        """What makes one outgoing TCP connection."""
        return TCPConnector(*where)

    def connectTCP(
        self,
        host: str,
        port: int,
        factory: ClientFactory[Any],
        timeout: float = 30.0,
        bindAddress: Any = None,
    ) -> IConnector:
        connector = self.tcp_connector(host, port, factory, timeout, bindAddress, self._reactor)
        connector.connect()
        return connector

    def connectUNIX(
        self, address: str, factory: ClientFactory[Any], timeout: float = 30, checkPID: int = 0
    ) -> IConnector:
        connector = _UNIXConnector(address, factory, timeout, self._reactor, checkPID)
        connector.connect()
        return connector


def unbuffered_connector(reactor: Any) -> Any:
    """The reactor to give to client endpoints; other than socket reactors come back unchanged."""
    return Connecting(reactor) if isinstance(reactor, PosixReactorBase) else reactor


_LINGER_SECONDS = 30.0

_RECORD_BYTES = 1 << 14
"""The most plain bytes that one TLS record carries."""


class StreamTLS(TLSMemoryBIOProtocol):
    """
    TLS for streams: no aggregation, and a handshake that may not take forever.

    A peer that connects and then sends nothing, or withholds its certificate,
    is cut after the factory's ``handshake_seconds``; one that has ended the stream and does not
    read what is left is cut as well, and one that does not end it when we have.

    What one read of the socket brought is delivered in one piece, and what one
    ``write`` was given is sent in one piece; Twisted does both record by record, which
    makes four turns of everything above and below for each 64 KiB.
    """

    factory: StreamTLSFactory
    _deadline: IDelayedCall | None = None

    def makeConnection(self, transport: ITransport) -> None:
        """Called by Twisted with the socket's transport."""
        super().makeConnection(transport)
        seconds = self.factory.handshake_seconds
        if seconds is not None and not self._handshakeDone and self.connected:
            self._deadline = self.factory.clock.callLater(seconds, self._too_slow)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Called by Twisted."""
        try:
            super().connectionLost(reason)  # reads what is left, which may be the stream's end
        finally:
            self._end_deadline()

    def abortConnection(self) -> None:
        """As :meth:`ITCPTransport.abortConnection`; Twisted's fails when all is over already."""
        if self._tlsConnection is not None:
            super().abortConnection()

    def _flushReceiveBIO(self) -> None:
        received: list[bytes] = []
        ended: Error | None = None
        while not self._lostTLSConnection:
            try:
                received.append(self._tlsConnection.recv(_RECORD_BYTES))
            except WantReadError:  # once per read of the socket: keep it cheap
                break
            except Error as problem:
                # Its traceback would hold this frame, and so the whole connection,
                # until the garbage collector comes by.
                ended = problem.with_traceback(None)
                break
        if received and not self._aborted:
            self.wrappedProtocol.dataReceived(
                received[0] if len(received) == 1 else b"".join(received)
            )
        if ended is not None and not self._lostTLSConnection:
            self._end(ended)
        self._flushSendBIO()

    def _end(self, ended: Error) -> None:
        if isinstance(ended, ZeroReturnError):
            self._shutdownTLS()  # the peer's close_notify wants ours
            self._tlsShutdownFinished(None)
        else:
            self._tlsShutdownFinished(Failure(ended))

    def _shutdownTLS(self) -> None:
        super()._shutdownTLS()
        if self._deadline is None and not (self._lostTLSConnection or self._aborted):
            # The peer has not said its own end yet, and may never do so.
            self._deadline = self.factory.clock.callLater(_LINGER_SECONDS, self._too_slow)

    def _tlsShutdownFinished(self, reason: Failure | None) -> None:
        # A socket that is to close and has a paused producer resumes it when its
        # queue is empty, and waits for what that writes, which is dropped by now.
        self.unregisterProducer()
        self._end_deadline()
        # Nor is a peer waited for for ever that has ended the stream and reads nothing.
        self._deadline = self.factory.clock.callLater(_LINGER_SECONDS, self._too_slow)
        super()._tlsShutdownFinished(reason)

    def _write(self, data: bytes) -> None:
        if len(data) > _RECORD_BYTES and not self._lostTLSConnection:
            data = data[self._write_records(memoryview(data)) :]
        # One record or less; or what OpenSSL would not take, which Twisted deals with.
        super()._write(data)

    def _write_records(self, data: memoryview) -> int:
        """Encrypt and send as much as OpenSSL takes; returns how much that was."""
        records: list[bytes] = []
        sent_bytes = 0
        try:
            while sent_bytes < len(data):
                sent_bytes += self._tlsConnection.send(
                    data[sent_bytes : sent_bytes + _RECORD_BYTES]
                )
                # Read out at once: the BIO would keep what it has once grown to.
                records.append(self._tlsConnection.bio_read(2 * _RECORD_BYTES))
        except Error:
            pass
        cast(ITransport, self.transport).write(b"".join(records))
        return sent_bytes

    def _checkHandshakeStatus(self) -> None:
        super()._checkHandshakeStatus()
        if self._handshakeDone:
            self._end_deadline()

    def _end_deadline(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()

    def _too_slow(self) -> None:
        self._deadline = None
        self.abortConnection()


class StreamTLSFactory(TLSMemoryBIOFactory):
    """
    Wraps a factory's protocols in :class:`StreamTLS`.

    :param handshake_seconds: how long a handshake may take; ``None`` when the
        caller sees to that.
    """

    protocol = StreamTLS

    def __init__(
        self,
        tls: IOpenSSLServerConnectionCreator | IOpenSSLClientConnectionCreator,
        is_client: bool,
        factory: IProtocolFactory,
        clock: IReactorTime,
        *,
        handshake_seconds: float | None = None,
    ) -> None:
        super().__init__(tls, is_client, factory, clock)
        self.clock = clock
        self.handshake_seconds = handshake_seconds


def socket_transport(transport: object) -> object:
    """The socket's transport below any wrappers such as TLS."""
    lower = transport
    while isinstance(lower, Protocol):
        lower = lower.transport
    return lower
