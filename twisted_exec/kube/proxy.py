"""
Connections through a proxy: HTTP ``CONNECT`` and SOCKS 5.

:mod:`twisted_exec.kube.kubeconfig.environment` reads ``HTTPS_PROXY`` and ``NO_PROXY``.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any
from typing import Protocol as Typing
from urllib.parse import unquote, urlsplit

import h11
from twisted.internet import error
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.streaming.http.upgrade_client import connection_problem
from twisted_exec.streaming.transports import swap_protocol
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.socks5 import Socks5Client, Socks5Refused

MAX_HEAD_BYTES = 64 << 10

_PORTS = {"http": 80, "https": 443, "socks5": 1080}


class ProxyError(Exception):
    """A proxy does not connect to the server. The message names the proxy, without its password."""


@dataclass(frozen=True)
class ForwardProxy:
    """A proxy; its ``str()`` has no password."""

    scheme: str
    host: str
    port: int
    username: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def parse(cls, url: str) -> ForwardProxy:
        """Parse a valid ``proxy-url``."""
        parts = urlsplit(url)
        return cls(
            parts.scheme,
            parts.hostname or "",
            parts.port or _PORTS[parts.scheme],
            unquote(parts.username or ""),
            unquote(parts.password or ""),
        )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"the proxy {self.scheme}://{host}:{self.port}"


def proxied(
    way: IStreamClientEndpoint, proxy: ForwardProxy, host: str, port: int
) -> IStreamClientEndpoint:
    """
    Return the endpoint of a server behind a proxy.

    :param host: name or address of the server; the proxy resolves names.
    :return: its ``connect`` has no time limit and fails with :class:`ProxyError`.
    """
    return _Proxied(way, proxy, host, port)


class _Dialogue(Typing):
    @property
    def done(self) -> bool: ...
    @property
    def trailing(self) -> bytes: ...
    def greeting(self) -> bytes: ...
    def receive(self, data: bytes) -> bytes: ...


class _Refused(Exception):
    """An HTTP proxy's refusal."""


class _Connect:
    def __init__(self, proxy: ForwardProxy, host: str, port: int) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        name = host if host.isascii() else host.encode("idna").decode("ascii")
        self._target = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        self._login = b""
        if proxy.username or proxy.password:
            pair = f"{proxy.username}:{proxy.password}".encode()
            self._login = b"Basic " + base64.b64encode(pair)
        self.done = False

    @property
    def trailing(self) -> bytes:
        return bytes(self._http.trailing_data[0])

    def greeting(self) -> bytes:
        headers = [("Host", self._target), ("User-Agent", "twisted-exec")]
        if self._login:
            headers.append(("Proxy-Authorization", self._login.decode("ascii")))
        request = h11.Request(method="CONNECT", target=self._target, headers=headers)
        return (self._http.send(request) or b"") + (self._http.send(h11.EndOfMessage()) or b"")

    def receive(self, data: bytes) -> bytes:
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
            while isinstance(event, h11.InformationalResponse):
                event = self._http.next_event()
        except h11.RemoteProtocolError:
            raise RemoteProtocolError("the proxy does not speak HTTP") from None
        if isinstance(event, h11.Response):
            # Each 2xx is a success, and its head the end of the HTTP part (RFC 9110 9.3.6).
            if not 200 <= event.status_code < 300:
                raise _Refused(self._words(event))
            self.done = True
        return b""

    def _words(self, refusal: h11.Response) -> str:
        if refusal.status_code == 407:
            if self._login:
                return "the proxy does not accept the user name and password"
            return "the proxy wants a user name and password"
        reason = refusal.reason.decode("latin-1")[:200]
        reason = "".join(mark if mark.isprintable() else " " for mark in reason).strip()
        return f"the proxy says: {refusal.status_code} {reason}".rstrip()


@implementer(IStreamClientEndpoint)
@dataclass(frozen=True)
class _Proxied:
    way: IStreamClientEndpoint
    proxy: ForwardProxy
    host: str
    port: int

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        return Deferred.fromCoroutine(self._connect(protocolFactory))

    async def _connect(self, factory: IProtocolFactory) -> IProtocol:
        try:
            tunnels = _Tunnels(self._dialogue(), factory)
        except ValueError as problem:
            raise ProxyError(f"{self.proxy}: {problem}") from None
        tunnel: Any = None
        try:
            tunnel = await self.way.connect(tunnels)
            protocol: IProtocol = await tunnel.opened
        except BaseException as problem:
            # Also after a cancellation: no other code has a reference to this connection.
            if tunnel is not None and tunnel.transport is not None:
                tunnel.transport.abortConnection()
            if isinstance(problem, CancelledError | error.ConnectingCancelledError):
                raise CancelledError from None
            if not isinstance(problem, Exception) or isinstance(problem, error.NoProtocol):
                raise
            raise ProxyError(_explained(self.proxy, problem)) from None
        return protocol

    def _dialogue(self) -> _Dialogue:
        proxy = self.proxy
        if proxy.scheme == "socks5":
            return Socks5Client(self.host, self.port, proxy.username, proxy.password)
        return _Connect(proxy, self.host, self.port)


def _explained(proxy: ForwardProxy, problem: Exception) -> str:
    if isinstance(problem, _Refused | Socks5Refused | RemoteProtocolError):
        return str(problem).replace("the proxy", str(proxy), 1)
    if isinstance(problem, error.ConnectionDone | error.ConnectionLost):
        return f"{proxy} closed the connection"
    return f"{proxy}: {connection_problem(problem)}"


class _Tunnels(Factory):
    noisy = False

    def __init__(self, dialogue: _Dialogue, factory: IProtocolFactory) -> None:
        self._dialogue, self._factory = dialogue, factory

    def buildProtocol(self, addr: Any) -> _Tunnel:
        return _Tunnel(self._dialogue, self._factory, addr)


class _Tunnel(Protocol):
    """Runs the dialogue, then replaces itself by the next protocol."""

    transport: Any

    def __init__(self, dialogue: _Dialogue, factory: IProtocolFactory, address: Any) -> None:
        self._dialogue, self._factory, self._address = dialogue, factory, address
        self.opened: Deferred[IProtocol] = Deferred()

    def connectionMade(self) -> None:
        self.transport.write(self._dialogue.greeting())

    def dataReceived(self, data: bytes) -> None:
        if self.opened.called:
            return
        try:
            answer = self._dialogue.receive(data)
        except Exception as problem:
            self.opened.errback(problem)
            return
        if answer:
            self.transport.write(answer)
        if self._dialogue.done:
            self._make_way(self._dialogue.trailing)

    def _make_way(self, early: bytes) -> None:
        protocol = self._factory.buildProtocol(self._address)
        if protocol is None:
            self.opened.errback(error.NoProtocol())
            return
        transport = self.transport
        swap_protocol(transport, protocol)
        protocol.makeConnection(transport)
        if early:
            protocol.dataReceived(early)
        self.opened.callback(protocol)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if not self.opened.called:
            self.opened.errback(reason)
