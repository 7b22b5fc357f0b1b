"""What both sides of a translated session get."""

from __future__ import annotations

from typing import Any

from tests.streaming.remotecommand.translating import TranslateTestCase
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    INTERNAL,
    LINE_LOST,
    Break,
    Ending,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY
from twisted_exec.streaming.remotecommand.server import READ_ONLY
from twisted_exec.streaming.remotecommand.translate import LOST
from twisted_exec.testing.console import EchoAttachment, RecordingAttachment
from twisted_exec.testing.network import BUFFER_BYTES
from twisted_exec.wire.channel import V1, V4, V5


class TalkTests(TranslateTestCase):
    """Traffic between a version 5 client and a SPDY next hop."""

    def test_both_ways(self) -> None:
        """Input, output, sizes, counted as they are without framing."""
        client = self.open()
        client.resize(TerminalSize(80, 24))
        client.write(b"ls\n")
        self.attachment.transport.write(b"file\n")
        self.network.pump()
        self.assertEqual(self.attachment.sizes, [TerminalSize(80, 24)])
        self.assertEqual((self.attachment.received, self.user.received), (b"ls\n", b"file\n"))
        self.attachment.transport.end(Ending(COMPLETED))
        last = self.over("backend closed")
        self.assertEqual((last["bytes_to_machine"], last["bytes_to_user"]), (3, 5))
        self.assertEqual((last["session"], last["machine"]), ("s-1", "vm"))

    def test_early_output(self) -> None:
        """Output that the machine sends at once is not lost."""
        self.foreign.make = lambda: RecordingAttachment(greeting=b"login: ")
        self.open()
        self.assertEqual(self.user.received, b"login: ")

    def test_over_at_once(self) -> None:
        """Output and exit code of a session that ends at once are not lost."""

        class Short(RecordingAttachment):
            def attached(self, transport: Any) -> None:
                super().attached(transport)
                transport.write(b"bye")
                transport.end(Ending(COMPLETED, exit_code=3))

        self.foreign.make = Short
        self.open()
        self.assertEqual(self.user.received, b"bye")
        self.assertEqual([each.exit_code for each in self.user.endings], [3])
        self.over("backend closed")

    def test_wishes(self) -> None:
        """A BREAK and a role pass as sizes do, in order with what is typed."""
        client = self.open()
        client.resize(TerminalSize(80, 24))
        client.write(b"a")
        client.wish(Break(300))
        client.write(b"b")
        client.wish(Role.WRITER)
        self.network.pump()
        self.assertEqual(self.attachment.received, b"ab")
        self.assertEqual(self.attachment.wishes, [Break(300), Role.WRITER])
        self.assertEqual(self.attachment.sizes, [TerminalSize(80, 24)])

    def test_looking_on(self) -> None:
        """readOnly is enforced at this hop, independently of the next one."""
        client = self.open(path=b"/x?stdin=true&stdout=true&tty=true&readOnly=true")
        client.resize(TerminalSize(80, 24))
        client.wish(Break())
        client.wish(Role.WRITER)
        client.write(b"rm")
        client.write(b" -rf /\n")
        self.attachment.transport.write(b"seen")
        self.network.pump()
        self.assertEqual((self.attachment.received, self.attachment.sizes), (b"", []))
        self.assertEqual(self.attachment.wishes, [])
        self.assertEqual(self.user.received.count(READ_ONLY.output), 1)
        self.assertIn(b"seen", self.user.received)

    def test_no_input_asked(self) -> None:
        """Without stdin=true, input is dropped silently; terminal sizes still count."""
        client = self.open(path=b"/x?stdout=true&tty=true")
        client.resize(TerminalSize(80, 24))
        client.write(b"typed")
        self.network.pump()
        self.assertEqual((self.attachment.received, self.user.received), (b"", b""))
        self.assertEqual(self.attachment.sizes, [TerminalSize(80, 24)])

    def test_end_of_input(self) -> None:
        """The end of input passes; output goes on, then comes the status."""
        self.foreign.make = EchoAttachment
        client = self.open()
        client.write(b"hello")
        client.end_input()
        self.network.pump()
        self.assertEqual(self.attachment.input_ends, 1)
        self.assertEqual(self.user.received, b"hello")
        self.assertEqual(self.user.endings, [Ending(COMPLETED)])
        self.over("backend closed")

    def test_endings(self) -> None:
        """The user gets reason, exit code and message of the machine's ending."""
        for ending in (
            Ending(COMPLETED),
            Ending(COMPLETED, "the process ended with exit code 7", 7),
            Ending(LINE_LOST, "the line is lost"),
            Ending(INTERNAL, "error executing command"),
        ):
            self.start()
            self.open()
            self.attachment.transport.write(b"last words")
            self.attachment.transport.end(ending)
            self.network.pump()
            self.assertEqual(self.user.received, b"last words")
            (told,) = self.user.endings
            self.assertEqual((told.reason, told.exit_code), (ending.reason, ending.exit_code))
            self.assertIn(ending.message, told.message)
            self.over("backend closed")

    def test_much(self) -> None:
        """Large transfers in both directions arrive complete before the end."""
        self.foreign.make = EchoAttachment
        client = self.open()
        data = bytes(range(256)) * 4096
        client.write(data)
        client.end_input()
        self.over("backend closed")
        self.assertEqual(self.user.received, data)
        self.assertEqual(self.user.endings, [Ending(COMPLETED)])


class PaceTests(TranslateTestCase):
    """Flow control between the two sides."""

    def test_slow_user(self) -> None:
        """A user who does not read pauses the machine's writer and loses no output."""
        client = self.open()
        client.pause_output()
        data = bytes(range(256)) * 4096
        sent = 0
        while sent < len(data):
            self.attachment.transport.write(data[sent : sent + 16384])
            sent += 16384
            self.network.pump()
        ours = self.proxy_ends()
        self.assertLess(max(len(each.queued) for each in ours), 2 * BUFFER_BYTES + 40000)
        self.assertEqual(self.user.received, b"")
        client.resume_output()
        self.network.pump()
        self.assertEqual(self.user.received, data)

    def proxy_ends(self) -> list[Any]:
        """The transports that the proxy writes to."""
        theirs = self.foreign.carrier.transport
        client = self.user.stream.carrier.transport
        return [each for each in self.network.transports if each not in (theirs, client)]

    def test_slow_machine(self) -> None:
        """
        Input is kept up to a limit while the machine takes none, and pings are answered
        as long; beyond that the user is not read, and nothing is lost.
        """
        client = self.open()
        theirs = self.foreign.carrier.transport
        theirs.pauseProducing()
        data = bytes(range(256)) * 4096
        client.write(data[:131072])
        self.network.pump()
        pongs: list[bool] = []
        self.patch(client, "pong_received", lambda: pongs.append(True))
        client.carrier.ping()
        self.network.pump()
        self.assertEqual(len(pongs), 1)
        client.write(data[131072:])
        self.network.pump()
        limit = (256 << 10) + 2 * BUFFER_BYTES + 40000
        self.assertLess(max(len(each.queued) for each in self.proxy_ends()), limit)
        client.carrier.socket.sendPing()
        self.network.pump()
        self.assertEqual(len(pongs), 1)
        theirs.resumeProducing()
        self.network.pump()
        self.assertEqual(self.attachment.received, data)
        self.assertEqual(len(pongs), 2)


class ReversedTests(TalkTests):
    """SPDY before, a WebSocket of version 5 behind."""

    protocols = (OVER_SPDY,)

    def start(self, **more: Any) -> None:
        super().start(speaks=(V5, V4), spdy=False, **more)


class TextTests(TranslateTestCase):
    """A user of version 1, which has no Status, before SPDY."""

    protocols = (V1,)

    def start(self, **more: Any) -> None:
        super().start(speaks=(), **more)

    def test_failure(self) -> None:
        """A failure reaches the user as its text with the reason INTERNAL."""
        self.open()
        self.attachment.transport.end(Ending(LINE_LOST, "the line is lost"))
        self.network.pump()
        self.assertEqual(self.user.endings, [Ending(INTERNAL, "the line is lost")])
        self.over("backend closed")

    def test_success(self) -> None:
        """Version 1 reports success without a text."""
        self.open()
        self.attachment.transport.write(b"bye")
        self.attachment.transport.end(Ending(COMPLETED))
        self.network.pump()
        self.assertEqual((self.user.received, self.user.endings), (b"bye", [Ending(COMPLETED)]))
        self.over("backend closed")

    def test_lost(self) -> None:
        """A lost connection is a failure here as well."""
        self.open()
        self.attachment.transport.cut()
        self.network.pump()
        self.assertEqual(self.user.endings, [Ending(INTERNAL, LOST)])


class OlderTests(TranslateTestCase):
    """A WebSocket of version 4 behind, which cannot tell the end of input."""

    protocols = (OVER_SPDY,)

    def start(self, **more: Any) -> None:
        super().start(speaks=(V4,), spdy=False, **more)

    def test_end_of_input(self) -> None:
        """The end of input stays here; the session goes on."""
        client = self.open()
        client.write(b"hello")
        client.end_input()
        self.network.pump()
        self.assertEqual((self.attachment.received, self.attachment.input_ends), (b"hello", 0))
        self.attachment.transport.end(Ending(COMPLETED, exit_code=1))
        self.network.pump()
        self.assertEqual([each.exit_code for each in self.user.endings], [1])
        self.over("backend closed")

    def test_closed_without_a_status(self) -> None:
        """A Close alone is no success."""
        self.open()
        self.foreign.carrier.close()
        self.network.pump()
        self.assertEqual(self.user.endings, [Ending(INTERNAL, LOST)])
