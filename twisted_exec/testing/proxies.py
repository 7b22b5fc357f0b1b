"""
Proxies for tests: HTTP ``CONNECT`` and SOCKS 5.
"""

from __future__ import annotations

import base64
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

_SOCKS_REFUSED = b"\5\5\0\1" + bytes(6)


class ProxyFactory(Factory):
    """
    A proxy; listen with it on any endpoint, with TLS for an ``https`` proxy.

    :param login: required ``user:password``, or empty.
    :ivar asked: the ``host:port`` of each connection, in order.
    :ivar names: addresses of names that only the proxy resolves.
    :ivar refused: number of connections without the right login.
    :ivar connections: open connections, to close them at the end of a test.
    """

    noisy = False

    def __init__(self, reactor: Any, login: str = "") -> None:
        self.reactor, self.login = reactor, login
        self.asked: list[str] = []
        self.names: dict[str, str] = {}
        self.refused = 0
        self.connections: set[_Relay] = set()

    def connect(self, host: str, port: int, far: Protocol) -> Deferred[Any]:
        """Make the proxy's own connection."""
        self.asked.append(f"{host}:{port}")
        endpoint = HostnameEndpoint(self.reactor, self.names.get(host, host), port, timeout=10)
        connecting: Deferred[Any] = connectProtocol(endpoint, far)
        return connecting

    def abort(self) -> None:
        """End all connections."""
        for each in list(self.connections):
            each.transport.abortConnection()


class ConnectProxy(ProxyFactory):
    """``CONNECT host:port HTTP/1.1``."""

    def buildProtocol(self, addr: object) -> _Connect:
        return _Connect(self)


class Socks5Proxy(ProxyFactory):
    """RFC 1928, without authentication or with RFC 1929."""

    def buildProtocol(self, addr: object) -> _Socks5:
        return _Socks5(self)


class _Relay(Protocol):
    transport: Any

    def __init__(self, proxy: ProxyFactory) -> None:
        self.proxy = proxy
        self.far: _Far | None = None
        self.is_connecting = False
        self.received = b""

    def connectionMade(self) -> None:
        self.proxy.connections.add(self)

    def dataReceived(self, data: bytes) -> None:
        if self.far is not None:
            self.far.transport.write(data)
            return
        self.received += data
        while not self.is_connecting and self.talk():
            pass

    def talk(self) -> bool:
        raise NotImplementedError

    def relay(self, host: str, port: int, connected: bytes, failed: bytes) -> None:
        self.is_connecting = True
        far = _Far(self, connected)

        def refuse(_: Failure) -> None:
            self.transport.write(failed)
            self.transport.loseConnection()

        self.proxy.connect(host, port, far).addErrback(refuse)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.proxy.connections.discard(self)
        if self.far is not None:
            self.far.transport.loseConnection()


class _Far(Protocol):
    transport: Any

    def __init__(self, near: _Relay, connected: bytes) -> None:
        self._near, self._connected = near, connected

    def connectionMade(self) -> None:
        self._near.far = self
        self._near.transport.write(self._connected)
        self.transport.write(self._near.received)

    def dataReceived(self, data: bytes) -> None:
        self._near.transport.write(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._near.transport.loseConnection()


class _Connect(_Relay):
    def talk(self) -> bool:
        head, end, rest = self.received.partition(b"\r\n\r\n")
        if not end:
            return False
        self.received = rest
        request, *lines = head.split(b"\r\n")
        method, target, _ = request.decode().split(" ")
        headers = dict(line.lower().split(b": ", 1) for line in lines)
        expected = b"basic " + base64.b64encode(self.proxy.login.encode()).lower()
        if self.proxy.login and headers.get(b"proxy-authorization") != expected:
            self.proxy.refused += 1
            self._refuse(b"407 Proxy Authentication Required")
        elif method != "CONNECT":
            self._refuse(b"405 Method Not Allowed")
        else:
            host, _, port = target.rpartition(":")
            connected = b"HTTP/1.1 200 Connection established\r\nX-Proxy: double\r\n\r\n"
            failed = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"
            self.relay(host.strip("[]"), int(port), connected, failed)
        return True

    def _refuse(self, status: bytes) -> None:
        self.transport.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
        self.transport.loseConnection()


class _Socks5(_Relay):
    step = "methods"

    def talk(self) -> bool:
        size = getattr(self, f"_{self.step}_bytes")()
        if size is None or len(self.received) < size:
            return False
        message, self.received = self.received[:size], self.received[size:]
        getattr(self, f"_{self.step}")(message)
        return True

    def _methods_bytes(self) -> int | None:
        return 2 + self.received[1] if len(self.received) > 1 else None

    def _methods(self, message: bytes) -> None:
        method = 2 if self.proxy.login else 0
        if method not in message[2:]:
            self._refuse(b"\5\xff")
            return
        self.transport.write(bytes([5, method]))
        self.step = "password" if method else "request"

    def _password_bytes(self) -> int | None:
        received = self.received
        if len(received) < 2 or len(received) < 3 + received[1]:
            return None
        return 3 + received[1] + received[2 + received[1]]

    def _password(self, message: bytes) -> None:
        size = message[1]
        login = message[2 : 2 + size] + b":" + message[3 + size :]
        if login.decode() != self.proxy.login:
            self._refuse(b"\1\1")
            return
        self.transport.write(b"\1\0")
        self.step = "request"

    def _request_bytes(self) -> int | None:
        if len(self.received) < 5:
            return None
        kind, size = self.received[3], self.received[4]
        return 6 + {1: 4, 3: 1 + size, 4: 16}[kind]

    def _request(self, message: bytes) -> None:
        kind, address, port = message[3], message[4:-2], int.from_bytes(message[-2:], "big")
        if kind == 1:
            host = ".".join(str(byte) for byte in address)
        elif kind == 3:
            host = address[1:].decode()
        else:
            host = ":".join(address[i : i + 2].hex() for i in range(0, 16, 2))
        self.relay(host, port, b"\5\0\0\1" + bytes(6), _SOCKS_REFUSED)

    def _refuse(self, answer: bytes) -> None:
        self.proxy.refused += 1
        self.transport.write(answer)
        self.transport.loseConnection()
