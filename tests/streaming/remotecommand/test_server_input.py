"""Tests for the input of :mod:`twisted_exec.streaming.remotecommand.server`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.streaming.frames import masked
from tests.streaming.remotecommand.serving import ServeTestCase
from twisted_exec.streaming.interfaces import COMPLETED, Break, Ending, TerminalSize
from twisted_exec.testing.console import ResumableAttachment
from twisted_exec.wire.resize import encode_size, encode_wish
from twisted_exec.wire.session_terms import FULL, Terms


class RateTests(ServeTestCase):
    """Input whose rate the terms limit."""

    def test_parts(self) -> None:
        """Input comes in parts of a tenth of a second, so that the attachment can stop it between them."""
        self.attach(ResumableAttachment())
        self.serving.terms = Terms(input_rate=25)
        parts: list[bytes] = []
        self.attachment.data_received = parts.append  # type: ignore[method-assign]
        peer = self.connect()
        peer.send(b"\0abcdefg")
        self.assertEqual(parts, [b"abc", b"def", b"g"])
        assert self.serving.server is not None
        self.serving.server.hold_to(FULL)
        peer.send(b"\0abcdefg")
        self.assertEqual(parts[3:], [b"abcdefg"])


class WaitingTests(ServeTestCase):
    """Input while the attachment has paused it; the limit is 1000 bytes."""

    def setUp(self) -> None:
        super().setUp()
        self.seen: list[object] = []
        self.peer = self.connect()
        self.transport = self.attachment.transport

    def on_input(self, reaction: Callable[[], None]) -> None:
        def received(data: bytes) -> None:
            reaction()
            self.seen.append(data)

        self.attachment.data_received = received  # type: ignore[method-assign]

    def test_paused_meanwhile(self) -> None:
        """Input on which the attachment pauses is the last that it gets."""
        self.on_input(self.transport.pause_input)
        for data in (b"a", b"b", b"c"):
            self.peer.send(b"\0" + data)
        self.assertEqual(self.seen, [b"a"])
        self.transport.resume_input()
        self.assertEqual(self.seen, [b"a", b"b"])

    def test_ended_meanwhile(self) -> None:
        """Nothing follows input on which the attachment ends the session."""
        self.transport.pause_input()
        self.on_input(lambda: self.transport.end(Ending(COMPLETED, "")))
        for data in (b"a", b"b"):
            self.peer.send(b"\0" + data)
        self.transport.resume_input()
        self.peer.send(b"\0c")
        self.assertEqual(self.seen, [b"a"])

    def test_resumed_meanwhile(self) -> None:
        """An attachment that resumes while it gets input gets what follows behind it."""
        self.transport.pause_input()
        self.on_input(self.transport.resume_input)
        for data in (b"a", b"b", b"c"):
            self.peer.send(b"\0" + data)
        self.transport.resume_input()
        self.assertEqual(self.seen, [b"a", b"b", b"c"])

    def test_full(self) -> None:
        """Beyond the limit the connection is not read, until there is room."""
        server = self.serving.server
        assert server is not None
        reading: list[str] = []
        wire: Any = server.transport
        self.patch(wire, "pauseProducing", lambda: reading.append("paused"))
        self.patch(wire, "resumeProducing", lambda: reading.append("resumed"))
        self.transport.pause_input()
        self.peer.send(b"\0" + b"x" * 999)
        self.assertEqual(reading, [])
        self.peer.send(b"\0x")
        self.assertEqual(reading, ["paused"])
        self.transport.resume_input()
        self.assertEqual(reading, ["paused", "resumed"])


class SizeTests(ServeTestCase):
    """Sizes of the user's terminal between the input."""

    def test_many_sizes(self) -> None:
        """Of many sizes in one read the attachment gets the first, and the last a turn later."""
        peer = self.connect()
        sizes = [TerminalSize(1 + index % 500, 24) for index in range(10_000)]
        peer.raw(b"".join(masked(b"\4" + encode_size(size)) for size in sizes))
        self.assertEqual(self.attachment.sizes, sizes[:1])
        self.clock.advance(0)
        self.assertEqual(self.attachment.sizes, [sizes[0], sizes[-1]])
        peer.send(b"\4" + encode_size(TerminalSize(7, 7)))
        self.assertEqual(self.attachment.sizes[2:], [TerminalSize(7, 7)])

    def test_sizes_and_input(self) -> None:
        """A size is delivered before the input and the BREAK behind it."""
        seen: list[object] = []
        attachment = self.attachment
        attachment.window_changed = seen.append  # type: ignore[method-assign]
        attachment.data_received = seen.append  # type: ignore[method-assign]
        attachment.wished = seen.append  # type: ignore[method-assign]
        peer = self.connect()
        events: list[Any] = [
            TerminalSize(1, 1),
            TerminalSize(2, 2),
            b"a",
            TerminalSize(3, 3),
            Break(),
        ]
        for event in events:
            if isinstance(event, bytes):
                peer.send(b"\0" + event)
            elif isinstance(event, Break):
                peer.send(b"\4" + encode_wish(event, None))
            else:
                peer.send(b"\4" + encode_size(event))
        self.assertEqual(seen, events)

    def test_size_of_a_client_that_left(self) -> None:
        """The machine keeps the last size of a client that leaves in the turn in which it sends it."""
        peer, sizes = self.connect(), [TerminalSize(columns, 24) for columns in (1, 2)]
        for size in sizes:
            peer.send(b"\4" + encode_size(size))
        peer.client.lose()
        self.assertEqual(self.attachment.sizes, sizes)
        self.assertEqual(self.clock.getDelayedCalls(), [])
