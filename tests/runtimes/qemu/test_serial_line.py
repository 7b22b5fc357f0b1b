"""
Tests for :mod:`twisted_exec.runtimes.qemu.serial`.
"""

from __future__ import annotations

from twisted.internet.error import ConnectionLost
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.qemu.serial import QemuSerialLine, QemuSerialPort
from twisted_exec.testing.drivers import Line


class Typist:
    """A producer that counts."""

    def __init__(self) -> None:
        self.flows: list[bool] = []

    def pauseProducing(self) -> None:
        self.flows.append(False)

    def resumeProducing(self) -> None:
        self.flows.append(True)

    def stopProducing(self) -> None:
        """It has nothing to stop."""


class SerialLineTests(SynchronousTestCase):
    """Tests for :class:`QemuSerialLine`."""

    def setUp(self) -> None:
        self.lost = 0
        self.line = QemuSerialLine(self.count)
        self.protocol = Line()
        self.port = self.connect(self.protocol)

    def count(self) -> None:
        self.lost += 1

    def connect(self, protocol: Line | None = None) -> StringTransport:
        port, transport = QemuSerialPort(self.line), StringTransport()
        self.socket = port
        port.makeConnection(transport)
        self.line.join(port, protocol)
        return transport

    def lose(self) -> None:
        self.socket.connectionLost(Failure(ConnectionLost()))

    def test_both_ways(self) -> None:
        """It carries what is typed and what is printed."""
        self.protocol.transport.write(b"a")  # type: ignore[union-attr]
        self.socket.dataReceived(b"b")
        self.assertEqual((self.port.value(), self.protocol.got), (b"a", b"b"))

    def test_break(self) -> None:
        """Input waits until QEMU has carried out all BREAKs, or the line is closed."""
        typist = Typist()
        self.line.registerProducer(typist, True)
        self.line.break_begins()
        self.line.break_begins()
        self.line.write(b"a")
        self.assertEqual(self.line.break_ends("answer"), "answer")
        self.line.write(b"b")
        self.assertEqual((self.port.value(), typist.flows[-1]), (b"", False))
        self.line.break_ends(None)
        self.line.write(b"c")
        self.assertEqual((self.port.value(), typist.flows[-1]), (b"abc", True))
        self.line.break_begins()
        self.line.write(b"d")
        self.line.loseConnection()
        self.assertEqual(self.port.value(), b"abcd")

    def test_again(self) -> None:
        """A new connection continues with the same protocol; input waits in between."""
        typist = Typist()
        self.line.registerProducer(typist, True)
        self.lose()
        self.assertEqual((self.lost, typist.flows), (1, [False]))
        self.line.write(b"nowhere")
        again = self.connect()
        self.assertEqual(typist.flows, [False, True])
        self.assertIs(again.producer, typist)
        self.line.write(b"here")
        self.socket.dataReceived(b"b")
        self.assertEqual((again.value(), self.protocol.got), (b"here", b"b"))
        self.assertEqual(self.protocol.lost, [])

    def test_paused(self) -> None:
        """A line that was paused is paused after a new connection, too."""
        self.line.pauseProducing()
        self.lose()
        self.assertEqual(self.connect().producerState, "paused")

    def test_end(self) -> None:
        """It ends once."""
        self.line.end(Failure(ConnectionLost()))
        self.line.end(Failure(ConnectionLost()))
        self.assertEqual(len(self.protocol.lost), 1)
        self.assertFalse(self.line.is_open)

    def test_closed_without_connection(self) -> None:
        """Closed while its socket is away, it ends at once."""
        self.lose()
        self.line.loseConnection()
        self.assertEqual(len(self.protocol.lost), 1)

    def test_closed(self) -> None:
        """Closed from this side, the socket is closed."""
        self.line.loseConnection()
        self.assertTrue(self.port.disconnecting)
        self.assertFalse(self.line.is_open)
