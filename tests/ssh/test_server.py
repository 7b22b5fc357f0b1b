"""
Tests for ``twisted_exec.ssh.server`` and ``twisted_exec.ssh.channel``, with a client of Conch.
"""

from __future__ import annotations

import struct
from typing import Any

from twisted.internet.task import Clock
from twisted.test.iosim import FakeTransport, connect
from twisted.trial.unittest import SynchronousTestCase

from tests import needs

if (skip := needs.conch()) is None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from twisted.conch.ssh.channel import SSHChannel
    from twisted.conch.ssh.common import NS
    from twisted.conch.ssh.session import packRequest_pty_req, packRequest_window_change

    from tests.ssh.client import Client
    from twisted_exec.ssh.channel import (
        INPUT_BYTES,
        NO_FORWARDING,
        ChannelEnd,
        PseudoTerminal,
        SessionChannel,
        SessionRequest,
    )
    from twisted_exec.ssh.connection import MOST_SESSIONS
    from twisted_exec.ssh.server import OneConnection
    from twisted_exec.wire.resize import TerminalSize

    class ClientChannel(SSHChannel):
        """
        Keeps what it gets.

        :ivar answers: of the requests, by name.
        """

        name = b"session"

        def __init__(self, **more: Any) -> None:
            super().__init__(**more)
            self.output, self.errors, self.codes = b"", b"", list[int]()
            self.problem: Any = None
            self.is_open = self.is_over = False

        def channelOpen(self, specificData: bytes) -> None:
            self.is_open = True

        def openFailed(self, reason: Any) -> None:
            self.problem = reason

        def dataReceived(self, data: bytes) -> None:
            self.output += data

        def extReceived(self, dataType: int, data: bytes) -> None:
            self.errors += data

        def request_exit_status(self, data: bytes) -> None:
            self.codes.append(struct.unpack(">L", data)[0])

        def closed(self) -> None:
            self.is_over = True

    class End(ChannelEnd):
        """Records the events of a session."""

        def __init__(self) -> None:
            self.events: list[object] = []
            self.input = b""

        def received(self, data: bytes) -> None:
            self.input += data

        def input_ended(self) -> None:
            self.events.append("input ended")

        def resized(self, size: TerminalSize) -> None:
            self.events.append(size)

        def break_requested(self) -> None:
            self.events.append("break")

        def full(self) -> None:
            self.events.append("full")

        def drained(self) -> None:
            self.events.append("drained")

        def hung_up(self) -> None:
            self.events.append("hung up")


class ServerCase(SynchronousTestCase):
    """A client that is logged in."""

    skip = skip

    def setUp(self) -> None:
        self.clock = Clock()
        self.begun: list[tuple[SessionChannel, SessionRequest, End]] = []
        self.factory = OneConnection(Ed25519PrivateKey.generate(), self, self.clock)
        self.server, self.client = self.factory.buildProtocol(None), Client()
        self.pump = connect(
            self.server,
            FakeTransport(self.server, isServer=True),
            self.client,
            FakeTransport(self.client, isServer=False),
        )
        self.addCleanup(self.client.transport.loseConnection)
        self.pump.flush()

    def begin(self, channel: SessionChannel, request: SessionRequest) -> ChannelEnd:
        end = End()
        self.begun.append((channel, request, end))
        return end

    def open(self, channel: ClientChannel, extra: bytes = b"") -> ClientChannel:
        self.client.connection.openChannel(channel, extra)
        self.pump.flush()
        return channel

    def ask(self, channel: ClientChannel, kind: bytes, data: bytes = b"") -> bool:
        """Send a request; return whether it was granted."""
        answers: list[bool] = []
        asking = self.client.connection.sendRequest(channel, kind, data, wantReply=1)
        asking.addCallbacks(lambda _: answers.append(True), lambda _: answers.append(False))
        self.pump.flush()
        self.clock.advance(0)
        self.pump.flush()
        [answer] = answers
        return answer

    def session(self, **more: Any) -> tuple[ClientChannel, SessionChannel, End]:
        """Return both ends of a channel with a shell."""
        client = self.open(ClientChannel(**more))
        self.assertTrue(self.ask(client, b"shell"))
        channel, _, end = self.begun[-1]
        return client, channel, end


class RequestTests(ServerCase):
    """What a client may ask for."""

    def test_session(self) -> None:
        """A session has what was asked before it, and ends with its exit code."""
        client = self.open(ClientChannel())
        pty = packRequest_pty_req(b"xterm", (30, 100, 0, 0), b"")
        for kind, data in (
            (b"pty-req", pty),
            (b"env", NS(b"EXEC_REASON") + NS("Prüfung".encode())),
            (b"exec", NS(b"run true")),
        ):
            self.assertTrue(self.ask(client, kind, data))
        [(channel, request, end)] = self.begun
        terminal = PseudoTerminal("xterm", TerminalSize(100, 30))
        self.assertEqual(request, SessionRequest("run true", terminal, {"EXEC_REASON": "Prüfung"}))
        self.assertTrue(self.ask(client, b"break", struct.pack(">L", 1000)))
        size = packRequest_window_change((43, 132, 0, 0))
        self.assertTrue(self.ask(client, b"window-change", size))
        client.write(b"ls\r")
        channel.write(b"bin\r\n")
        channel.tell("bye")
        channel.finish(7)
        self.pump.flush()
        self.assertEqual(end.events, ["break", TerminalSize(132, 43), "hung up"])
        self.assertEqual(
            (end.input, client.output, client.errors), (b"ls\r", b"bin\r\n", b"bye\r\n")
        )
        self.assertEqual((client.codes, client.is_over), ([7], True))

    def test_early_input(self) -> None:
        """Input and requests right behind the request for a session are for that."""
        client = self.open(ClientChannel())
        pty = packRequest_pty_req(b"xterm", (30, 100, 0, 0), b"")
        size = packRequest_window_change((43, 132, 0, 0))
        self.client.connection.sendRequest(client, b"pty-req", pty)
        client.write(b"before")
        self.client.connection.sendRequest(client, b"shell", b"")
        self.client.connection.sendRequest(client, b"window-change", size)
        client.write(b"ls\r")
        self.client.connection.sendEOF(client)
        self.pump.flush()
        self.clock.advance(0)
        [(_, _, end)] = self.begun
        self.assertEqual(end.input, b"ls\r")
        self.assertEqual(end.events, [TerminalSize(132, 43), "input ended"])

    def test_refused(self) -> None:
        """Other requests, and malformed ones, are refused; the connection goes on."""
        client = self.open(ClientChannel())
        for kind, data in (
            (b"auth-agent-req@openssh.com", b""),
            (b"x11-req", b""),
            (b"env", NS(b"LD_PRELOAD") + NS(b"/x.so")),
            (b"env", NS(b"LC_ALL") + NS(b"C")),
            (b"env", NS(b"TERM") + NS(b"x" * 5000)),
            (b"env", NS(b"TERM") + NS(b"\xff")),
            (b"env", b"\xff\xff\xff\xff"),
            (b"pty-req", b"\x00"),
            (b"exec", b""),
            (b"window-change", packRequest_window_change((43, 132, 0, 0))),
            (b"break", struct.pack(">L", 1000)),
            (b"Received", b""),
            (b"\xff", b""),
        ):
            self.assertFalse(self.ask(client, kind, data), kind)
        self.assertEqual(self.begun, [])
        self.assertTrue(self.ask(client, b"shell"))
        self.assertFalse(self.ask(client, b"shell"))
        lines = client.errors.decode().splitlines()
        self.assertEqual(
            [each.partition(":")[0] for each in lines],
            [
                "forwarding of the ssh agent is refused",
                "forwarding of X11 is refused",
                'the variable "LD_PRELOAD" is refused',
            ],
        )

    def test_subsystem(self) -> None:
        """A subsystem ends at once, with a sentence and a failure: ssh prints nothing of one that is refused."""
        client = self.open(ClientChannel())
        self.assertTrue(self.ask(client, b"subsystem", NS(b"sf\x1btp")))
        self.assertIn(b'there is no subsystem "sf?tp": ', client.errors)
        self.assertEqual((client.codes, client.is_over, self.begun), ([1], True, []))

    def test_sizes(self) -> None:
        """A size that no terminal has is no size."""
        client = self.open(ClientChannel())
        self.ask(client, b"pty-req", packRequest_pty_req(b"", (0, 0, 0, 0), b""))
        self.ask(client, b"shell")
        [(_, request, end)] = self.begun
        self.assertEqual(request.terminal, PseudoTerminal("", None))
        for rows, columns in ((0, 0), (1 << 31, 80), (24, 1 << 16)):
            self.ask(client, b"window-change", packRequest_window_change((rows, columns, 0, 0)))
        self.assertEqual(end.events, [])

    def test_forwarding(self) -> None:
        """No port is forwarded, in either direction."""
        client = ClientChannel()
        client.name = b"direct-tcpip"
        self.open(client, NS(b"10.0.0.1") + struct.pack(">L", 22) + NS(b"") + struct.pack(">L", 1))
        self.assertIn(NO_FORWARDING, str(client.problem))
        answer = self.client.connection.sendGlobalRequest(
            b"tcpip-forward", NS(b"") + struct.pack(">L", 2222), wantReply=1
        )
        self.pump.flush()
        self.failureResultOf(answer)

    def test_many_sessions(self) -> None:
        """A connection has a bounded number of sessions at a time."""
        channels = [self.open(ClientChannel()) for _ in range(MOST_SESSIONS + 1)]
        self.assertEqual([each.is_open for each in channels], [True] * MOST_SESSIONS + [False])
        self.assertIn(f"at most {MOST_SESSIONS} sessions", str(channels[-1].problem))
        channels[0].loseConnection()
        self.pump.flush()
        self.assertTrue(self.open(ClientChannel()).is_open)

    def test_small_packets(self) -> None:
        """A channel of a client that wants very small packets is refused: each costs much."""
        client = self.open(ClientChannel(localMaxPacket=1023))
        self.assertIn("at least 1024 bytes", str(client.problem))

    def test_beyond_window(self) -> None:
        """A client that sends more than its window is not served any longer."""
        for size in (INPUT_BYTES + 1, 2**32 - 1):
            client = self.open(ClientChannel())
            client.write(b"x" * 100)
            self.pump.flush()
            number = struct.pack(">L", client.conn.channelsToRemoteChannel[client])
            self.client.sendPacket(94, number + struct.pack(">L", size) + b"x")
            self.pump.flush()
            self.assertTrue(self.client.is_lost)
            self.setUp()

    def test_lost(self) -> None:
        """The end of the connection hangs up all sessions."""
        ends = [self.session()[2] for _ in range(2)]
        lost = self.factory.lost
        self.assertNoResult(lost)
        self.client.transport.loseConnection()
        self.pump.flush()
        self.assertEqual([each.events for each in ends], [["hung up"]] * 2)
        self.assertIsNone(self.successResultOf(lost))


class FlowTests(ServerCase):
    """A peer that takes nothing."""

    def test_slow_reader(self) -> None:
        """Output beyond the client's window waits, and the session knows when to go on."""
        client, channel, end = self.session(localWindow=1000)
        self.client.connection.adjustWindow = lambda *_: None  # type: ignore[method-assign]
        channel.write(b"x" * 600)
        channel.write(b"y" * 600)
        self.pump.flush()
        self.assertEqual((end.events, channel.is_full, len(client.output)), (["full"], True, 1000))
        del self.client.connection.adjustWindow
        self.client.connection.adjustWindow(client, 1000)
        self.pump.flush()
        self.assertEqual((end.events, channel.is_full), (["full", "drained"], False))
        self.assertEqual(client.output, b"x" * 600 + b"y" * 600)

    def test_gone_reader(self) -> None:
        """A client that leaves with output unread ends the session."""
        client, channel, end = self.session(localWindow=1000)
        channel.write(b"x" * 2000)
        client.loseConnection()
        self.pump.flush()
        self.assertEqual((end.events, client.is_over), (["full", "hung up"], True))
        channel.write(b"x")
        channel.tell("x")
        channel.finish(0)
        self.pump.flush()

    def test_slow_session(self) -> None:
        """Input stops at the window while the session takes none, and none of it is lost."""
        client, channel, end = self.session()
        content = bytes(range(256)) * 1000
        channel.pauseProducing()
        client.write(content)
        self.pump.flush()
        self.assertEqual(end.input, content[:INPUT_BYTES])
        channel.resumeProducing()
        self.pump.flush()
        self.assertEqual(end.input, content)
