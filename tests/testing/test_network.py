"""Tests for :mod:`twisted_exec.testing.network`."""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IConsumer, IHalfCloseableProtocol, IPushProducer, ITransport
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from twisted_exec.testing.console import RecordingProducer
from twisted_exec.testing.network import BUFFER_BYTES, MemoryNetwork


class Whole(Protocol):
    """Knows no half-close."""

    transport: Any

    def __init__(self) -> None:
        self.got = b""
        self.lost: list[Any] = []

    def dataReceived(self, data: bytes) -> None:
        self.got += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.append(reason.value)


@implementer(IHalfCloseableProtocol)
class Half(Whole):
    """Knows half-closes."""

    ended = 0

    def readConnectionLost(self) -> None:
        self.ended += 1

    def writeConnectionLost(self) -> None:
        pass


class NetworkTests(SynchronousTestCase):
    """Tests for :class:`MemoryNetwork`."""

    kind: type[Whole] = Whole

    def setUp(self) -> None:
        self.network = MemoryNetwork()
        self.client, self.server = self.kind(), self.kind()
        self.network.join(self.client, self.server)

    def lost(self) -> tuple[list[type], list[type]]:
        return [type(one) for one in self.client.lost], [type(one) for one in self.server.lost]

    def test_interfaces(self) -> None:
        """Its ends are transports."""
        for interface in (ITransport, IConsumer, IPushProducer):
            verifyObject(interface, self.client.transport)

    def test_bytes(self) -> None:
        """Bytes arrive when it is pumped, in order, both ways."""
        self.client.transport.write(b"a")
        self.client.transport.writeSequence([b"b", b"c"])
        self.server.transport.write(b"d")
        self.assertEqual(self.server.got, b"")
        self.network.pump(2)
        self.assertEqual((self.server.got, self.client.got), (b"abc", b"d"))

    def test_paused(self) -> None:
        """A paused end gets nothing, not even the end."""
        self.server.transport.pauseProducing()
        self.client.transport.write(b"a")
        self.client.transport.loseConnection()
        self.network.pump()
        self.assertEqual((self.server.got, self.server.lost), (b"", []))
        self.server.transport.resumeProducing()
        self.network.pump()
        self.assertEqual(self.server.got, b"a")
        self.assertEqual(self.lost(), ([ConnectionDone], [ConnectionDone]))

    def test_producer(self) -> None:
        """A full buffer pauses the producer, an empty one resumes it."""
        producer = RecordingProducer()
        self.client.transport.registerProducer(producer, True)
        self.client.transport.write(b"x" * BUFFER_BYTES)
        self.assertEqual(producer.calls, [])
        self.client.transport.write(b"x")
        self.assertEqual(producer.calls, ["pause"])
        self.network.pump(BUFFER_BYTES)
        self.assertEqual(producer.calls, ["pause", "resume"])

    def test_close_waits_for_the_producer(self) -> None:
        """As on a socket, a registered paused producer keeps the connection open."""
        producer = RecordingProducer()
        self.server.transport.pauseProducing()
        self.client.transport.registerProducer(producer, True)
        self.client.transport.write(b"x" * (BUFFER_BYTES + 1))
        self.client.transport.loseConnection()
        self.client.transport.write(b"dropped")
        self.network.pump()
        self.assertEqual(self.lost(), ([], []))
        self.client.transport.unregisterProducer()
        self.server.transport.resumeProducing()
        self.network.pump()
        self.assertEqual(self.lost(), ([ConnectionDone], [ConnectionDone]))
        self.assertEqual(len(self.server.got), BUFFER_BYTES + 1)

    def test_abort(self) -> None:
        """An abort discards, and is seen as such."""
        self.client.transport.write(b"x")
        self.client.transport.registerProducer(producer := RecordingProducer(), True)
        self.client.transport.abortConnection()
        self.client.transport.abortConnection()
        self.network.pump()
        self.assertEqual(self.lost(), ([ConnectionAborted], [ConnectionLost]))
        self.assertEqual((self.server.got, producer.calls), (b"", ["stop"]))

    def test_write_to_the_dead(self) -> None:
        """Bytes for an end that is gone are answered with a reset."""
        self.server.transport.pauseProducing()
        self.client.transport.abortConnection()
        self.network.pump()
        self.assertEqual(self.server.lost, [])
        self.server.transport.write(b"x")
        self.network.pump()
        self.assertEqual(self.lost()[1], [ConnectionLost])

    def test_late_producer(self) -> None:
        """A producer for a lost end is stopped at once."""
        self.client.transport.abortConnection()
        self.client.transport.registerProducer(producer := RecordingProducer(), True)
        self.assertEqual(producer.calls, ["stop"])

    def test_encrypted(self) -> None:
        """An encrypted connection ends for both directions at once."""
        client, server = self.kind(), self.kind()
        self.network.join(client, server, encrypted=True)
        client.transport.write(b"x")
        client.transport.loseConnection()
        self.network.pump()
        self.assertEqual((server.got, [type(one) for one in server.lost]), (b"x", [ConnectionDone]))

    def test_endpoint(self) -> None:
        """Factories meet at an endpoint."""
        servers: list[Whole] = []

        def build() -> Whole:
            servers.append(self.kind())
            return servers[-1]

        endpoint = self.network.endpoint(Factory.forProtocol(build))
        client = self.successResultOf(endpoint.connect(Factory.forProtocol(self.kind)))
        client.transport.write(b"hello")
        self.network.pump()
        self.assertEqual(servers[0].got, b"hello")

    def test_restless(self) -> None:
        """Pumping protocols that never stop sending fails after the given turns."""

        class Echo(Whole):
            def dataReceived(self, data: bytes) -> None:
                self.transport.write(data)

        self.network.join(client := Echo(), Echo())
        client.transport.write(b"x")
        with self.assertRaises(AssertionError):
            self.network.pump(turns=100)


class HalfCloseTests(NetworkTests):
    """The same with ends that know half-closes, and more."""

    kind = Half

    def test_paused(self) -> None:
        """A paused end gets nothing, not even the end."""
        self.server.transport.pauseProducing()
        self.client.transport.loseWriteConnection()
        self.network.pump()
        self.assertEqual(self.server.ended, 0)
        self.server.transport.resumeProducing()
        self.network.pump()
        self.assertEqual(self.server.ended, 1)

    def test_close_waits_for_the_producer(self) -> None:
        """A half-close goes one way; the other goes on."""
        self.client.transport.write(b"question")
        self.client.transport.loseWriteConnection()
        self.client.transport.write(b"dropped")
        self.network.pump()
        self.assertEqual((self.server.got, self.server.ended), (b"question", 1))
        self.server.transport.write(b"answer")
        self.server.transport.loseConnection()
        self.network.pump()
        self.assertEqual((self.client.got, self.client.ended), (b"answer", 1))
        self.client.transport.loseConnection()
        self.network.pump()
        self.assertEqual(self.lost(), ([ConnectionDone], [ConnectionDone]))
