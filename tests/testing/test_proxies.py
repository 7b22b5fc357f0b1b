"""
Tests for :mod:`twisted_exec.testing.proxies`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Protocol
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.testing.proxies import ConnectProxy, ProxyFactory, Socks5Proxy

GREETING = b"\5\1\2"
LOGIN = b"\1\3ann\4p@ss"
REQUEST = b"\5\1\0\3\4exec\x1b\x39"
CONNECT = (
    b"CONNECT exec:6969 HTTP/1.1\r\nHost: exec:6969\r\n"
    b"Proxy-Authorization: Basic YW5uOnBAc3M=\r\n\r\n"
)
ANSWERED = b"\5\2\1\0\5\0\0\1" + bytes(6)
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\nX-Proxy: double\r\n\r\n"


class Distant:
    """The servers behind a proxy."""

    def __init__(self) -> None:
        self.servers: list[StringTransport] = []

    def connect(self, host: str, port: int, far: Protocol) -> Deferred[Any]:
        self.asked = (host, port)
        self.servers.append(StringTransport())
        far.makeConnection(self.servers[-1])
        return succeed(far)


class SplitTests(SynchronousTestCase):
    """A dialogue may arrive in any pieces."""

    def talk(self, proxy: ProxyFactory, pieces: list[bytes]) -> tuple[bytes, bytes]:
        """Return the bytes that client and server receive."""
        distant = Distant()
        self.patch(proxy, "connect", distant.connect)
        client = StringTransport()
        near = proxy.buildProtocol(None)
        assert near is not None
        near.makeConnection(client)
        for piece in pieces:
            near.dataReceived(piece)
        self.assertEqual(distant.asked, ("exec", 6969))
        (server,) = distant.servers
        return client.value(), server.value()

    def check(self, proxy: ProxyFactory, dialogue: bytes, answer: bytes) -> None:
        sent = dialogue + b"hello"
        for size in (1, 2, 7, len(sent)):
            pieces = [sent[i : i + size] for i in range(0, len(sent), size)]
            self.assertEqual(self.talk(proxy, pieces), (answer, b"hello"))

    def test_socks(self) -> None:
        """SOCKS 5, with a password."""
        self.check(Socks5Proxy(None, "ann:p@ss"), GREETING + LOGIN + REQUEST, ANSWERED)

    def test_connect(self) -> None:
        """HTTP ``CONNECT``, with a password."""
        self.check(ConnectProxy(None, "ann:p@ss"), CONNECT, ESTABLISHED)
