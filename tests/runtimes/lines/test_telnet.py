"""
Tests for :mod:`twisted_exec.runtimes.lines.telnet`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.lines.telnet import TelnetEndpoint, TelnetLine
from twisted_exec.streaming.interfaces import TerminalSize
from twisted_exec.testing.drivers import Line
from twisted_exec.wire.com_port import LineSettings
from twisted_exec.wire.errors import RemoteProtocolError

IAC, DONT, DO, WONT, WILL, SB, BREAK, SE = 255, 254, 253, 252, 251, 250, 243, 240
ASKED = bytes((IAC, WILL, 0, IAC, WILL, 3, IAC, DO, 0, IAC, DO, 3))


def com_port(*numbers: int) -> bytes:
    return bytes((IAC, SB, 44, *numbers, IAC, SE))


class Socket(StringTransport):
    """A socket whose other end is the test."""

    def abortConnection(self) -> None:
        self.aborting = True

    aborting = False


class TelnetCase(SynchronousTestCase):
    """One connection, of a port with or without RFC 2217."""

    settings: LineSettings | None = None

    def setUp(self) -> None:
        self.clock = Clock()
        self.notes: list[tuple[str, str, str]] = []
        self.socket = Socket()
        endpoint = TelnetEndpoint(
            self,  # type: ignore[arg-type]
            self.clock,
            lambda *arguments: self.notes.append(arguments),
            self.settings,
        )
        self.line = self.successResultOf(endpoint.connect(Factory.forProtocol(Line)))
        self.telnet: TelnetLine = self.line.transport

    def connect(self, factory: Any) -> Deferred[Any]:
        """As the endpoint below."""
        protocol = factory.buildProtocol(None)
        protocol.makeConnection(self.socket)
        return succeed(protocol)

    def sent(self) -> bytes:
        data: bytes = self.socket.value()
        self.socket.clear()
        return data

    def hear(self, *data: bytes) -> None:
        for piece in data:
            self.telnet.dataReceived(piece)


class PlainTests(TelnetCase):
    """Telnet without RFC 2217."""

    def test_text(self) -> None:
        """All bytes pass; options are negotiated first."""
        self.assertEqual(self.sent(), ASKED)
        self.hear(b"a\xff\xff", b"b")
        self.assertEqual(self.line.got, b"a\xffb")
        self.telnet.write(b"c\xff\r")
        self.assertEqual(self.sent(), b"c\xff\xff\r\0")

    def test_break(self) -> None:
        """Telnet's own."""
        self.sent()
        self.telnet.send_break(300)
        self.assertEqual(self.sent(), bytes((IAC, BREAK)))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_size(self) -> None:
        """The size is sent if the server requests it."""
        self.telnet.window_changed(TerminalSize(80, 24))
        self.sent()
        self.hear(bytes((IAC, DO, 31)))
        self.assertEqual(self.sent(), bytes((IAC, WILL, 31, IAC, SB, 31, 0, 80, 0, 24, IAC, SE)))

    def test_no_telnet(self) -> None:
        """A server that does not speak telnet is disconnected after its output, with the reason."""
        self.hear(b"text\xff\x01more", b"and more")
        self.assertEqual(self.line.got, b"text")
        self.assertTrue(self.socket.aborting)
        self.telnet.connectionLost(Failure(ConnectionDone()))
        (lost,) = self.line.lost
        self.assertIsInstance(lost, RemoteProtocolError)

    def test_lost(self) -> None:
        """An ordinary end is one."""
        self.telnet.connectionLost(Failure(ConnectionDone()))
        self.assertIsInstance(self.line.lost[0], ConnectionDone)

    def test_commands_without_end(self) -> None:
        """Commands cost more than text: after so many the socket rests, and then goes on."""
        self.hear(bytes((IAC, 241)) * 5000)
        self.assertEqual(self.socket.producerState, "paused")
        self.clock.advance(10)
        self.assertEqual(self.socket.producerState, "producing")

    def test_paused(self) -> None:
        """Pauses by the session and by the rate limit are independent."""
        self.telnet.pauseProducing()
        self.hear(bytes((IAC, 241)) * 5000)
        self.clock.advance(10)
        self.assertEqual(self.socket.producerState, "paused")
        self.telnet.resumeProducing()
        self.assertEqual(self.socket.producerState, "producing")

    def test_closed(self) -> None:
        """It closes its socket, after what is still to be sent, or at once."""
        self.telnet.loseConnection()
        self.assertTrue(self.socket.disconnecting)
        self.assertIsNone(self.socket.producer)
        self.telnet.abortConnection()
        self.assertTrue(self.socket.aborting)


class Typist:
    """A producer that types into the line."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def pauseProducing(self) -> None:
        self.told.append("pause")

    def resumeProducing(self) -> None:
        self.told.append("resume")


class SerialTests(TelnetCase):
    """A port with RFC 2217."""

    settings = LineSettings(115200, flow="rtscts")

    def agree(self) -> None:
        self.sent()
        self.hear(bytes((IAC, DO, 44)))

    def test_settings(self) -> None:
        """The line is set as soon as the other end agrees; an answer as asked needs no words."""
        self.assertEqual(self.sent(), ASKED[:6] + bytes((IAC, WILL, 44)) + ASKED[6:])
        self.hear(bytes((IAC, DO, 44)))
        sent = self.sent()
        self.assertIn(com_port(1, 0, 1, 0xC2, 0), sent)
        self.assertIn(com_port(5, 3), sent)
        self.hear(com_port(101, 0, 1, 0xC2, 0), com_port(100, 65))
        self.assertEqual(self.notes, [])

    def test_other_settings(self) -> None:
        """Different settings of the server become an Event."""
        self.agree()
        self.hear(com_port(101, 0, 0, 0x25, 0x80))
        ((kind, reason, message),) = self.notes
        self.assertEqual((kind, reason), ("Warning", "OtherSettings"))
        self.assertIn("9600, not to 115200", message)

    def test_refused(self) -> None:
        """A server without RFC 2217 is reported and used without it."""
        self.sent()
        self.hear(bytes((IAC, DONT, 44)))
        self.assertEqual([reason for _, reason, _ in self.notes], ["NoSerialSettings"])
        self.telnet.send_break(100)
        self.assertEqual(self.sent(), bytes((IAC, BREAK)))

    def test_flood(self) -> None:
        """A server that negotiates endlessly causes one Event of each kind."""
        self.agree()
        self.sent()
        for _ in range(100):
            self.hear(com_port(101, 0, 0, 0x25, 0x80), com_port(102, 7))
            self.hear(bytes((IAC, DONT, 44, IAC, DO, 44)))
        self.assertEqual(
            [reason for _, reason, _ in self.notes],
            ["OtherSettings", "OtherSettings", "NoSerialSettings"],
        )
        self.assertLess(len(self.sent()), 200)

    def test_break(self) -> None:
        """It lasts as long as asked, and one at a time."""
        self.agree()
        self.sent()
        self.telnet.send_break(300)
        self.telnet.send_break(300)
        self.assertEqual(self.sent(), com_port(5, 5))
        self.clock.advance(0.29)
        self.assertEqual(self.sent(), b"")
        self.clock.advance(0.01)
        self.assertEqual(self.sent(), com_port(5, 6))

    def test_lost_in_a_break(self) -> None:
        """Its end is not sent into a connection that is gone."""
        self.agree()
        self.telnet.send_break(300)
        self.telnet.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_withdrawn_in_a_break(self) -> None:
        """A server that withdraws RFC 2217 gets no more of its commands."""
        self.agree()
        self.telnet.send_break(300)
        self.hear(bytes((IAC, DONT, 44)))
        self.sent()
        self.clock.advance(1)
        self.assertEqual(self.sent(), b"")

    def test_suspended(self) -> None:
        """Input waits while the server asks for silence, and while the socket is full."""
        self.agree()
        typist = Typist()
        self.hear(com_port(108))
        self.telnet.registerProducer(typist, True)
        self.assertEqual(typist.told, ["pause"])
        producer: Any = self.socket.producer
        producer.pauseProducing()
        self.hear(com_port(109))
        self.assertEqual(typist.told[-1], "pause")
        producer.resumeProducing()
        self.assertEqual(typist.told[-1], "resume")
        count = len(typist.told)
        self.telnet.unregisterProducer()
        self.hear(com_port(108))
        producer.stopProducing()
        self.assertEqual(len(typist.told), count)

    def test_carrier(self) -> None:
        """The loss of the carrier is reported, but not each time when it flickers."""
        self.agree()
        for _ in range(100):
            self.hear(com_port(107, 0x08), com_port(107, 0x88))
        self.clock.advance(11)
        self.hear(com_port(107, 0x88))
        self.assertEqual(
            [message for _, _, message in self.notes],
            ["the carrier (DCD) of the line is off", "the carrier (DCD) of the line is on"],
        )
