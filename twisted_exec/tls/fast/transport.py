"""
Socket transports that send at once, and TLS without write aggregation.

``write`` sends at once if the queue is empty. As in Twisted, bytes keep their order, and ``write``
does not end the connection.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from OpenSSL.SSL import Error, WantReadError, ZeroReturnError
from twisted.internet import main, tcp, unix
from twisted.internet.base import BaseConnector
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
from zope.interface import directlyProvides, implementer, providedBy

from twisted_exec.control.backoff import Backoff
from twisted_exec.tls.fast.names import is_usable
from twisted_exec.tls.turns import IFramed, Turns, TurnTaking, turns_of

if TYPE_CHECKING:

    class _Socket(TurnTaking, tcp.Connection):
        reactor: Any

else:
    _Socket = TurnTaking


_READ_BYTES = (1 << 17) - 3
"""Bytes of one read: with the length before them, in a session in blocks, they fill eight TLS records."""


class AtOnce(_Socket):
    """
    Mixin for socket transports: writes leave at once if possible, reads arrive in turns of the
    reactor.
    """

    _is_writing = False  # the queue waits for the write event
    _is_aborted = False

    def turns(self) -> Turns:
        return turns_of(self.reactor)

    def doRead(self) -> BaseException | None:  # type: ignore[override]
        try:
            data = self.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return main.CONNECTION_LOST
        if not data:
            return main.CONNECTION_DONE
        self.deliver(data)
        return None

    def startWriting(self) -> None:
        self._is_writing = True
        super().startWriting()

    def stopWriting(self) -> None:
        self._is_writing = False
        super().stopWriting()

    def startReading(self) -> None:
        if not self._held:
            super().startReading()

    def pauseProducing(self) -> None:
        self._paused = True
        super().pauseProducing()

    def resumeProducing(self) -> None:
        self._paused = False
        super().resumeProducing()
        self.resume_rest()

    def hold_reading(self) -> None:
        self.stopReading()

    def read_on(self) -> None:
        if not self._paused:
            self.resumeProducing()

    def abortConnection(self) -> None:
        self._is_aborted = True
        self.drop_rest()
        super().abortConnection()

    def connectionLost(self, reason: Failure) -> None:
        self.deliver_rest(partial(super().connectionLost, reason))

    def write(self, data: bytes) -> None:
        if data and isinstance(data, bytes) and self._may_send_now():
            sent = self._send(data)
            if sent == len(data):
                return
            data = data[sent:]
        super().write(data)

    def _send(self, data: bytes) -> int:
        try:
            return self.socket.send(data)
        except OSError:
            # Full, or broken.  Both are left to doWrite, which meets the same error in the reactor's
            # turn: connectionLost must not be called from within the caller's write().
            return 0

    def writeSequence(self, iovec: Any) -> None:
        self.write(b"".join(iovec))

    def _may_send_now(self) -> bool:
        return not (
            self._is_writing
            or not self.connected
            or self.disconnecting
            or self._is_aborted
            or self.TLS  # after startTLS the bytes still have to be encrypted
            # A pull producer is resumed by doWrite, so something must be queued.
            or (self.producer is not None and not self.streamingProducer)
        )


KEEP_ALIVE = (
    (socket.TCP_KEEPIDLE, 30),
    (socket.TCP_KEEPINTVL, 10),
    (socket.TCP_KEEPCNT, 3),
)
"""Keep-alive settings of tcp(7): a peer is gone after a minute without an answer of its kernel."""


def _tune(plug: socket.socket) -> None:
    # Small writes do not wait for each other: spliced data comes in whole frames, and twisted.web
    # writes head and body in few pieces.
    plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A followed log may be silent for weeks, and the kernel's default of two hours is too long to
    # notice that the peer's host is gone.
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE:
        plug.setsockopt(socket.IPPROTO_TCP, option, value)


class TCPServer(AtOnce, tcp.Server):
    """An accepted TCP connection."""

    def __init__(self, sock: socket.socket, *rest: Any) -> None:
        try:
            _tune(sock)
        except OSError:
            pass  # reset before it was accepted; the first read finds that
        super().__init__(sock, *rest)


class UNIXServer(AtOnce, unix.Server):
    """An accepted UNIX connection."""


class TCPClient(AtOnce, tcp.Client):
    """An outgoing TCP connection."""

    def createInternetSocket(self) -> socket.socket:
        plug: socket.socket = super().createInternetSocket()
        _tune(plug)
        return plug


class UNIXClient(AtOnce, unix.Client):
    """
    An outgoing UNIX connection.

    While the server's backlog is full (EAGAIN of connect(2)), further attempts follow until the
    connector's time limit.
    """

    _attempt: IDelayedCall | None = None
    _backoff: Backoff | None = None

    def doConnect(self) -> None:
        is_wanted = hasattr(self, "connector")  # the attempt may have failed meanwhile
        problem = self.socket.connect_ex(self.realAddress) if is_wanted else None
        if problem == errno.EAGAIN:
            self._backoff = self._backoff or Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
            self._attempt = self.reactor.callLater(self._backoff.pause(), self.doConnect)
        elif problem == 0:
            # Twisted would connect again, which Linux refuses if the server listens no more.
            self._connectDone()
        else:
            super().doConnect()

    def failIfNotConnected(self, err: Any) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None and attempt.active():
            attempt.cancel()
        super().failIfNotConnected(err)


class _Once(BaseConnector):
    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)
        self.factory = self.transport = None  # type: ignore[assignment]


class TCPConnector(_Once, tcp.Connector):
    """Makes :class:`TCPClient` connections."""

    # Undocumented in Twisted, and unchanged since 2005.
    def _makeTransport(self) -> TCPClient:
        return TCPClient(self.host, self.port, self.bindAddress, self, self.reactor)


class _UNIXConnector(_Once, unix.Connector):
    def _makeTransport(self) -> Any:
        return UNIXClient(self.address, self, self.reactor, self.checkPID)


def sends_at_once() -> bool:
    """Return whether the transports here can be used."""
    owners = {
        "tcp.Connector": tcp.Connector,
        "unix.Connector": unix.Connector,
        "tcp.BaseClient": tcp.BaseClient,
    }
    return is_usable("transport", owners)


TURN_ACCEPTS = 4
"""Connections that a port accepts in one turn."""


def accept_unbuffered(port: IListeningPort) -> None:
    """Make *later* connections of a TCP or UNIX port send at once."""
    at_once = sends_at_once()
    if isinstance(port, unix.Port):  # also a TCP port to Twisted
        accept_as(port, UNIXServer if at_once else unix.Server)
    elif type(port) is tcp.Port:
        accept_as(port, TCPServer if at_once else tcp.Server)


def accept_as(port: Any, transport: Callable[..., Any]) -> None:
    """Set the class of a port's *later* connections."""
    # Twisted's documented place for another server transport.
    port.transport = transport

    def accept_some() -> None:
        # Twisted's doRead raises or lowers the number after each call.
        port.numberAccepts = TURN_ACCEPTS
        type(port).doRead(port)

    port.doRead = accept_some


class Connecting:
    """A reactor whose outgoing connections send at once."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        # Endpoints ask which interfaces a reactor provides, such as that of its name resolver.
        directlyProvides(self, providedBy(reactor))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def tcp_connector(self, *where: Any) -> TCPConnector:
        return TCPConnector(*where)

    def connectTCP(
        self,
        host: str,
        port: int,
        factory: ClientFactory[Any],
        timeout: float = 30.0,
        bindAddress: Any = None,
    ) -> IConnector:
        if not sends_at_once():
            own: IConnector = self._reactor.connectTCP(host, port, factory, timeout, bindAddress)
            return own
        connector = self.tcp_connector(host, port, factory, timeout, bindAddress, self._reactor)
        connector.connect()
        return connector

    def connectUNIX(
        self, address: str, factory: ClientFactory[Any], timeout: float = 30, checkPID: int = 0
    ) -> IConnector:
        if not sends_at_once():
            own: IConnector = self._reactor.connectUNIX(address, factory, timeout, checkPID)
            return own
        connector = _UNIXConnector(address, factory, timeout, self._reactor, checkPID)
        connector.connect()
        return connector


def unbuffered_connector(reactor: Any) -> Any:
    """Return the reactor to pass to client endpoints."""
    return Connecting(reactor) if isinstance(reactor, PosixReactorBase) else reactor


_FIRST_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.1
_LINGER_SECONDS = 30.0

_RECORD_BYTES = 1 << 14
"""The largest plaintext of one TLS record (RFC 8446, section 5.1)."""


class LimitedTLS(TLSMemoryBIOProtocol):
    """
    Twisted's TLS, with time limits.

    A peer is cut if it has not finished the handshake after the factory's ``handshake_seconds``, or
    has not closed the connection half a minute after :meth:`loseConnection`.
    """

    factory: StreamTLSFactory
    is_shaking = True
    _is_aborted = False
    _deadline: IDelayedCall | None = None

    def makeConnection(self, transport: ITransport) -> None:
        super().makeConnection(transport)
        seconds = self.factory.handshake_seconds
        if seconds is not None and self.is_shaking and self.connected:
            self.limit(seconds)

    def dataReceived(self, data: bytes) -> None:
        super().dataReceived(data)
        if self.is_shaking:
            self.look_at_handshake()

    def look_at_handshake(self) -> None:
        engine = self.getHandle()
        if engine is None or engine.get_finished() is None or engine.get_peer_finished() is None:
            return
        self.is_shaking = False
        if not self.disconnecting:  # the limit is not yet that of the end
            self.end_limit()

    def loseConnection(self) -> None:
        super().loseConnection()
        if self.connected and not self._is_aborted:
            self.limit(_LINGER_SECONDS)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        try:
            super().connectionLost(reason)
        finally:
            self.end_limit()

    def abortConnection(self) -> None:
        """
        As :meth:`ITCPTransport.abortConnection`; Twisted's raises if the connection is closed
        already.
        """
        self._is_aborted = True
        if self.getHandle() is not None:
            super().abortConnection()

    def getPeerCertificate(self) -> Any:
        """
        As :meth:`ISSLTransport.getPeerCertificate`; Twisted's raises if the connection is closed
        already.
        """
        return super().getPeerCertificate() if self.getHandle() is not None else None

    def limit(self, seconds: float) -> None:
        """Abort the connection after some time, instead of an earlier limit."""
        self.end_limit()
        self._deadline = self.factory.clock.callLater(seconds, self._too_slow)

    def end_limit(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()

    def _too_slow(self) -> None:
        self._deadline = None
        self.abortConnection()


@implementer(IFramed)
class StreamTLS(TurnTaking, LimitedTLS):
    """
    TLS for streams: no aggregation, and a time limit for the whole end.

    A peer that ended the stream but does not read the rest of our data is cut, too.
    """

    receiver = "wrappedProtocol"
    _is_over = False  # of TLS
    _ended: Error | None = None  # follows the bytes that wait for their turn

    def turns(self) -> Turns:
        return turns_of(self.factory.clock)

    def frame_rest(self, size: int) -> int | None:
        # The steps of a handshake take turns; what follows is divided above TLS.
        return _RECORD_BYTES if self.is_shaking else None

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        try:
            if not self._is_over:
                self.getHandle().bio_shutdown()
                self._flushReceiveBIO()  # reads what is left, which may be the stream's end
            self._finish()
            self.deliver_rest(partial(super().connectionLost, reason))
        finally:
            self._is_over = True
            self.end_limit()

    def loseConnection(self) -> None:
        """
        As :meth:`ITransport.loseConnection`; the limit begins when the rest of our data is
        encrypted.
        """
        TLSMemoryBIOProtocol.loseConnection(self)

    def abortConnection(self) -> None:
        self.drop_rest()
        super().abortConnection()

    def pauseProducing(self) -> None:
        self._paused = True
        self.hold_reading()

    def resumeProducing(self) -> None:
        self._paused = False
        if not self._held:
            cast(Any, self.transport).resumeProducing()
        self.resume_rest()

    def hold_reading(self) -> None:
        cast(Any, self.transport).pauseProducing()

    def read_on(self) -> None:
        if self._ended is not None:
            self._finish()
            self._flushSendBIO()
        elif not self._paused:
            self.resumeProducing()

    def _flushReceiveBIO(self) -> None:
        received: list[bytes] = []
        ended: Error | None = None
        if self.is_shaking:
            self.look_at_handshake()
        while not self._is_over:
            try:
                received.append(self.getHandle().recv(_RECORD_BYTES))
            except WantReadError:  # once per read of the socket: keep it cheap
                break
            except Error as problem:
                # Its traceback would hold this frame, and so the whole connection,
                # until the garbage collector comes by.
                ended = problem.with_traceback(None)
                break
        if received and not self._is_aborted:
            self.deliver(received[0] if len(received) == 1 else b"".join(received))
        self._ended = self._ended or ended
        if self._backlog is None:
            self._finish()
        self._flushSendBIO()

    def _finish(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None and not self._is_over:
            self._end(ended)

    def _end(self, ended: Error) -> None:
        if isinstance(ended, ZeroReturnError):
            self._shutdownTLS()  # the peer's close_notify wants ours
            self._tlsShutdownFinished(None)
        else:
            self._tlsShutdownFinished(Failure(ended))

    def _shutdownTLS(self) -> None:
        super()._shutdownTLS()
        if self._deadline is None and not (self._is_over or self._is_aborted):
            # The peer has not sent its close_notify, and may never do so.
            self.limit(_LINGER_SECONDS)

    def _tlsShutdownFinished(self, reason: Failure | None) -> None:
        self._is_over = True
        # A closing socket resumes a paused producer when its queue is empty, and waits for the
        # producer's data, which is dropped by now.
        self.unregisterProducer()
        # A peer that ended the stream but reads nothing gets a time limit, too.
        self.limit(_LINGER_SECONDS)
        super()._tlsShutdownFinished(reason)

    def _write(self, data: bytes) -> None:
        if len(data) > _RECORD_BYTES and not self._is_over:
            data = data[self._write_records(memoryview(data)) :]
        # One record or less, or data that OpenSSL did not take: Twisted handles both.
        super()._write(data)

    def _write_records(self, data: memoryview) -> int:
        records: list[bytes] = []
        sent_bytes = 0
        engine = self.getHandle()
        try:
            while sent_bytes < len(data):
                sent_bytes += engine.send(data[sent_bytes : sent_bytes + _RECORD_BYTES])
                # Emptied after each record: a BIO never shrinks from its largest size.
                records.append(engine.bio_read(2 * _RECORD_BYTES))
        except Error:
            pass
        cast(ITransport, self.transport).write(b"".join(records))
        return sent_bytes


class StreamTLSFactory(TLSMemoryBIOFactory):
    """
    Wraps a factory's protocols in :class:`StreamTLS` if possible, or in :class:`LimitedTLS`.

    :param handshake_seconds: time limit of the handshake; ``None`` if the caller has its own.
    """

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
        is_own = is_usable("records", {"TLSMemoryBIOProtocol": TLSMemoryBIOProtocol})
        self.protocol = StreamTLS if is_own else LimitedTLS
        self.clock = clock
        self.handshake_seconds = handshake_seconds


def socket_transport(transport: object) -> object:
    """Return the socket's transport below wrappers such as TLS."""
    lower = transport
    while isinstance(lower, Protocol):
        lower = lower.transport
    return lower
