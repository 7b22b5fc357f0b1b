"""
Tests for :mod:`twisted_exec.runtimes.lines.layer`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from twisted_exec.runtimes.interfaces import CannotStart, ISharedLineTransport
from twisted_exec.runtimes.lines.layer import LayeredEndpoint, LineLayer
from twisted_exec.testing.drivers import Line


class Capitals(LineLayer):
    """Prints capitals, echoes input, and sends it in lower case; a digit is an error."""

    def dataReceived(self, data: bytes) -> None:
        self.deliver(data.upper())
        if data.isdigit():
            self.fail(ValueError("a digit"))

    def write(self, data: bytes) -> None:
        self.deliver(data)
        super().write(data.lower())


class Typist:
    """The users' input."""

    is_paused = False

    def pauseProducing(self) -> None:
        """As :meth:`IPushProducer.pauseProducing`."""
        self.is_paused = True

    def resumeProducing(self) -> None:
        """As :meth:`IPushProducer.resumeProducing`."""
        self.is_paused = False


class LayerTests(SynchronousTestCase):
    """A layer between a socket and a console."""

    def setUp(self) -> None:
        self.socket = StringTransport()
        self.line: Line = self.successResultOf(
            LayeredEndpoint(self, Capitals).connect(Factory.forProtocol(Line))  # type: ignore[arg-type]
        )
        self.layer: Capitals = self.line.transport  # type: ignore[assignment]

    def connect(self, factory: Any) -> Deferred[Any]:
        """As the endpoint below."""
        protocol = factory.buildProtocol(None)
        protocol.makeConnection(self.socket)
        return succeed(protocol)

    def test_both_ways(self) -> None:
        """Input and output pass the layer, which is a transport."""
        verifyObject(ISharedLineTransport, self.layer)
        self.layer.dataReceived(b"hello")
        self.layer.write(b"YES")
        self.assertEqual((self.line.got, self.socket.value()), (b"HELLOYES", b"yes"))

    def test_full(self) -> None:
        """Input waits while the socket is full."""
        typist = Typist()
        self.layer.registerProducer(typist, True)
        producer: Any = self.socket.producer
        producer.pauseProducing()
        self.assertTrue(typist.is_paused)
        producer.resumeProducing()
        self.assertFalse(typist.is_paused)
        self.layer.unregisterProducer()
        self.assertIsNone(self.socket.producer)

    def test_much_echo(self) -> None:
        """A user who reads nothing cannot fill the memory with an echo: input waits."""
        typist, written = Typist(), 0
        self.layer.registerProducer(typist, True)
        self.layer.pauseProducing()
        self.layer.dataReceived(b"x" * (64 << 10))  # the last read of the socket
        self.assertFalse(typist.is_paused)
        while not typist.is_paused and written < 10 << 20:
            self.layer.write(b"y" * 1024)
            written += 1024
        self.assertLess(written, 1 << 20)
        self.layer.resumeProducing()
        self.assertFalse(typist.is_paused)
        self.assertEqual(self.line.got, b"X" * (64 << 10) + b"y" * written)

    def test_echo_to_a_full_socket(self) -> None:
        """Input waits until both the console reads, and the socket takes more."""
        typist = Typist()
        self.layer.registerProducer(typist, True)
        producer: Any = self.socket.producer
        self.layer.pauseProducing()
        self.layer.write(b"y" * (1 << 20))
        self.assertTrue(typist.is_paused)
        producer.pauseProducing()
        self.layer.resumeProducing()
        self.assertTrue(typist.is_paused)
        producer.resumeProducing()
        self.assertFalse(typist.is_paused)

    def test_paused(self) -> None:
        """Output and echo wait while the console is paused; they precede the end."""
        self.layer.pauseProducing()
        self.assertEqual(self.socket.producerState, "paused")
        self.layer.dataReceived(b"out")
        self.layer.write(b"in")
        self.assertEqual(self.line.got, b"")
        self.layer.resumeProducing()
        self.assertEqual(self.socket.producerState, "producing")
        self.assertEqual(self.line.got, b"OUTin")
        self.layer.pauseProducing()
        self.layer.dataReceived(b"last")
        self.layer.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.line.got, b"OUTinLAST")
        self.assertIsInstance(self.line.lost[0], ConnectionDone)

    def test_fail(self) -> None:
        """An error aborts the connection, ends the output, and is the reason of the loss."""
        self.layer.dataReceived(b"7")
        self.assertTrue(self.socket.disconnected)
        self.layer.dataReceived(b"8")
        self.layer.connectionLost(Failure(ConnectionDone()))
        self.assertEqual((self.line.got, str(self.line.lost[0])), (b"7", "a digit"))

    def test_close(self) -> None:
        """The socket closes, at once or after pending input."""
        self.layer.loseConnection()
        self.assertTrue(self.socket.disconnecting)
        self.layer.abortConnection()
        self.assertTrue(self.socket.disconnected)


class Greeting(LineLayer):
    """Waits for ``hello`` before the console begins; a digit is an error."""

    def connectionMade(self) -> None:
        super().write(b"who are you?")

    def dataReceived(self, data: bytes) -> None:
        if data.isdigit():
            self.fail(CannotStart("Greeted", "a digit"))
            return
        _, found, rest = data.partition(b"hello")
        self.deliver(rest if found else data)
        if found:
            self.begin()


class DialogTests(SynchronousTestCase):
    """A dialog before the console."""

    def setUp(self) -> None:
        self.socket = StringTransport()
        self.line = Line()
        self.connecting: Deferred[Any] = LayeredEndpoint(self, Greeting).connect(  # type: ignore[arg-type]
            Factory.forProtocol(lambda: self.line)
        )
        self.assertNoResult(self.connecting)

    def connect(self, factory: Any) -> Deferred[Any]:
        """As the endpoint below."""
        self.layer = factory.buildProtocol(None)
        self.layer.makeConnection(self.socket)
        return succeed(self.layer)

    def test_begins(self) -> None:
        """The endpoint has connected when the layer begins the console, which gets the output behind."""
        self.assertEqual(self.socket.value(), b"who are you?")
        self.layer.dataReceived(b"hello=> ")
        self.assertIs(self.successResultOf(self.connecting), self.line)
        self.assertEqual(self.line.got, b"=> ")
        self.layer.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(len(self.line.lost), 1)

    def test_much_output_before(self) -> None:
        """Only the last output from before the console is kept: a device may print without end."""
        self.layer.deliver(b"first")
        for _ in range(10):
            self.layer.deliver(b"x" * (64 << 10))
        self.layer.deliver(b"last")
        self.layer.begin()
        self.successResultOf(self.connecting)
        self.assertEqual(self.line.got, b"x" * ((256 << 10) - 4) + b"last")

    def test_ends(self) -> None:
        """An end before, or an error of the layer, fails the endpoint."""
        self.layer.connectionLost(Failure(ConnectionDone()))
        self.failureResultOf(self.connecting, ConnectionDone)
        self.assertEqual((self.line.transport, self.line.lost), (None, []))

    def test_refused(self) -> None:
        """An error of the layer is what the endpoint fails with."""
        self.layer.dataReceived(b"7")
        self.assertTrue(self.socket.disconnected)
        self.layer.connectionLost(Failure(ConnectionDone()))
        error = self.failureResultOf(self.connecting, CannotStart).value
        self.assertEqual((error.condition, error.message), ("Greeted", "a digit"))

    def test_cancelled(self) -> None:
        """A dialog that takes too long is aborted."""
        self.connecting.cancel()
        self.failureResultOf(self.connecting, CancelledError)
        self.assertTrue(self.socket.disconnected)
        self.layer.dataReceived(b"hello")
        self.layer.connectionLost(Failure(ConnectionDone()))
        self.assertEqual((self.line.transport, self.line.lost), (None, []))
