"""
Tests for :mod:`twisted_exec.tls.fast.transport`.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import struct
import tempfile
import weakref
from fcntl import ioctl
from typing import Any

from OpenSSL import SSL
from twisted.internet import tcp, unix
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol, serverFromString
from twisted.internet.error import (
    ConnectError,
    ConnectionDone,
    ConnectionLost,
    ConnectionRefusedError,
)
from twisted.internet.interfaces import (
    IHalfCloseableProtocol,
    IHandshakeListener,
    IPullProducer,
    IPushProducer,
)
from twisted.internet.protocol import (
    ClientFactory,
    Factory,
    ProcessProtocol,
    Protocol,
    connectionDone,
)
from twisted.internet.testing import MemoryReactorClock
from twisted.protocols.basic import FileSender
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests import needs
from tests.tiers import PROGRAMS
from tests.tls.support import LoopbackCase, Recorder, reactor
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import client_endpoint, unix_client_endpoint
from twisted_exec.tls.errors import HandshakeError
from twisted_exec.tls.fast import descriptor, transport


def turns(count: int = 1) -> Deferred[None]:
    """Fires after so many turns of the reactor."""
    done: Deferred[None] = Deferred()

    def turn(left: int) -> None:
        if left:
            reactor.callLater(0, turn, left - 1)
        else:
            done.callback(None)

    turn(count)
    return done


def queued(end: Any) -> int:
    """Bytes that a socket transport has taken and not sent."""
    return int(len(end.dataBuffer) - end.offset + end._tempDataLen)


def there(plug: socket.socket) -> bool:
    """Return whether the socket is readable."""
    return bool(select.select([plug], [], [], 0)[0])


@implementer(IPushProducer)
class Producer:
    """Records the calls of the transport."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def pauseProducing(self) -> None:
        self.told.append("pause")

    def resumeProducing(self) -> None:
        self.told.append("resume")

    def stopProducing(self) -> None:
        self.told.append("stop")


class WriteTests(LoopbackCase):
    """``write`` on TCP: see :class:`UNIXWriteTests` for the same on UNIX sockets."""

    async def both(self) -> tuple[Recorder, Recorder]:
        """Two ends of a connection."""
        return await self.pair(None, None)

    async def test_at_once(self) -> None:
        """``write`` passes a byte to the kernel at once and does not wait for a write event."""
        for writer, reader in zip(await self.both(), reversed(await self.both()), strict=True):
            del reader
            writer.transport.write(b"x")
            self.assertEqual(queued(writer.transport), 0)
            self.assertNotIn(writer.transport, reactor.getWriters())

    async def test_sequence_at_once(self) -> None:
        """``writeSequence`` passes its parts to the kernel at once, in order."""
        server, client = await self.both()
        client.transport.writeSequence([b"a", b"", b"b"])
        self.assertEqual(queued(client.transport), 0)
        self.assertEqual(await server.has(2), b"ab")

    async def test_nothing(self) -> None:
        """Writing nothing does nothing."""
        _, client = await self.both()
        client.transport.write(b"")
        client.transport.writeSequence([])
        self.assertNotIn(client.transport, reactor.getWriters())

    async def test_text(self) -> None:
        """Text is refused as by Twisted."""
        _, client = await self.both()
        with self.assertRaises(TypeError):
            client.transport.write("text")

    async def test_order(self) -> None:
        """Whatever the kernel takes at once and whatever is queued arrives in order."""
        server, client = await self.both()
        server.transport.pauseProducing()
        chunks = [bytes([index % 251]) * (1 + index * 997 % 70_000) for index in range(300)]
        for chunk in chunks:
            client.transport.write(chunk)
        self.assertGreater(queued(client.transport), 0)
        server.transport.resumeProducing()
        whole = b"".join(chunks)
        received = await server.has(len(whole))
        self.assertTrue(received == whole)

    async def test_large(self) -> None:
        """One write larger than any buffer arrives whole."""
        server, client = await self.both()
        data = os.urandom(1 << 20) * 8
        client.transport.write(data)
        self.assertTrue(await server.has(len(data)) == data)

    async def test_producer(self) -> None:
        """A producer is paused when the queue is full, and resumed when it is sent."""
        server, client = await self.both()
        producer = Producer()
        client.transport.registerProducer(producer, True)
        client.transport.write(b"x")
        self.assertEqual(producer.told, [])
        server.transport.pauseProducing()
        written = 0
        while "pause" not in producer.told:
            client.transport.write(b"x" * 65_536)
            written += 65_536
        self.assertGreater(queued(client.transport), 65_536)
        server.transport.resumeProducing()
        await server.has(1 + written)
        while "resume" not in producer.told:
            await turns()
        self.assertEqual(queued(client.transport), 0)
        client.transport.unregisterProducer()

    async def test_pull_producer(self) -> None:
        """``resumeProducing`` of a pull producer is called until it unregisters."""
        server, client = await self.both()

        @implementer(IPullProducer)
        class Pulled:
            left = 20

            def resumeProducing(self) -> None:
                self.left -= 1
                client.transport.write(b"x")
                if not self.left:
                    client.transport.unregisterProducer()

            def stopProducing(self) -> None:
                pass

        client.transport.registerProducer(Pulled(), False)
        self.assertEqual(await server.has(20), b"x" * 20)

    async def test_file(self) -> None:
        """Twisted's own file sender works."""
        server, client = await self.both()
        content = os.urandom(300_000)
        with open(self.write("file", content), "rb") as stream:
            await FileSender().beginFileTransfer(stream, client.transport)
        self.assertTrue(await server.has(len(content)) == content)

    async def test_lose_flushes(self) -> None:
        """Bytes written before ``loseConnection`` arrive before the end."""
        for size in (1, 5_000_000):
            server, client = await self.both()
            client.transport.write(b"x" * size)
            client.transport.loseConnection()
            self.assertIsInstance(await server.lost, ConnectionDone)
            self.assertEqual(len(server.received), size)

    async def test_half_close(self) -> None:
        """Bytes written before ``loseWriteConnection`` arrive; the other direction stays open."""
        for size in (1, 5_000_000):
            recorders = self.recorders(HalfCloser)
            port = await self.listen(recorders, None)
            accepted = recorders.next()
            client = await self.connect(port, None, self.recorders(HalfCloser))
            server = await accepted
            client.transport.write(b"x" * size)
            client.transport.loseWriteConnection()
            await server.ended
            self.assertEqual(len(server.received), size)
            server.transport.write(b"reply")
            await client.has(5)

    async def test_after_abort(self) -> None:
        """After ``abortConnection`` nothing is sent and nothing is raised."""
        server, client = await self.both()
        client.transport.abortConnection()
        client.transport.write(b"x")
        await client.lost
        await server.lost
        client.transport.write(b"x")
        self.assertEqual(server.received, b"")

    async def test_broken(self) -> None:
        """
        ``write`` on a broken connection does not call ``connectionLost``; a later turn does.
        """
        server, client = await self.both()
        handle = server.transport.getHandle()
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.transport.pauseProducing()  # or it would see the reset by reading
        server.transport.abortConnection()
        await server.lost
        for _ in range(3):
            client.transport.write(b"x")
            self.assertFalse(client.lost.called)
        self.assertIsInstance(await client.lost, ConnectionLost)

    async def test_write_in_data_received(self) -> None:
        """Answering from inside ``dataReceived`` is in order, however long it goes on."""
        recorders = self.recorders(Echo)
        port = await self.listen(recorders, None)
        client = await self.connect(port, None)
        for _ in range(50):
            client.transport.write(b"0123456789")
        self.assertEqual(await client.has(500), b"0123456789" * 50)


class Echo(Recorder):
    """Sends back what it receives, byte by byte."""

    def dataReceived(self, data: bytes) -> None:
        for index in range(len(data)):
            self.transport.write(data[index : index + 1])


@implementer(IHalfCloseableProtocol)
class HalfCloser(Recorder):
    """Goes on when the other side has nothing more to say."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: Deferred[None] = Deferred()

    def readConnectionLost(self) -> None:
        self.ended.callback(None)

    def writeConnectionLost(self) -> None:
        pass


class UNIXWriteTests(WriteTests):
    """The same on UNIX sockets, with descriptor passing."""

    async def both(self) -> tuple[Recorder, Recorder]:
        directory = tempfile.mkdtemp()
        self.addCleanup(os.rmdir, directory)
        path = os.path.join(directory, "sock")
        recorders = self.recorders()
        await self.listen(recorders, None, f"unix:{path}:lockfile=0")
        accepted = recorders.next()
        client: Any = await unix_client_endpoint(reactor, path).connect(self.recorders())
        return await accepted, client

    async def test_descriptors(self) -> None:
        """A descriptor travels with the byte that was written after it."""
        server, client = await self.both()
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        self.addCleanup(os.close, writing)
        client.transport.sendFileDescriptor(writing)
        client.transport.write(b"x")
        self.assertEqual(await server.has(1), b"x")

    async def test_kinds(self) -> None:
        """Both ends are ours."""
        server, client = await self.both()
        self.assertIsInstance(server.transport, transport.UNIXServer)
        self.assertIsInstance(client.transport, transport.UNIXClient)


class SocketTests(LoopbackCase):
    """Socket options."""

    async def test_options(self) -> None:
        """Small writes are not held back, and a vanished peer is noticed within a minute."""
        for end in await self.pair(None, None):
            self.assertTrue(end.transport.getTcpNoDelay())
            self.assertTrue(end.transport.getTcpKeepAlive())
            idle, interval, probes = (
                end.transport.getHandle().getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            self.assertLessEqual(idle + interval * probes, 60)

    async def test_kinds(self) -> None:
        """Both ends are ours, below TLS as well."""
        for tls in ((None, None), (self.server_tls(), self.client_tls())):
            server, client = await self.pair(*tls)
            self.assertIsInstance(transport.socket_transport(server.transport), transport.TCPServer)
            self.assertIsInstance(transport.socket_transport(client.transport), transport.TCPClient)

    async def test_connects_at_once(self) -> None:
        """The connection to a server of this host waits for no event."""
        asked: list[object] = []
        self.patch(transport.TCPClient, "startWriting", asked.append)
        server, client = await self.pair(None, None)
        self.assertEqual(asked, [])
        server.transport.write(b"hello")
        self.assertEqual(await client.has(5), b"hello")

    async def test_refused(self) -> None:
        """A refusal ends the attempt."""
        listening = socket.create_server(("127.0.0.1", 0))
        address = listening.getsockname()
        listening.close()
        with self.assertRaises(ConnectionRefusedError):
            await client_endpoint(reactor, *address, None).connect(self.recorders())

    async def test_failing_protocol(self) -> None:
        """A protocol that fails when it is connected is reported, and loses its connection."""

        class Failing(Protocol):
            def connectionMade(self) -> None:
                raise ZeroDivisionError

        recorders = self.recorders()
        port = await self.listen(recorders, None)
        accepted = recorders.next()
        connector = transport.unbuffered_connector(reactor)
        factory = ClientFactory.forProtocol(Failing)
        connector.connectTCP("127.0.0.1", port.getHost().port, factory)
        self.assertIsInstance(await (await accepted).lost, ConnectionLost)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    async def test_refused_later(self) -> None:
        """A server whose queue was full ends before it has accepted."""
        listening = socket.create_server(("127.0.0.1", 0), backlog=0)
        address = listening.getsockname()
        others = [socket.socket() for _ in range(2)]
        for other in others:
            self.addCleanup(other.close)
            other.setblocking(False)
            other.connect_ex(address)
        connecting = client_endpoint(reactor, *address, None).connect(self.recorders())
        await turns(2)
        self.assertFalse(connecting.called)
        listening.close()
        with self.assertRaises(ConnectionRefusedError):
            await connecting

    async def test_start_tls(self) -> None:
        """TLS that is started later is never bypassed."""
        server, client = await self.pair(None, None)
        server.transport.startTLS(self.server_tls())
        client.transport.startTLS(self.client_tls())
        client.transport.write(b"secret")
        self.assertEqual(await server.has(6), b"secret")

    def test_other_reactors(self) -> None:
        """A reactor without sockets is left as it is."""
        memory = MemoryReactorClock()
        self.assertIs(transport.unbuffered_connector(memory), memory)


class StreamTLSTests(LoopbackCase):
    """TLS on the socket's descriptor: see :mod:`.test_records` for TLS above other transports."""

    def linger(self, seconds: float) -> None:
        """Set how long a closing connection waits for its peer."""
        self.patch(descriptor, "LINGER_SECONDS", seconds)

    def is_idle(self, end: Recorder) -> bool:
        """Return whether nothing is queued and the reactor does not wait to write."""
        plain = transport.socket_transport(end.transport)
        return queued(plain) == 0 and plain not in reactor.getWriters()

    def raw(self, end: Recorder) -> socket.socket:
        """An end's socket, past TLS."""
        plain: Any = transport.socket_transport(end.transport)
        plug = socket.socket(fileno=os.dup(plain.fileno()))
        self.addCleanup(plug.close)
        return plug

    async def test_kind(self) -> None:
        """Both ends are StreamTLS on their own sockets."""
        for end in await self.pair(self.server_tls(), self.client_tls()):
            self.assertIs(transport.socket_transport(end.transport), end.transport)

    async def test_whole(self) -> None:
        """Megabytes pass unchanged both ways at once."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        data = os.urandom(3_000_001)
        client.transport.write(data)
        server.transport.write(data[::-1])
        self.assertTrue(await server.has(len(data)) == data)
        self.assertTrue(await client.has(len(data)) == data[::-1])

    async def test_sizes(self) -> None:
        """Writes around the size of a record are not torn or doubled."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        sent = b""
        for size in (1, 16_383, 16_384, 16_385, 32_768, 65_536, 65_537, 2):
            chunk = os.urandom(size)
            client.transport.write(chunk)
            sent += chunk
        self.assertTrue(await server.has(len(sent)) == sent)

    async def test_at_once(self) -> None:
        """A written byte is passed to the kernel at once, without aggregation."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        client.transport.write(b"warm")
        await server.has(4)
        client.transport.write(b"x")
        self.assertTrue(self.is_idle(client))

    async def test_one_delivery(self) -> None:
        """The records of one read are delivered together."""
        deliveries: list[int] = []

        class Counter(Recorder):
            def dataReceived(self, data: bytes) -> None:
                deliveries.append(len(data))
                super().dataReceived(data)

        recorders = self.recorders(Counter)
        port = await self.listen(recorders, self.server_tls())
        accepted = recorders.next()
        client = await self.connect(port, self.client_tls())
        server = await accepted
        client.transport.write(b"x")
        await server.has(1)
        client.transport.write(b"x" * 60_000)
        await server.has(60_001)
        self.assertLess(len(deliveries), 1 + 4)

    async def test_early(self) -> None:
        """Bytes that a server writes before the handshake are sent after it."""

        class Early(Recorder):
            def connectionMade(self) -> None:
                super().connectionMade()
                self.transport.write(b"early" * 10_000)

        port = await self.listen(self.recorders(Early), self.server_tls())
        client = await self.connect(port, self.client_tls())
        self.assertEqual(await client.has(50_000), b"early" * 10_000)

    async def test_early_and_over(self) -> None:
        """They are also sent if the server closes right after writing them."""

        class Brief(Recorder):
            def connectionMade(self) -> None:
                super().connectionMade()
                self.transport.write(b"early" * 100_000)
                self.transport.loseConnection()

        port = await self.listen(self.recorders(Brief), self.server_tls())
        client = await self.connect(port, self.client_tls())
        self.assertIsInstance(await client.lost, ConnectionDone)
        self.assertEqual(client.received, b"early" * 100_000)

    async def test_over_before_the_handshake(self) -> None:
        """A server that has nothing to say ends the connection at once."""

        class Mute(Recorder):
            def connectionMade(self) -> None:
                super().connectionMade()
                self.transport.loseConnection()

        port = await self.listen(self.recorders(Mute), self.server_tls())
        with self.assertRaises((HandshakeError, ConnectError)):  # the reset may come first
            await self.connect(port, self.client_tls())

    async def test_producer(self) -> None:
        """A producer above TLS is paused and resumed by the socket's queue."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        producer = Producer()
        client.transport.registerProducer(producer, True)
        server.transport.pauseProducing()
        written = 0
        while "pause" not in producer.told:
            client.transport.write(b"x" * 65_536)
            written += 65_536
        server.transport.resumeProducing()
        await server.has(written)
        while "resume" not in producer.told:
            await turns()
        client.transport.unregisterProducer()

    async def test_lose_flushes(self) -> None:
        """``loseConnection`` ends cleanly after the last byte."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        client.transport.write(b"x" * 2_000_000)
        client.transport.loseConnection()
        self.assertIsInstance(await server.lost, ConnectionDone)
        self.assertEqual(len(server.received), 2_000_000)
        self.assertIsInstance(await client.lost, ConnectionDone)

    async def test_tail_before_the_end(self) -> None:
        """Bytes that came together with the end are delivered before it."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        server.transport.pauseProducing()
        client.transport.write(b"tail")
        client.transport.loseConnection()
        await turns(5)
        server.transport.resumeProducing()
        await server.lost
        self.assertEqual(server.received, b"tail")

    async def stuck(self) -> tuple[Recorder, Recorder, Producer]:
        """Two ends, and the producer of the first, paused: the second does not read."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        producer = Producer()
        server.transport.registerProducer(producer, True)
        client.transport.pauseProducing()
        while producer.told[-1:] != ["pause"]:
            server.transport.write(b"x" * 65_536)
            await turns(10)  # the kernel's buffers grow while they are filled
        return server, client, producer

    async def test_end_while_the_producer_is_paused(self) -> None:
        """A peer that ends before it has read everything ends the connection."""
        server, client, _ = await self.stuck()
        client.transport.loseConnection()
        await turns(5)
        client.transport.resumeProducing()
        await client.lost
        self.assertIsInstance(await server.lost, ConnectionDone)

    async def test_end_without_reading(self) -> None:
        """A peer that ends the stream but reads nothing is disconnected after LINGER_SECONDS."""
        self.linger(0.01)
        server, client, _ = await self.stuck()
        client.transport.loseConnection()
        self.assertIsInstance(await server.lost, ConnectionLost)

    async def test_end_unanswered(self) -> None:
        """
        A peer that does not answer the end of the stream is disconnected after LINGER_SECONDS.
        """
        self.linger(0.01)
        server, client = await self.pair(self.server_tls(), self.client_tls())
        client.transport.pauseProducing()
        server.transport.loseConnection()
        self.assertIsInstance(await server.lost, ConnectionLost)

    async def test_broken(self) -> None:
        """``write`` on a broken connection does not call ``connectionLost``; a later turn does."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        client.transport.pauseProducing()  # or it would see the reset by reading
        server.transport.abortConnection()
        await server.lost
        for _ in range(3):
            client.transport.write(b"x")
            self.assertFalse(client.lost.called)
        self.assertIsInstance(await client.lost, ConnectionLost)

    async def test_truncated(self) -> None:
        """An end without a TLS close alert is a ConnectionLost."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        client.transport.write(b"x")
        await server.has(1)
        self.raw(client).shutdown(socket.SHUT_RDWR)
        self.assertIsInstance(await server.lost, ConnectionLost)

    async def test_garbage(self) -> None:
        """Garbage in the middle ends the connection; what came before was delivered."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        client.transport.write(b"good")
        self.raw(client).send(b"garbage" * 10)
        await server.lost
        self.assertEqual(server.received, b"good")

    async def test_abort_in_data_received(self) -> None:
        """A protocol that aborts receives no more data."""

        class Aborter(Recorder):
            def dataReceived(self, data: bytes) -> None:
                super().dataReceived(data)
                self.transport.abortConnection()
                self.transport.write(b"ignored")

        recorders = self.recorders(Aborter)
        port = await self.listen(recorders, self.server_tls())
        accepted = recorders.next()
        client = await self.connect(port, self.client_tls())
        server = await accepted
        client.transport.write(b"x")
        await server.lost
        await client.lost
        self.assertEqual((server.received, client.received), (b"x", b""))

    async def test_end_after_the_end(self) -> None:
        """Ending a connection that is over does nothing."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        client.transport.abortConnection()
        await client.lost
        await server.lost
        client.transport.abortConnection()
        client.transport.loseConnection()
        client.transport.write(b"x" * 100_000)


class Held(Protocol):
    """One end of a relay that can be held up."""

    other: Held
    transport: Any

    def dataReceived(self, data: bytes) -> None:
        self.other.transport.write(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.other.transport.loseConnection()


class Short(Held):
    """A relay's end that can keep back its last byte."""

    holds_back = False
    _kept = b""

    def dataReceived(self, data: bytes) -> None:
        data = self._kept + data
        passed = len(data) - self.holds_back
        self._kept = data[passed:]
        self.other.transport.write(data[:passed])

    def release(self) -> None:
        """Release the held bytes."""
        self.holds_back = False
        self.dataReceived(b"")


class Peer(ProcessProtocol):
    """OpenSSL's own client, which sends its input to the server."""

    transport: Any

    def __init__(self) -> None:
        self.printed = b""
        self.ended: Deferred[None] = Deferred()

    def outReceived(self, data: bytes) -> None:
        self.printed += data

    def errReceived(self, data: bytes) -> None:
        self.printed += data

    def processEnded(self, reason: Failure) -> None:
        self.ended.callback(None)

    async def change_keys(self) -> None:
        """Request new keys, which encrypt all later input."""
        told = self.printed.count(b"KEYUPDATE")
        self.transport.write(b"K\n")  # alone in one read, or it is text
        while self.printed.count(b"KEYUPDATE") == told:
            await turns()


class ServerCase(LoopbackCase):
    """Tests with one server."""

    async def accepted(self) -> tuple[int, Deferred[Recorder]]:
        """A listening port, and the first connection of it."""
        recorders = self.recorders()
        port = await self.listen(recorders, self.server_tls())
        return port.getHost().port, recorders.next()


class DescriptorTests(ServerCase):
    """Rules that OpenSSL sets for a caller that gives it the descriptor."""

    starts = PROGRAMS

    async def test_pause_before_the_handshake(self) -> None:
        """The handshake completes even if the server pauses at once; data waits for the resume."""

        class Pausing(Recorder):
            def connectionMade(self) -> None:
                super().connectionMade()
                self.transport.pauseProducing()

        recorders = self.recorders(Pausing)
        port = await self.listen(recorders, self.server_tls())
        accepted = recorders.next()
        client = await self.connect(port, self.client_tls())
        client.transport.write(b"later")
        server = await accepted
        await turns(5)
        self.assertEqual(server.received, b"")
        server.transport.resumeProducing()
        self.assertEqual(await server.has(5), b"later")

    async def test_request_behind_the_handshake(self) -> None:
        """What follows the handshake at once is received in the same turn."""
        events: list[str] = []
        shake, receive = descriptor.TLSServer.doRead, descriptor.TLSServer._receive

        def read(server: Any) -> Any:
            events.append("event")
            return shake(server)

        def received(server: Any) -> Any:
            events.append("read")
            return receive(server)

        self.patch(descriptor.TLSServer, "doRead", read)
        self.patch(descriptor.TLSServer, "_receive", received)
        server, client = await self.pair(self.server_tls(), self.client_tls())
        client.transport.write(b"request")
        self.assertEqual(await server.has(7), b"request")
        self.assertEqual(events, ["event", "event", "read"])  # hello, finished

    async def test_end_behind_the_handshake(self) -> None:
        """So is the end."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        client.transport.write(b"bye")
        client.transport.loseConnection()
        self.assertIsInstance(await server.lost, ConnectionDone)
        self.assertIsInstance(await client.lost, ConnectionDone)
        self.assertEqual(server.received, b"bye")

    async def test_request_for_a_paused_server(self) -> None:
        """A server that pauses when the handshake ends gets the request after it resumes."""

        @implementer(IHandshakeListener)
        class Pausing(Recorder):
            def handshakeCompleted(self) -> None:
                self.transport.pauseProducing()

        recorders = self.recorders(Pausing)
        port = await self.listen(recorders, self.server_tls())
        accepted = recorders.next()
        client = await self.connect(port, self.client_tls())
        client.transport.write(b"later")
        server = await accepted
        await turns(5)
        self.assertEqual(server.received, b"")
        server.transport.resumeProducing()
        self.assertEqual(await server.has(5), b"later")

    async def test_records_after_lone_ones(self) -> None:
        """
        Records that came together are delivered together soon, also after many that came alone: a Go peer
        writes the parts of a frame as records of their own.
        """
        deliveries: list[bytes] = []

        class Counter(Recorder):
            def dataReceived(self, data: bytes) -> None:
                deliveries.append(data)
                super().dataReceived(data)

        recorders = self.recorders(Counter)
        port = await self.listen(recorders, self.server_tls())
        accepted = recorders.next()
        client = await self.connect(port, self.client_tls())
        server = await accepted
        for number in range(1, 31):
            client.transport.write(b"k")
            await server.has(number)
        for number in range(1, 31):
            client.transport.write(b"head")
            client.transport.write(b"rest")
            await server.has(30 + 8 * number)
        self.assertEqual(deliveries[:30], [b"k"] * 30)
        self.assertLessEqual(deliveries.count(b"head"), 8)
        self.assertEqual(server.received, b"k" * 30 + b"headrest" * 30)

    async def test_end_unanswered_by_a_slow_reader(self) -> None:
        """Bytes that the kernel has taken arrive even if the peer reads after the close."""
        self.patch(descriptor, "LINGER_SECONDS", 0.01)
        server, client = await self.pair(self.server_tls(), self.client_tls())
        client.transport.pauseProducing()
        # More than the peer's kernel takes, so that some is still in ours when we close.
        server.transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 400_000)
        whole = 260_000
        server.transport.write(b"x" * whole)
        while queued(server.transport):
            await turns()
        server.transport.loseConnection()
        self.assertIsInstance(await server.lost, ConnectionLost)
        client.transport.resumeProducing()
        await client.lost
        self.assertEqual(len(client.received), whole)

    async def test_nothing_stays_in_openssl(self) -> None:
        """Records of any size, also many in one segment, are read without another event."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        sizes = [1, 100, 1_023, 1_024, 1_025, 16_384, 3, 16_383, 70_000, 1] * 5
        server.transport.pauseProducing()
        for size in sizes:
            client.transport.write(b"x" * size)
        server.transport.resumeProducing()
        self.assertEqual(len(await server.has(sum(sizes))), sum(sizes))

    async def test_heads_in_records_of_their_own(self) -> None:
        """
        Frames whose heads are in TLS records of their own, as API servers send them, are read
        in fewer turns than one per record.
        """
        server, client = await self.pair(self.server_tls(), self.client_tls())
        server.transport.pauseProducing()
        server.transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 400_000)
        frames, head, content = 10, b"h" * 8, b"x" * descriptor.RECORD_BYTES
        for _ in range(frames):
            client.transport.write(head)
            client.transport.write(content)
        while queued(client.transport):
            await turns()
        reads, read = [], server.transport.doRead
        server.transport.doRead = lambda: reads.append(1) or read()  # type: ignore[func-returns-value]
        server.transport.resumeProducing()
        received = await server.has(frames * len(head + content))
        self.assertEqual(received, (head + content) * frames)
        self.assertLess(len(reads), frames * 2 // 3)

    async def test_many_small_records(self) -> None:
        """Small records that have already arrived are delivered together."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        server.transport.pauseProducing()
        words = [b"SYN", b"_", b"STREAM", b"!"]
        for word in words:
            client.transport.write(word)
        await self.arrived(server, words)
        delivered: list[bytes] = []
        server.dataReceived = delivered.append  # type: ignore[method-assign]
        server.transport.resumeProducing()
        while not delivered:
            await turns()
        self.assertEqual(delivered, [b"".join(words)])

    async def test_small_records_without_end(self) -> None:
        """A peer that sends a byte in each record does not have the reactor to itself."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        server.transport.pauseProducing()
        sent = [b"x"] * 500
        for byte in sent:
            client.transport.write(byte)
        await self.arrived(server, sent)
        delivered: list[int] = []
        server.dataReceived = lambda data: delivered.append(len(data))  # type: ignore[method-assign]
        server.transport.resumeProducing()
        while sum(delivered) < len(sent):
            await turns()
        self.assertLess(max(delivered), 100)

    async def arrived(self, server: Recorder, sent: list[bytes]) -> None:
        """Returns when a server's kernel has all of what was sent, a record for each."""
        size = sum(len(each) + 22 for each in sent)
        plug = server.transport.socket
        while not there(plug) or len(plug.recv(2 * size, socket.MSG_PEEK)) < size:
            await turns()

    async def test_the_kernel_is_asked_for_many_records(self) -> None:
        """Available records are read with two ``ioctl`` calls, not one for each record."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        client.transport.write(b"k")
        await server.has(1)  # a call follows the handshake
        server.received = b""
        server.transport.pauseProducing()
        records, content = 5, b"x" * 4096
        for _ in range(records):
            client.transport.write(content)
        await self.arrived(server, [content] * records)
        asked: list[Any] = []

        def ask(*arguments: Any) -> Any:
            asked.append(arguments)
            return ioctl(*arguments)

        self.patch(descriptor, "ioctl", ask)
        server.transport.resumeProducing()
        self.assertEqual(await server.has(records * len(content)), content * records)
        self.assertEqual(len(asked), 2)  # behind the first, and behind the last

    async def test_part_of_a_record(self) -> None:
        """A partial record does not delay the complete records before it."""
        port, accepted = await self.accepted()
        ends = Short(), Held()
        ends[0].other, ends[1].other = reversed(ends)
        relay: Any = await self.listen(_Only(ends[0]), None)
        await connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", port), ends[1])
        client = await self.connect(relay, self.client_tls())
        server = await accepted
        ends[0].holds_back = True
        for letter in (b"a", b"b", b"c"):
            client.transport.write(letter * 4096)
        whole = await server.has(2 * 4096)
        self.assertEqual(whole, b"a" * 4096 + b"b" * 4096)
        ends[0].release()
        self.assertEqual(await server.has(3 * 4096), whole + b"c" * 4096)

    async def test_reset_at_once(self) -> None:
        """
        A reset at the start of the handshake is reported as a closed connection: a second call
        of OpenSSL would give no reason.
        """

        said: list[SSL.Error] = [SSL.SysCallError(104, "ECONNRESET")]
        real = ClientTLS.client_engine

        def reset() -> None:
            raise said.pop() if said else SSL.Error([])

        def engine(tls: ClientTLS, transport: Any, plug: socket.socket) -> SSL.Connection:
            made = real(tls, transport, plug)
            made.do_handshake = reset  # type: ignore[method-assign]
            return made

        self.patch(ClientTLS, "client_engine", engine)
        listening = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listening.close)
        port = listening.getsockname()[1]
        made = client_endpoint(reactor, "127.0.0.1", port, self.client_tls())
        connecting = made.connect(self.recorders())
        await turns()  # now it asks the kernel
        listening.accept()[0].close()
        with self.assertRaises(HandshakeError) as caught:
            await connecting
        self.assertIn("closed the connection during the TLS handshake", str(caught.exception))


class NewKeysTests(ServerCase):
    """A peer that changes its keys, which only OpenSSL's own client does."""

    skip = needs.openssl()
    starts = PROGRAMS

    async def peer(self, port: int) -> Peer:
        """OpenSSL's client, connected."""
        peer = Peer()
        arguments = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-tls1_3"]
        reactor.spawnProcess(peer, "openssl", arguments, env=os.environ)  # type: ignore[attr-defined]
        self.addCleanup(lambda: peer.ended)
        self.addCleanup(peer.transport.loseConnection)
        return peer

    async def test_new_keys(self) -> None:
        """A peer that wants new keys gets them, and both ways go on."""
        port, accepted = await self.accepted()
        peer = await self.peer(port)
        server = await accepted
        sent = b""
        for line in (b"one\n", b"two\n", b"three\n"):
            peer.transport.write(line)
            sent += line
            self.assertEqual(await server.has(len(sent)), sent)
            await peer.change_keys()
        server.transport.write(b"the answer")
        while b"the answer" not in peer.printed:
            await turns()
        peer.transport.write(b"four\n")
        self.assertEqual(await server.has(len(sent) + 5), sent + b"four\n")

    async def test_new_keys_without_end(self) -> None:
        """A peer that changes its keys all the time does not have the reactor to itself."""
        port, accepted = await self.accepted()
        peer = await self.peer(port)
        server = await accepted
        server.transport.pauseProducing()
        for _ in range(10):
            await peer.change_keys()
        peer.transport.write(b"one\n")
        reads, read = [], server.transport.doRead
        server.transport.doRead = lambda: reads.append(1) or read()  # type: ignore[func-returns-value]
        server.transport.resumeProducing()
        self.assertEqual(await server.has(4), b"one\n")
        self.assertGreaterEqual(len(reads), 10)

    async def test_new_keys_while_nothing_can_be_written(self) -> None:
        """
        An end whose socket is full reads on as soon as it can confirm the new keys.
        """
        port, accepted = await self.accepted()
        ends = Held(), Held()
        ends[0].other, ends[1].other = reversed(ends)
        relay: Any = await serverFromString(reactor, "tcp:0:interface=127.0.0.1").listen(
            _Only(ends[0])
        )
        self.addCleanup(relay.stopListening)
        await connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", port), ends[1])
        peer = await self.peer(relay.getHost().port)
        server = await accepted
        peer.transport.write(b"one\n")
        await server.has(4)
        ends[1].transport.pauseProducing()  # what the server sends stays where it is
        while not queued(server.transport):
            server.transport.write(b"x" * 65_536)
            await turns()
        await peer.change_keys()
        peer.transport.write(b"two\n")
        await turns(200)
        ends[1].transport.resumeProducing()
        self.assertEqual(await server.has(8), b"one\ntwo\n")
        peer.transport.write(b"three\n")
        self.assertEqual(await server.has(14), b"one\ntwo\nthree\n")


class _Only(Factory):
    """Makes one protocol, which there is already."""

    noisy = False

    def __init__(self, only: Protocol) -> None:
        self.only = only

    def buildProtocol(self, addr: object) -> Protocol:
        return self.only


class FreedTests(LoopbackCase):
    """Objects of a connection are freed when it ends, without the garbage collector."""

    async def engines(self, how: str) -> list[weakref.ref[Any]]:
        """OpenSSL's part of both ends of a connection that ended in some way."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        client.transport.write(b"x")
        await server.has(1)
        engines = [weakref.ref(end.transport.getHandle()) for end in (server, client)]
        getattr(client.transport, how)()
        await server.lost
        await client.lost
        return engines

    async def test_freed(self) -> None:
        """Both ends' engines are freed after loseConnection and after abortConnection."""
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        for how in ("loseConnection", "abortConnection"):
            engines = await self.engines(how)
            await turns()
            self.assertEqual([each() for each in engines], [None, None], how)

    async def test_factories(self) -> None:
        """The client factory is freed too, with or without TLS, even if the protocol is kept."""
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        for tls in (None, self.server_tls()):
            server, client = await self.pair(tls, self.client_tls() if tls else None)
            plug = transport.socket_transport(client.transport)
            made = weakref.ref(plug.connector.factory)
            client.transport.loseConnection()
            await server.lost
            await client.lost
            await turns()
            self.assertIsNone(made())
            self.assertIsNone(plug.connector.transport)


class PortTests(SynchronousTestCase):
    """How ports come to our transports."""

    def test_default_transports(self) -> None:
        """Twisted still makes server transports from ``Port.transport``."""
        self.assertIs(tcp.Port.transport, tcp.Server)
        self.assertIs(unix.Port.transport, unix.Server)
        port = tcp.Port(0, Factory(), reactor=MemoryReactorClock())
        transport.accept_unbuffered(port)
        self.assertIs(port.transport, transport.TCPServer)
