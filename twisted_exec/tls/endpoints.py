"""
Verified endpoints, to listen and to connect.

With TLS the ``connect()`` of a client endpoint fires after the peer's certificate is accepted, or
fails with a one-line error. The caller's protocol is built after that, so it cannot send anything
to an unverified peer.
"""

from __future__ import annotations

import ipaddress
import os
import re
from typing import Any

from OpenSSL import SSL
from twisted.internet import error
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import (
    HostnameEndpoint,
    TCP4ClientEndpoint,
    TCP4ServerEndpoint,
    TCP6ClientEndpoint,
    TCP6ServerEndpoint,
    UNIXClientEndpoint,
    UNIXServerEndpoint,
    serverFromString,
)
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IAddress,
    IHandshakeListener,
    IHostnameResolver,
    IHostResolution,
    IListeningPort,
    IProtocol,
    IProtocolFactory,
    IResolutionReceiver,
    IStreamClientEndpoint,
    IStreamServerEndpoint,
)
from twisted.internet.posixbase import PosixReactorBase
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.display import reason_of
from twisted_exec.api.status import message_of
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.errors import (
    ConnectTimeout,
    HandshakeCancelled,
    HandshakeError,
    HandshakeTimeout,
    NoTLS,
    TLSConfigError,
    TLSError,
    unanswered_handshake,
)
from twisted_exec.tls.fast.accepting import accept_tls
from twisted_exec.tls.fast.descriptor import TLSConnecting, speaks_tls
from twisted_exec.tls.fast.records import StreamTLSFactory
from twisted_exec.tls.fast.transport import Connecting, accept_unbuffered, unbuffered_connector
from twisted_exec.tls.listening import BACKLOG, Address, IListeningSockets
from twisted_exec.tls.pem import openssl_reason
from twisted_exec.tls.server import ServerTLS
from twisted_exec.tls.unix import checked_socket_path

HANDSHAKE_SECONDS = 30.0

_LAST_PORT = 65535
_NO_TLS = "it does not speak TLS on this port"
_HINTS = {
    "wrong version number": _NO_TLS,
    "http request": _NO_TLS,
    "packet length too long": _NO_TLS,
    "tlsv1 alert unknown ca": "it does not trust the CA of this program's certificate",
    "tlsv13 alert certificate required": "it wants a client certificate",
    "tlsv1 alert protocol version": "it speaks no TLS version that this program speaks",
    "unsupported protocol": "it speaks only versions of TLS that are too old",
}


class ISparingEndpoint(IStreamClientEndpoint):
    """An endpoint to one peer with spare connections (:mod:`twisted_exec.tls.spares`)."""

    def take(factory: IProtocolFactory) -> Any:
        """
        Use up a spare connection.

        :return: the factory's protocol, connected, or ``None``.
        """

    def replenish() -> None:
        """Make a spare connection soon, unless there is one."""

    def offer(transport: object) -> bytes:
        """
        Return what offers the peer to keep the connection after the session; empty if it cannot.
        """

    def carry(transport: object, accepted: bytes, early: bytes) -> bytes:
        """
        Carry a session whose connection becomes a spare one, if the peer has accepted the offer.

        :param accepted: the peer's answer to the offer.
        :param early: what came behind it.
        :return: the session's bytes among these.
        """


@implementer(IStreamServerEndpoint)
class _ServerEndpoint:
    def __init__(
        self,
        reactor: Any,
        description: str,
        inner: IStreamServerEndpoint,
        tls: ServerTLS | None,
        sockets: IListeningSockets | None,
    ) -> None:
        self._reactor, self._description = reactor, description
        self._inner, self._tls, self._sockets = inner, tls, sockets

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        return Deferred.fromCoroutine(self._listen(protocolFactory))

    async def _listen(self, factory: IProtocolFactory) -> IListeningPort:
        tls = self._tls
        # The connections of ports that Twisted made (from descriptors, say) cannot be replaced.
        on_descriptor = (
            isinstance(self._reactor, PosixReactorBase)
            and isinstance(self._inner, TCP4ServerEndpoint | TCP6ServerEndpoint)
            and speaks_tls()
        )
        if tls is not None:
            tls.load()
            if not on_descriptor:
                factory = StreamTLSFactory(
                    tls, False, factory, self._reactor, handshake_seconds=HANDSHAKE_SECONDS
                )
        try:
            port = await self._open(factory)
        except (OSError, OverflowError) as problem:
            # A socket path in a missing directory, or a port number out of range.
            why = reason_of(problem)
            raise TLSConfigError(f"cannot listen on {self._description!r}: {why}") from None
        if tls is not None and on_descriptor:
            accept_tls(port, tls, self._reactor, HANDSHAKE_SECONDS)
        else:
            accept_unbuffered(port)
        return port

    async def _open(self, factory: IProtocolFactory) -> IListeningPort:
        place = _address(self._inner, self._description)
        if self._sockets is not None and place is not None:
            adopted = self._sockets.adopt(self._reactor, factory, place)
            if adopted is not None:
                return adopted
        port: IListeningPort = await self._inner.listen(factory)
        return port


def server_endpoint(
    reactor: Any,
    description: str,
    tls: ServerTLS | None = None,
    sockets: IListeningSockets | None = None,
) -> IStreamServerEndpoint:
    """
    Return an endpoint to listen at.

    Its ``listen()`` fails with :class:`TLSConfigError` when a certificate or the address cannot be
    used, and with :class:`twisted.internet.error.CannotListenError` when the address is not
    available.

    :param description: a Twisted endpoint string without TLS. Its default ``backlog`` is
        :data:`~twisted_exec.tls.listening.BACKLOG`; by default a UNIX socket is for its owner only.
    :param tls: ``None`` listens in the clear.
    :param sockets: has the socket if another process has opened it.
    :raises TLSConfigError: the description is malformed.
    """
    return _ServerEndpoint(reactor, description, _parsed(reactor, description), tls, sockets)


def listening_address(text: str) -> str:
    """
    Check an option's value: the ``description`` of :func:`server_endpoint`.

    :raises ValueError: it is malformed, or has a number that is no port.
    """
    try:
        place = _address(_parsed(None, text), text)
    except TLSConfigError as problem:
        raise ValueError(str(problem)) from None
    if isinstance(place, tuple) and not 0 <= place[1] <= _LAST_PORT:
        raise ValueError(f"{text!r}: {place[1]} is no port from 0 to {_LAST_PORT}")
    return text


def listening_address_or_none(text: str) -> str:
    """
    Check an option's value as :func:`listening_address` does; it may be empty.

    :raises ValueError: as there.
    """
    return text and listening_address(text)


def _parsed(reactor: Any, description: str) -> IStreamServerEndpoint:
    kind = description.partition(":")[0]
    if kind in ("ssl", "tls"):
        raise TLSConfigError(
            f"listening address {description!r}: give a plain endpoint such as "
            "tcp:6443:interface=127.0.0.1; certificates have options of their own"
        )
    try:
        endpoint: IStreamServerEndpoint = serverFromString(
            reactor, description + _defaults(kind, description)
        )
    except (ValueError, TypeError, LookupError) as problem:
        raise TLSConfigError(
            f"{description!r} is no listening address such as "
            f"tcp:6443:interface=127.0.0.1: {problem}"
        ) from None
    return endpoint


def address_text(address: IAddress) -> str:
    """Return the address of a listening port for logs."""
    if isinstance(address, UNIXAddress):
        return f"unix:{os.fsdecode(address.name or b'')}"
    if not isinstance(address, IPv4Address | IPv6Address):
        return str(address)
    host = f"[{address.host}]" if ":" in address.host else address.host
    every = {"0.0.0.0": " (all IPv4 addresses)", "::": " (all addresses)"}.get(address.host, "")
    return f"{host}:{address.port}{every}"


class _ListeningAddress:
    address: Address | None = None

    def listenTCP(self, port: int, *factory: object, interface: str, **options: object) -> None:
        self.address = (interface, port) if port else None

    def listenUNIX(self, path: str | bytes, *factory: object, **options: object) -> None:
        self.address = os.fsdecode(path)


def _address(endpoint: object, description: str) -> Address | None:
    if not isinstance(endpoint, TCP4ServerEndpoint | TCP6ServerEndpoint | UNIXServerEndpoint):
        return None
    # Twisted parses descriptions with escapes and positional arguments, and publishes no result.
    stand_in: Any = _ListeningAddress()
    serverFromString(stand_in, description).listen(Factory())
    address: Address | None = stand_in.address
    if isinstance(address, tuple) and not address[0]:
        return ("::" if isinstance(endpoint, TCP6ServerEndpoint) else "0.0.0.0", address[1])
    return address


def _defaults(kind: str, description: str) -> str:
    defaults = {"backlog": str(BACKLOG)} if kind in ("tcp", "tcp4", "tcp6", "unix") else {}
    if kind == "unix":
        defaults["mode"] = "600"  # Twisted's is 666
    return "".join(
        f":{name}={value}"
        for name, value in defaults.items()
        # An escaped colon belongs to a value.
        if not re.search(rf"(?<!\\):{name}=", description)
    )


def client_endpoint(
    reactor: Any,
    host: str,
    port: int,
    tls: ClientTLS | None,
    *,
    timeout_seconds: float | None = 10.0,
    first_address: int = 0,
) -> IStreamClientEndpoint:
    """
    Return an endpoint to connect to by TCP.

    :param host: DNS name or IP address to reach; ``tls`` says what the certificate must name.
    :param tls: ``None`` connects in the clear.
    :param timeout_seconds: for resolving, TCP and TLS together.
    :param first_address: number of the name's address that is tried first, from 0; it may exceed
        their number.
    :return: its ``connect()`` fires with the protocol once the peer is verified. It fails with
        :class:`VerificationError`, :class:`HandshakeError`, :class:`ConnectTimeout`, or errors of
        Twisted's TCP endpoints; cancelled during the handshake, with :class:`HandshakeCancelled`.
    """
    on_descriptor = tls is not None and isinstance(reactor, PosixReactorBase) and speaks_tls()
    dialler: Any = unbuffered_connector(reactor)
    if tls is not None and on_descriptor:
        dialler = TLSConnecting(reactor, tls)
    if first_address and isinstance(dialler, Connecting):
        resolver = _RotatedNames(reactor.nameResolver, first_address)
        dialler.nameResolver = resolver  # type: ignore[attr-defined]
    bare = host.removeprefix("[").removesuffix("]")
    inner: Any
    limit: Any = timeout_seconds  # connectTCP() takes None, which the annotations lack
    try:
        version = ipaddress.ip_address(bare).version
    except ValueError:
        inner = HostnameEndpoint(dialler, bare, port, timeout=limit)
    else:
        kind = TCP4ClientEndpoint if version == 4 else TCP6ClientEndpoint
        inner = kind(dialler, bare, port, timeout=limit)
    peer = f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"
    kind_of_tls = _ClientEndpoint if not on_descriptor else _DescriptorEndpoint
    return kind_of_tls(reactor, inner, tls, peer, timeout_seconds)


@implementer(IHostnameResolver)
class _RotatedNames:
    def __init__(self, inner: IHostnameResolver, first_address: int) -> None:
        self._inner, self._first = inner, first_address

    def resolveHostName(
        self, resolutionReceiver: IResolutionReceiver, *name: Any, **more: Any
    ) -> IHostResolution:
        receiver = _Rotating(resolutionReceiver, self._first)
        resolution: IHostResolution = self._inner.resolveHostName(receiver, *name, **more)
        return resolution


@implementer(IResolutionReceiver)
class _Rotating:
    def __init__(self, receiver: IResolutionReceiver, first_address: int) -> None:
        self._receiver, self._first = receiver, first_address
        self._addresses: list[IAddress] = []

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        self._receiver.resolutionBegan(resolutionInProgress)

    def addressResolved(self, address: IAddress) -> None:
        self._addresses.append(address)

    def resolutionComplete(self) -> None:
        first = self._first % len(self._addresses) if self._addresses else 0
        for address in self._addresses[first:] + self._addresses[:first]:
            self._receiver.addressResolved(address)
        self._receiver.resolutionComplete()


def client_endpoint_over(
    reactor: Any,
    inner: IStreamClientEndpoint,
    tls: ClientTLS | None,
    peer: str,
    *,
    timeout_seconds: float | None = 10.0,
) -> IStreamClientEndpoint:
    """
    Return an endpoint that connects through another endpoint.

    Its ``connect()`` fires and fails as that of :func:`client_endpoint`, and passes on errors of
    ``inner``.
    """
    return _ClientEndpoint(reactor, inner, tls, peer, timeout_seconds)


def unix_client_endpoint(
    reactor: Any, path: str, tls: ClientTLS | None = None, *, timeout_seconds: float | None = 10.0
) -> IStreamClientEndpoint:
    """
    Return an endpoint to connect to by UNIX socket.  Its ``connect()`` fires and fails as that of
    :func:`client_endpoint`.

    :raises TLSConfigError: the path cannot be used.
    """
    checked = checked_socket_path(path)
    inner = UNIXClientEndpoint(unbuffered_connector(reactor), checked, timeout=timeout_seconds)
    return _ClientEndpoint(reactor, inner, tls, path, timeout_seconds)


@implementer(IStreamClientEndpoint)
class _ClientEndpoint:
    def __init__(
        self,
        reactor: Any,
        inner: IStreamClientEndpoint,
        tls: ClientTLS | None,
        peer: str,
        timeout_seconds: float | None,
    ) -> None:
        self._reactor, self._inner, self._tls = reactor, inner, tls
        self._peer, self._timeout_seconds = peer, timeout_seconds

    def __repr__(self) -> str:
        return f"<{'TLS' if self._tls else 'plain'} endpoint {self._peer}>"

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        attempt = Deferred.fromCoroutine(self._attempt(protocolFactory))
        if self._timeout_seconds is None:
            return attempt
        return attempt.addTimeout(self._timeout_seconds, self._reactor, self._timed_out)

    async def _attempt(self, factory: IProtocolFactory) -> IProtocol:
        way = self._connect if self._tls is None else self._connect_tls
        try:
            return await way(factory)
        except error.ConnectingCancelledError:
            # Twisted's endpoints fail with this when cancelled; callers expect CancelledError.
            raise CancelledError from None

    async def _connect(self, factory: IProtocolFactory) -> IProtocol:
        try:
            return await self._inner.connect(factory)
        except error.TimeoutError:
            raise self._timeout() from None

    async def _connect_tls(self, factory: IProtocolFactory) -> IProtocol:
        assert self._tls is not None
        gates = _Gates(factory, self._peer)
        try:
            connection = await self._connection(gates)
        except error.TimeoutError:
            raise self._timeout() from None
        try:
            return await gates.opened
        except BaseException as problem:
            # Also after a cancellation: no other code has a reference to this connection.
            connection.abortConnection()
            if isinstance(problem, CancelledError):
                raise HandshakeCancelled from None
            raise

    async def _connection(self, gates: _Gates) -> Any:
        assert self._tls is not None
        return await self._inner.connect(StreamTLSFactory(self._tls, True, gates, self._reactor))

    def _timed_out(self, result: Any, seconds: float) -> Any:
        if not isinstance(result, Failure):
            return result
        if result.check(HandshakeCancelled):
            why = unanswered_handshake(seconds)
            raise HandshakeTimeout(f"{self._peer}: {why}", why)
        raise self._timeout()

    def _timeout(self) -> ConnectTimeout:
        return ConnectTimeout(
            f"no answer from {self._peer} within {self._timeout_seconds:g} seconds"
        )


class _DescriptorEndpoint(_ClientEndpoint):
    async def _connection(self, gates: _Gates) -> Any:
        gate: Any = await self._inner.connect(gates)
        return gate.transport


class _Gates(Factory):
    noisy = False

    def __init__(self, factory: IProtocolFactory, peer: str) -> None:
        self.inner, self.peer = factory, peer
        self.opened: Deferred[IProtocol] = Deferred()

    def buildProtocol(self, addr: IAddress | None) -> Any:
        return _Gate(self, addr)

    def doStart(self) -> None:
        super().doStart()
        self.inner.doStart()

    def doStop(self) -> None:
        super().doStop()
        self.inner.doStop()


@implementer(IHandshakeListener)
class _Gate(Protocol):
    """Placeholder of the caller's protocol until the peer is verified."""

    def __init__(self, gates: _Gates, address: Any) -> None:
        self._gates, self._address = gates, address

    def handshakeCompleted(self) -> None:
        tls: Any = self.transport
        opened = self._gates.opened
        # The attempt was cancelled, and aborts the connection.
        if opened.called:
            return
        verdict = tls.__dict__.pop("verdict", None)  # it refers to the connection: break the cycle
        try:
            if verdict is not None and not verdict.passed:
                verdict.look_again(tls.getHandle())
        except TLSError as refusal:
            opened.errback(_clear(refusal.with_traceback(None), self._gates.peer))
            return
        if verdict is None or not verdict.passed:
            peer = self._gates.peer
            opened.errback(HandshakeError(f"{peer} was not verified", "it was not verified"))
            return
        try:
            protocol = self._gates.inner.buildProtocol(self._address)
            if protocol is None:
                raise error.NoProtocol()
        except Exception:
            opened.errback(Failure())
            return
        tls.resumption = verdict.resumption
        tls.wrappedProtocol = protocol
        protocol.makeConnection(tls)
        opened.callback(protocol)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.transport.__dict__.pop("verdict", None)
        if not self._gates.opened.called:
            self._gates.opened.errback(_clear(reason.value, self._gates.peer))


def _clear(problem: BaseException | None, peer: str) -> Exception:
    if isinstance(problem, TLSError):
        return type(problem)(f"{peer}: {problem}", str(problem))
    if isinstance(problem, ConnectionDone | ConnectionLost):
        closed = "closed the connection during the TLS handshake"
        return HandshakeError(f"{peer} {closed}", f"it {closed}")
    kind = HandshakeError
    if isinstance(problem, SSL.Error):
        why = openssl_reason(problem)
        if hint := _HINTS.get(why):
            why = f"{hint} ({why})"
            kind = NoTLS if hint is _NO_TLS else HandshakeError
    else:
        why = message_of(problem)
    return kind(f"TLS handshake with {peer} failed: {why}", f"TLS handshake failed: {why}")
