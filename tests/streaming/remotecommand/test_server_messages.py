"""Tests of :mod:`twisted_exec.streaming.remotecommand.server`: messages in both directions."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streaming.frames import Peer, TextMessage, masked
from tests.streaming.remotecommand.serving import ServeTestCase
from twisted_exec.streaming.interfaces import COMPLETED, LINE_LOST, Ending, TerminalSize
from twisted_exec.streaming.remotecommand.carriers import StreamLimits
from twisted_exec.testing.console import RecordingAttachment, RecordingProducer

CAPTURES = Path(__file__).parents[2] / "captures"
SUCCESS = b'\x03{"metadata":{},"status":"Success"}'


class InputTests(ServeTestCase):
    """Input of the client."""

    def test_ignored(self) -> None:
        """Unknown channels, channels that only servers write, and empty messages are ignored."""
        peer = self.connect()
        for message in (b"\x01x", b"\x02x", b"\x03x", b"\x09x", b"\xff\x09", b"\0", b""):
            peer.send(message)
        peer.say(TextMessage("0 is no channel"))
        peer.say(TextMessage("\0text"))
        self.assertEqual(self.attachment.received, b"text")
        self.assertEqual(peer.messages(), [])

    def test_fragments(self) -> None:
        """A message in fragments, a ping between them, is one message."""
        peer = self.connect()
        peer.raw(masked(b"\0a", fin=False) + masked(b"", 9) + masked(b"b", 0))
        self.assertEqual(self.attachment.received, b"ab")

    @settings(max_examples=50, deadline=None)
    @given(
        st.lists(st.binary(min_size=1, max_size=40), max_size=8),
        st.lists(st.integers(1, 50), min_size=1, max_size=20),
    )
    def test_any_split(self, inputs: list[bytes], cuts: list[int]) -> None:
        """Frames arrive whole, however the network cuts them."""
        self.setUp()
        data = b"".join(masked(b"\0" + each) for each in inputs)
        peer = self.connect()
        start = 0
        for length in cuts:
            if data[start : start + length]:
                peer.raw(data[start : start + length])
            start += length
        if data[start:]:
            peer.raw(data[start:])
        self.assertEqual(self.attachment.received, b"".join(inputs))


class TextTests(ServeTestCase):
    """Protocols before version 4, and base64 protocols."""

    def begin(self, protocol: bytes) -> Peer:
        peer = Peer(self.server, protocols=protocol)
        named = b"Sec-WebSocket-Protocol: " + protocol
        self.assertEqual(named in peer.head.split(b"\r\n"), bool(protocol))
        return peer

    def heard(self, peer: Peer) -> list[tuple[int, bytes]]:
        """Channels and payloads of the messages, which are text."""
        events = peer.events()
        self.assertTrue(all(isinstance(event, TextMessage) for event in events), events)
        return [(int(event.data[0]), base64.b64decode(event.data[1:])) for event in events]

    def test_base64(self) -> None:
        """Messages are base64 text in both directions; others are dropped."""
        for protocol in (b"base64.channel.k8s.io", b"v4.base64.channel.k8s.io"):
            self.setUp()
            peer = self.begin(protocol)
            self.assertEqual(self.heard(peer), [(1, b"")])
            for text in ("0bHM=", "0!!", "0", "", "9bHM=", "0Cg=="):
                peer.say(TextMessage(text))
            peer.send(b"0IQ==")  # Go servers do not look at the kind of a message
            peer.say(TextMessage("4" + base64.b64encode(b'{"Width":1,"Height":2}').decode()))
            self.assertEqual(self.attachment.received, b"ls\n!")
            self.assertEqual(self.attachment.sizes, [TerminalSize(1, 2)])
            data = bytes(range(256)) * 100
            self.attachment.transport.write(data)
            heard = self.heard(peer)
            self.assertEqual([len(payload) for _, payload in heard], [24576, 1024])
            self.assertEqual(b"".join(payload for _, payload in heard), data)

    def test_endings(self) -> None:
        """Version 4 ends with a Status, version 1 with a text, or nothing when all is well."""
        lost = Ending(LINE_LOST, "gone")
        for protocol, ending, told in (
            (b"v4.base64.channel.k8s.io", Ending(COMPLETED), SUCCESS[1:]),
            (b"base64.channel.k8s.io", Ending(COMPLETED), None),
            (b"base64.channel.k8s.io", lost, b"gone"),
            (b"channel.k8s.io", Ending(COMPLETED), None),
            (b"channel.k8s.io", lost, b"gone"),
            (b"", Ending(COMPLETED), None),
            (b"", lost, b"gone"),
        ):
            self.setUp()
            peer = self.begin(protocol)
            peer.events()
            self.attachment.transport.end(ending)
            *status, close = peer.events()
            self.assertEqual(close.code, 1000)
            if b"base64" in protocol:
                found = [base64.b64decode(each.data[1:]) for each in status]
            else:
                found = [bytes(each.data[1:]) for each in status]
            self.assertEqual(found, [] if told is None else [told])

    def test_version_1(self) -> None:
        """Version 1, named or not, is bytes; it cannot tell the end of input."""
        for protocol in (b"channel.k8s.io", b""):
            self.setUp()
            peer = self.begin(protocol)
            self.assertEqual(peer.messages(), [b"\x01"])
            peer.send(b"\0ls\n")
            peer.send(b"\xff\0")
            self.attachment.transport.write(b"out")
            self.assertEqual(peer.messages(), [b"\x01out"])
            self.assertEqual((self.attachment.received, self.attachment.input_ends), (b"ls\n", 0))


class OutputTests(ServeTestCase):
    """Output of the attachment."""

    def begin_by_kubectl(self) -> tuple[Peer, RecordingProducer]:
        """A session of a client that loses what comes too early."""
        agent = b"User-Agent: kubectl/v1.33.1 (linux/amd64) kubernetes/8adc0f0"
        peer = Peer(self.server, lines=(agent,))
        producer = RecordingProducer()
        self.attachment.transport.registerProducer(producer, True)
        self.assertTrue(producer.paused)
        return peer, producer

    def test_held_back(self) -> None:
        """Output for kubectl is held for a moment, because kubectl drops early messages."""
        _, producer = self.begin_by_kubectl()
        self.clock.advance(0.05)
        self.assertTrue(producer.paused)
        self.clock.advance(0.05)
        self.assertEqual(producer.calls, ["pause", "resume"])

    def test_held_back_until_it_speaks(self) -> None:
        """Output is released as soon as the client sends something."""
        peer, producer = self.begin_by_kubectl()
        self.assertEqual(peer.messages(), [])
        peer.send(b'\x04{"Width":80,"Height":24}')
        self.assertEqual(peer.messages(), [b"\x01"])
        self.assertEqual(producer.calls, ["pause", "resume"])
        peer.send(b"\0x")
        self.clock.advance(1)
        self.assertEqual(producer.calls, ["pause", "resume"])

    def test_held_back_and_blocked(self) -> None:
        """After the hold time, output stays paused while the transport is full."""
        peer, producer = self.begin_by_kubectl()
        peer.client.transport.producer.pauseProducing()
        self.clock.advance(0.1)
        self.assertTrue(producer.paused)
        peer.client.transport.producer.resumeProducing()
        self.assertFalse(producer.paused)

    def test_held_back_and_lost(self) -> None:
        """If the client leaves during the hold time, no timer is left."""
        peer, _ = self.begin_by_kubectl()
        peer.client.lose()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_held_back_and_ended(self) -> None:
        """A session that ends during the hold time sends nothing behind its status."""
        peer, _ = self.begin_by_kubectl()
        self.attachment.transport.end(Ending(COMPLETED))
        self.clock.advance(0.1)
        first, status, *rest = peer.events()
        self.assertEqual((first.data, status.data[:1], len(rest)), (b"\x01", b"\x03", 1))


class ViolationTests(ServeTestCase):
    """Clients that break the protocol."""

    def refused(self, data: bytes, code: int) -> Any:
        """The client gets a status and a Close with ``code``; the attachment ends at once."""
        peer = self.connect()
        peer.raw(data)
        status, close = peer.events()
        self.assertEqual(close.code, code)
        self.assertTrue(peer.client.closed)  # without an answer to the Close
        self.assertEqual(len(self.attachment.detached_with), 1)
        self.assertIn("protocol error", self.attachment.detached_with[0])
        peer.raw(masked(b"\0more"))
        self.assertEqual(self.attachment.received, b"")
        self.clock.advance(15)
        self.assertEqual(len(self.attachment.detached_with), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        return json.loads(bytes(status.data[1:]))

    def test_malformed_close_of_a_channel(self) -> None:
        """Message 255 names one channel."""
        for message in (b"\xff", b"\xff\0\0"):
            self.setUp()
            status = self.refused(masked(message), 1002)
            self.assertEqual(
                status["message"],
                "the client broke the protocol: a close message names exactly one channel",
            )

    def test_large_message(self) -> None:
        """A message beyond the limit causes Close 1009, before it is complete."""
        status = self.refused(b"\x82\xff" + (1 << 40).to_bytes(8, "big") + bytes(4) + b"x", 1009)
        self.assertIn("exceeds", status["message"])

    def test_large_message_in_fragments(self) -> None:
        """Fragments count together."""
        self.limits = StreamLimits(message_bytes=64 << 10)
        self.setUp()
        part = b"\0" + b"x" * 40000
        self.refused(masked(part, fin=False) + masked(part, 0, fin=False), 1009)

    def test_frames(self) -> None:
        """Malformed frames are refused."""
        for data in (
            b"\x82\x01\0",  # not masked
            masked(b"x", 3),  # an undefined opcode
            masked(b"x", 11),
            b"\xc2\x81\0\0\0\0x",  # a reserved bit
            masked(b"x", 0),  # a continuation of nothing
            masked(b"x", 9, fin=False),  # a ping in fragments
            b"\x89\xfe\0\x7e\0\0\0\0",  # a ping that is too long
            b"\x82\xfe\0\x01\0\0\0\0x",  # a length not as short as it could be
        ):
            self.setUp()
            with self.subTest(data=data):
                self.refused(data, 1002)


class AnyBytesTests(ServeTestCase):
    """Any input of any client."""

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.binary(min_size=1, max_size=64), max_size=6))
    def test_anything(self, chunks: list[bytes]) -> None:
        """No input raises an error, and the attachment ends exactly once."""
        self.setUp()
        peer = self.connect()
        for chunk in chunks:
            if not peer.client.closed:
                peer.raw(chunk)
        if not peer.client.closed:
            peer.client.lose()
        self.assertEqual(len(self.attachment.detached_with), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class CaptureTests(ServeTestCase):
    """Recorded sessions of real kubectls, byte for byte."""

    def played(self, path: Path, split: int) -> RecordingAttachment:
        items = json.loads(path.read_text())["items"]
        sent = b"".join(bytes.fromhex(each["hex"]) for each in items if each["dir"] == "C")
        self.setUp()
        client = self.server.connect()
        for start in range(0, len(sent), split):
            client.send(sent[start : start + split])
        return self.attachment

    def test_every_split(self) -> None:
        """Whatever the split, the attachment gets the same input, sizes and end."""
        for path in sorted(CAPTURES.glob("ws-v5-*.json")):
            whole = self.played(path, 1 << 20)
            self.assertEqual(whole.detached_with, ["client closed"])
            self.assertEqual("exit7" in path.name, not whole.received, path.name)
            self.assertEqual("tty" in path.name, bool(whole.sizes), path.name)
            for split in [*range(1, 32), 100, 464, 465, 500]:
                cut = self.played(path, split)
                for name in ("received", "sizes", "input_ends", "detached_with"):
                    self.assertEqual(getattr(cut, name), getattr(whole, name), (path.name, split))
