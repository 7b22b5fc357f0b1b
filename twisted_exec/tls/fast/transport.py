"""
Socket transports that send at once.

``write`` sends at once if the queue is empty. As in Twisted, bytes keep their order, and ``write``
does not end the connection.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet import main, tcp, unix
from twisted.internet.base import BaseConnector
from twisted.internet.interfaces import (
    IConnector,
    IDelayedCall,
    IListeningPort,
)
from twisted.internet.posixbase import PosixReactorBase
from twisted.internet.protocol import ClientFactory, Protocol
from twisted.python.failure import Failure
from zope.interface import directlyProvides, providedBy

from twisted_exec.control.backoff import Backoff
from twisted_exec.tls.fast.names import is_usable
from twisted_exec.tls.turns import Turns, TurnTaking, turns_of

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

    _is_ready = True  # nothing, such as a handshake, has to come first
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
        if self._is_writing:
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
        return self._is_ready and not (
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

    def doConnect(self) -> None:
        # A server of this host is connected when connect(2) returns EINPROGRESS.  Then the second call,
        # Twisted's own, tells so, and no event has to.
        if not self._is_writing and hasattr(self, "connector"):
            self.socket.connect_ex(self.realAddress)
        try:
            super().doConnect()
        except Exception:  # Twisted's caller would drop it, unless that is the reactor
            self._log.failure("a protocol failed; its connection is aborted")
            self.abortConnection()


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


def socket_transport(transport: object) -> object:
    """Return the socket's transport below wrappers such as TLS."""
    lower = transport
    while isinstance(lower, Protocol):
        lower = lower.transport
    return lower
