"""
Tests for :mod:`twisted_exec.tls.endpoints`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import tempfile
from typing import Any

from twisted.internet import error
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IHandshakeListener
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock, deferLater
from twisted.internet.testing import MemoryReactorClock, StringTransportWithDisconnection
from twisted.trial.unittest import SynchronousTestCase

from tests.tls.support import (
    LoopbackCase,
    Recorder,
    authority,
    reactor,
    server_identity,
)
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import (
    HANDSHAKE_SECONDS,
    address_text,
    client_endpoint,
    listening_address,
    listening_address_or_none,
    server_endpoint,
    unix_client_endpoint,
)
from twisted_exec.tls.errors import (
    ConnectTimeout,
    HandshakeCancelled,
    HandshakeError,
    HandshakeTimeout,
    TLSConfigError,
    VerificationError,
)
from twisted_exec.tls.listening import BACKLOG


class Talker(Recorder):
    """Says something as soon as it is connected."""

    def connectionMade(self) -> None:
        super().connectionMade()
        self.transport.write(b"hello")


class Rude(Recorder):
    """Answers any input with text, as a plain HTTP server does."""

    def dataReceived(self, data: bytes) -> None:
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


class Closer(Recorder):
    """Hangs up at once."""

    def connectionMade(self) -> None:
        super().connectionMade()
        self.transport.loseConnection()


class DeadlineTests(LoopbackCase):
    """A server's endpoint over a transport in memory."""

    def test_half_a_handshake(self) -> None:
        """A client that connects and does not go on is cut after a while, whatever it is for."""
        clock = MemoryReactorClock()
        recorders = Factory.forProtocol(Recorder)
        listening = server_endpoint(clock, "tcp:6443", self.server_tls()).listen(recorders)
        self.successResultOf(listening)
        transport = StringTransportWithDisconnection()
        transport.protocol = clock.tcpServers[0][1].buildProtocol(None)
        transport.protocol.makeConnection(transport)
        clock.advance(HANDSHAKE_SECONDS - 1)
        transport.protocol.dataReceived(b"\x16\x03\x01")
        self.assertTrue(transport.connected)
        clock.advance(1)
        self.assertFalse(transport.connected)


class AddressTextTests(SynchronousTestCase):
    """Tests for :func:`address_text`."""

    def test_forms(self) -> None:
        """A listening address is shown as it is; an unspecified one says what it covers."""
        for address, text in (
            (IPv4Address("TCP", "127.0.0.1", 6443), "127.0.0.1:6443"),
            (IPv4Address("TCP", "0.0.0.0", 6443), "0.0.0.0:6443 (all IPv4 addresses)"),
            (IPv6Address("TCP", "::1", 6443), "[::1]:6443"),
            (IPv6Address("TCP", "::", 6443), "[::]:6443 (all addresses)"),
            (UNIXAddress(b"/run/exec.sock"), "unix:/run/exec.sock"),
        ):
            self.assertEqual(address_text(address), text)


class ServerEndpointTests(LoopbackCase):
    """Tests for :func:`server_endpoint`."""

    def test_no_endpoint(self) -> None:
        """An invalid endpoint description is refused with a one-line message and an example."""
        for bad in ("", "6443", "nope:1", "tcp:", "tcp:x", "tcp:1:2:3:4:5", "tcp:1:foo=bar"):
            with self.assertRaises(TLSConfigError, msg=bad) as caught:
                server_endpoint(reactor, bad, None)
            self.assertIn("tcp:6443:interface=127.0.0.1", str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))
            with self.assertRaises(ValueError, msg=bad) as caught_early:
                listening_address(bad)
            self.assertEqual(str(caught_early.exception), str(caught.exception))

    def test_option(self) -> None:
        """An option's address is unchanged, or refused with its number that is no port."""
        for good in ("tcp:0", "tcp:6443:interface=\\:\\:1", "unix:/run/x"):
            self.assertEqual(listening_address(good), good)
        for bad in ("tcp:99999", "tcp:-1"):
            with self.assertRaises(ValueError) as caught:
                listening_address(bad)
            self.assertIn("is no port from 0 to 65535", str(caught.exception))
        self.assertEqual(listening_address_or_none(""), "")

    def test_not_twice(self) -> None:
        """An endpoint with TLS of its own is refused."""
        for bad in ("ssl:6443", "tls:/etc:6443"):
            with self.assertRaises(TLSConfigError):
                server_endpoint(reactor, bad, self.server_tls())

    async def test_impossible(self) -> None:
        """An error for an invalid port or socket path names the address."""
        for bad in ("tcp:99999:interface=127.0.0.1", "unix:/nonexistent/x"):
            with self.assertRaises(TLSConfigError) as caught:
                await server_endpoint(reactor, bad, self.server_tls()).listen(self.recorders())
            self.assertTrue(str(caught.exception).startswith(f"cannot listen on {bad!r}: "))
            self.assertNotIn("\n", str(caught.exception))

    async def test_taken(self) -> None:
        """A port in use fails listening and names the address."""
        port = await self.listen(self.recorders(), None)
        number = port.getHost().port
        with self.assertRaises(error.CannotListenError) as caught:
            await self.listen(self.recorders(), None, f"tcp:{number}:interface=127.0.0.1")
        self.assertIn(f"127.0.0.1:{number}", str(caught.exception))

    async def test_backlog(self) -> None:
        """The backlog takes a thousand clients in one turn unless the operator sets another."""
        directory = tempfile.mkdtemp()
        self.addCleanup(os.rmdir, directory)
        for description, backlog in (
            ("tcp:0:interface=127.0.0.1", BACKLOG),
            ("tcp6:0:interface=\\:\\:1", BACKLOG),
            ("tcp:0:interface=127.0.0.1:backlog=7", 7),
            (f"unix:{directory}/a:lockfile=0", BACKLOG),
            (f"unix:{directory}/b:backlog=7:lockfile=0", 7),
            (f"unix:{directory}/c\\:backlog\\=7:lockfile=0", BACKLOG),
        ):
            port: Any = await self.listen(self.recorders(), None, description)
            self.assertEqual(port.backlog, backlog, description)

    async def test_modes(self) -> None:
        """A socket is for its owner unless the description gives a mode, whatever the umask."""
        directory = tempfile.mkdtemp()
        self.addCleanup(os.rmdir, directory)
        self.addCleanup(os.umask, os.umask(0))
        for name, more, mode in (("a", "", 0o600), ("b", ":mode=660", 0o660)):
            path = os.path.join(directory, name)
            await self.listen(self.recorders(), None, f"unix:{path}:lockfile=0{more}")
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), mode)

    async def test_ipv6(self) -> None:
        """IPv6 is listened on like IPv4."""
        port = await self.listen(self.recorders(), self.server_tls(), "tcp6:0:interface=\\:\\:1")
        endpoint = client_endpoint(
            reactor, "::1", port.getHost().port, self.client_tls("localhost")
        )
        await endpoint.connect(self.recorders())


class ClientEndpointTests(LoopbackCase):
    """Tests for :func:`client_endpoint`."""

    async def failure(
        self, kind: type[Recorder], tls: ClientTLS | None, seconds: float = 10
    ) -> BaseException:
        """Return the error of connecting to a plain TCP server with this behaviour."""
        port = await self.listen(self.recorders(kind), None)
        endpoint = client_endpoint(
            reactor, "127.0.0.1", port.getHost().port, tls, timeout_seconds=seconds
        )
        try:
            await endpoint.connect(self.recorders())
        except Exception as problem:
            self.assertNotIn("\n", str(problem))
            self.assertIn(f"127.0.0.1:{port.getHost().port}", str(problem))
            if isinstance(problem, HandshakeError):
                self.assertNotIn("127.0.0.1", problem.reason)
            return problem
        raise AssertionError("it connected")

    async def test_after_the_handshake(self) -> None:
        """``connect()`` fires when the handshake is over and the peer verified."""
        port = await self.listen(self.recorders(), self.server_tls())
        client = await self.connect(port, self.client_tls())
        self.assertTrue(client.made.called)
        self.assertIsNotNone(client.transport.getHandle().get_cipher_name())

    async def test_no_protocol_for_strangers(self) -> None:
        """The caller's protocol is not created if verification fails."""
        recorders = self.recorders()
        port = await self.listen(self.recorders(), self.server_tls())
        with self.assertRaises(VerificationError):
            await self.connect(port, self.client_tls("other.example"), recorders)
        self.assertEqual(recorders.made, [])

    async def test_bytes_with_the_handshake(self) -> None:
        """Bytes that the server sends right after the handshake are not lost."""
        port = await self.listen(self.recorders(Talker), self.server_tls())
        client = await self.connect(port, self.client_tls())
        self.assertEqual(await client.has(5), b"hello")

    async def test_plain_server(self) -> None:
        """The error says that the server does not speak TLS."""
        problem = await self.failure(Rude, self.client_tls())
        self.assertIsInstance(problem, HandshakeError)
        self.assertIn("it does not speak TLS on this port", str(problem))

    async def test_hung_up(self) -> None:
        """The error says that the server closed the connection during the handshake."""
        problem = await self.failure(Closer, self.client_tls())
        assert isinstance(problem, HandshakeError)
        self.assertIn("closed the connection during the TLS handshake", str(problem))
        self.assertEqual(problem.reason, "it closed the connection during the TLS handshake")

    async def test_25_mute_server(self) -> None:
        """Connecting to a server that accepts and stays silent ends at the time limit."""
        recorders = self.recorders()
        port = await self.listen(recorders, None)
        accepted = recorders.next()
        clock = ClockedReactor()
        endpoint = client_endpoint(
            clock, "127.0.0.1", port.getHost().port, self.client_tls(), timeout_seconds=3
        )
        attempt = endpoint.connect(self.recorders())
        silent = await accepted
        await silent.has(1)  # our greeting
        self.assertNoResult(attempt)
        clock.advance(3)
        problem = self.failureResultOf(attempt, HandshakeTimeout).value
        why = "its program does not answer: no TLS handshake within 3 s"
        self.assertEqual(str(problem), f"127.0.0.1:{port.getHost().port}: {why}")
        self.assertEqual(problem.reason, why)
        self.assertIsInstance(problem, error.TimeoutError)
        await silent.lost

    async def test_mute_server_cancelled(self) -> None:
        """A caller that gives up sees whether the server had accepted the connection."""
        recorders = self.recorders()
        port = await self.listen(recorders, None)
        accepted = recorders.next()
        endpoint = client_endpoint(
            reactor, "127.0.0.1", port.getHost().port, self.client_tls(), timeout_seconds=None
        )
        attempt = endpoint.connect(self.recorders())
        silent = await accepted
        await silent.has(1)  # our greeting
        attempt.cancel()
        with self.assertRaises(HandshakeCancelled):
            await attempt
        await silent.lost

    async def test_refused(self) -> None:
        """A refused connection fails with Twisted's ConnectionRefusedError."""
        with socket.socket() as plug:
            plug.bind(("127.0.0.1", 0))
            endpoint = client_endpoint(
                reactor, "127.0.0.1", plug.getsockname()[1], self.client_tls()
            )
            with self.assertRaises(error.ConnectionRefusedError):
                await endpoint.connect(self.recorders())

    async def test_cancel(self) -> None:
        """Cancelling during the handshake closes the connection."""
        recorders = self.recorders()
        port = await self.listen(recorders, None)
        accepted = recorders.next()
        endpoint = client_endpoint(reactor, "127.0.0.1", port.getHost().port, self.client_tls())
        attempt = endpoint.connect(self.recorders())
        silent = await accepted
        await silent.has(1)
        attempt.cancel()
        self.failureResultOf(attempt, CancelledError)
        await silent.lost

    async def test_cancel_connecting(self) -> None:
        """Cancelling before TCP has connected is a cancellation too, with TLS and without."""
        port = await self.listen(self.recorders(), None)
        for tls in (None, self.client_tls()):
            endpoint = client_endpoint(reactor, "127.0.0.1", port.getHost().port, tls)
            attempt = endpoint.connect(self.recorders())
            attempt.cancel()
            self.failureResultOf(attempt, CancelledError)

    async def test_by_name(self) -> None:
        """A host name is resolved; the certificate must name it."""
        port = await self.listen(self.recorders(), self.server_tls())
        endpoint = client_endpoint(
            reactor, "localhost", port.getHost().port, self.client_tls("localhost")
        )
        await endpoint.connect(self.recorders())

    async def test_no_such_host(self) -> None:
        """A name that does not resolve fails with Twisted's own error."""
        endpoint = client_endpoint(reactor, "a..b", 1, None)
        with self.assertRaises((ValueError, error.DNSLookupError)):
            await endpoint.connect(self.recorders())

    async def test_factory_declines(self) -> None:
        """A factory that makes no protocol fails connecting and closes."""
        recorders = self.recorders()
        port = await self.listen(recorders, self.server_tls())
        accepted = recorders.next()
        declining = Factory()
        declining.buildProtocol = lambda addr: None  # type: ignore[method-assign]
        with self.assertRaises(error.NoProtocol):
            await self.connect(port, self.client_tls(), declining)
        await (await accepted).lost

    async def test_factory_fails(self) -> None:
        """A factory that raises fails connecting with what it raised."""

        class Broken(Factory):
            noisy = False

            def buildProtocol(self, addr: Any) -> Any:
                raise ZeroDivisionError

        port = await self.listen(self.recorders(), self.server_tls())
        with self.assertRaises(ZeroDivisionError):
            await self.connect(port, self.client_tls(), Broken())

    async def test_start_and_stop(self) -> None:
        """The factory is started before and stopped after, as by any endpoint."""
        told: list[str] = []

        class Told(Factory):
            noisy = False
            protocol = Recorder

            def startFactory(self) -> None:
                told.append("start")

            def stopFactory(self) -> None:
                told.append("stop")

        port = await self.listen(self.recorders(), self.server_tls())
        client = await self.connect(port, self.client_tls(), Told())
        self.assertEqual(told, ["start"])
        client.transport.loseConnection()
        await client.lost
        while len(told) < 2:
            turn: Deferred[None] = Deferred()
            reactor.callLater(0, turn.callback, None)
            await turn
        self.assertEqual(told, ["start", "stop"])


class ClockedReactor:
    """The real reactor with a clock of our own."""

    def __init__(self) -> None:
        self._clock = Clock()
        self.callLater = self._clock.callLater
        self.seconds = self._clock.seconds
        self.advance = self._clock.advance

    def __getattr__(self, name: str) -> Any:
        return getattr(reactor, name)


class UNIXEndpointTests(LoopbackCase):
    """Tests for UNIX sockets."""

    def path(self) -> str:
        directory = tempfile.mkdtemp()  # mktemp() is too long for a socket
        self.addCleanup(os.rmdir, directory)
        return os.path.join(directory, "sock")

    async def test_plain(self) -> None:
        """Bytes pass over a UNIX socket."""
        path = self.path()
        recorders = self.recorders()
        await self.listen(recorders, None, f"unix:{path}:lockfile=0")
        accepted = recorders.next()
        client: Any = await unix_client_endpoint(reactor, path).connect(self.recorders())
        client.transport.write(b"x")
        await (await accepted).has(1)

    async def test_tls(self) -> None:
        """TLS works over a UNIX socket as well."""
        path = self.path()
        await self.listen(self.recorders(Talker), self.server_tls(), f"unix:{path}:lockfile=0")
        client: Any = await unix_client_endpoint(reactor, path, self.client_tls()).connect(
            self.recorders()
        )
        await client.has(5)

    def full(self) -> tuple[socket.socket, str]:
        """A listening socket that can take no more connections, and its path."""
        path = self.path()
        listening = socket.socket(socket.AF_UNIX)
        self.addCleanup(os.unlink, path)
        self.addCleanup(listening.close)
        listening.bind(path)
        listening.listen(1)
        while True:
            waiting = socket.socket(socket.AF_UNIX)
            self.addCleanup(waiting.close)
            waiting.setblocking(False)
            if waiting.connect_ex(path) == errno.EAGAIN:
                return listening, path

    async def test_full_backlog(self) -> None:
        """A client waits for its place in the backlog; the connection then works."""
        listening, path = self.full()
        connecting = unix_client_endpoint(reactor, path).connect(self.recorders())
        self.assertNoResult(connecting)
        # The first turn met the full backlog.
        await deferLater(reactor, 0, lambda: None)
        self.assertNoResult(connecting)
        listening.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                listening.accept()[0].close()
        client: Any = await connecting
        server, _ = listening.accept()
        self.addCleanup(server.close)
        server.sendall(b"hello")
        await client.has(5)

    async def test_full_backlog_for_long(self) -> None:
        """Waiting for a full backlog ends at the time limit or when the caller cancels."""
        _, path = self.full()
        endpoint = unix_client_endpoint(reactor, path, timeout_seconds=0.01)
        with self.assertRaises(ConnectTimeout) as caught:
            await endpoint.connect(self.recorders())
        self.assertIn(f"no answer from {path}", str(caught.exception))
        connecting = unix_client_endpoint(reactor, path).connect(self.recorders())
        await deferLater(reactor, 0, lambda: None)
        connecting.cancel()
        with self.assertRaises(CancelledError):
            await connecting

    async def test_nobody_there(self) -> None:
        """A missing socket is an error, at once."""
        with self.assertRaises(error.ConnectError):
            await unix_client_endpoint(reactor, "/nowhere/sock").connect(self.recorders())

    def test_too_long(self) -> None:
        """A path that no socket can have is refused before it is tried."""
        with self.assertRaises(TLSConfigError) as caught:
            unix_client_endpoint(reactor, "/" + "x" * 107)
        self.assertIn("has 108 bytes; 107 are possible", str(caught.exception))


class InterfaceTests(LoopbackCase):
    """The transport interface that protocols rely on."""

    async def test_no_handshake_event(self) -> None:
        """
        ``connectionMade`` follows the handshake, and ``handshakeCompleted`` is not called too.
        """
        told: list[str] = []

        class Listener(Recorder):
            def handshakeCompleted(self) -> None:
                told.append("handshake")

            def connectionMade(self) -> None:
                super().connectionMade()
                told.append("made")

        from zope.interface import classImplements

        classImplements(Listener, IHandshakeListener)
        port = await self.listen(self.recorders(Talker), self.server_tls())
        client = await self.connect(port, self.client_tls(), self.recorders(Listener))
        await client.has(5)
        self.assertEqual(told, ["made"])

    async def test_addresses(self) -> None:
        """Host and peer addresses are those of the socket."""
        server, client = await self.pair(
            self.server_tls(server_identity("localhost")), self.client_tls()
        )
        self.assertEqual(server.transport.getPeer(), client.transport.getHost())

    async def test_authority(self) -> None:
        """The CA file may hold several authorities."""
        both = authority("evil").certificate_pem + authority("serving").certificate_pem
        await self.pair(self.server_tls(), self.client_tls(ca_pem=both))
