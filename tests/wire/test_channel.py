"""Tests for :mod:`twisted_exec.wire.channel`."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping

from twisted_exec.wire.channel import (
    MAX_PAYLOAD_BYTES,
    PROTOCOLS,
    UNNAMED,
    V1,
    V1_BASE64,
    V4,
    V4_BASE64,
    V5,
    Channel,
    StreamClosed,
    StreamData,
    decode,
    encode,
    encode_close,
    is_text,
    messages,
)
from twisted_exec.wire.endings import COMPLETED, Ending, decode_status
from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError
from twisted_exec.wire.resize import SizeDecoder, TerminalSize

CAPTURES = Path(__file__).parent.parent / "captures"


class DecodeTests(SynchronousTestCase):
    """Tests for :func:`decode`."""

    def test_data(self) -> None:
        """The first byte is the channel, the rest the payload."""
        self.assertEqual(decode(b"\x00ls\n"), StreamData(Channel.STDIN, b"ls\n"))
        self.assertEqual(decode(b"\x01"), StreamData(Channel.STDOUT, b""))

    def test_ignored(self) -> None:
        """Empty messages and unknown channels are ignored."""
        for message in (b"", b"\x05x", b"\x80", b"0x"):
            self.assertIsNone(decode(message))

    def test_closed(self) -> None:
        """In version 5 a close message ends a channel."""
        self.assertEqual(decode(b"\xff\x00"), StreamClosed(Channel.STDIN))
        self.assertIsNone(decode(b"\xff\x09"))

    def test_malformed_close(self) -> None:
        """A close message must name exactly one channel."""
        for message in (b"\xff", b"\xff\x00\x00"):
            with self.assertRaises(RemoteProtocolError) as caught:
                decode(message)
            self.assertEqual(str(caught.exception), "a close message names exactly one channel")

    def test_before_version_5(self) -> None:
        """Before version 5, byte 255 is an unknown channel."""
        for message in (b"\xff", b"\xff\x00", b"\xff\x00\x00"):
            for protocol in (V4, V1, UNNAMED):
                self.assertIsNone(decode(message, protocol))

    def test_base64(self) -> None:
        """In base64 protocols a digit is the channel, and each payload is encoded separately."""
        for protocol in (V1_BASE64, V4_BASE64):
            self.assertEqual(decode(b"0bHM=", protocol), StreamData(Channel.STDIN, b"ls"))
            self.assertEqual(decode(b"1", protocol), StreamData(Channel.STDOUT, b""))
            self.assertEqual(decode(b"4b\r\nHM=\n", protocol), StreamData(Channel.RESIZE, b"ls"))
            for message in (
                b"",
                b"5bHM=",
                b"\0bHM=",
                b"\xffAA==",
                b"0bHM",
                b"0b$$HM=",
                b"0=",
                b"0\xff",
            ):
                self.assertIsNone(decode(message, protocol), message)

    def test_text(self) -> None:
        """Only the base64 protocols use text messages."""
        self.assertEqual([one for one in PROTOCOLS if is_text(one)], [V4_BASE64, V1_BASE64])

    @given(st.binary(max_size=300), st.sampled_from([V4, V5]))
    def test_anything(self, message: bytes, protocol: str) -> None:
        """Any message decodes or raises RemoteProtocolError."""
        try:
            event = decode(message, protocol)
        except RemoteProtocolError:
            self.assertEqual((message[0], protocol), (255, V5))
            return
        if isinstance(event, StreamData):
            self.assertEqual(bytes((event.channel,)) + event.data, message)


class EncodeTests(SynchronousTestCase):
    """Encoding of messages."""

    def test_greeting(self) -> None:
        """An empty payload is encoded as the channel byte alone."""
        self.assertEqual(encode(Channel.STDOUT), b"\x01")

    def test_too_large(self) -> None:
        """A payload that is too large raises LocalProtocolError."""
        encode(Channel.STDOUT, b"x" * MAX_PAYLOAD_BYTES)
        with self.assertRaises(LocalProtocolError):
            encode(Channel.STDOUT, b"x" * (MAX_PAYLOAD_BYTES + 1))

    def test_base64(self) -> None:
        """In base64 a message holds three quarters of its size; it decodes to the same payload."""
        self.assertEqual(encode(Channel.STDOUT, b"", V4_BASE64), b"1")
        self.assertEqual(encode(Channel.STDIN, b"ls", V1_BASE64), b"0bHM=")
        fits = bytes(range(256)) * 96
        largest = encode(Channel.STDOUT, fits, V4_BASE64)
        self.assertEqual(len(largest), MAX_PAYLOAD_BYTES + 1)
        self.assertEqual(decode(largest, V4_BASE64), StreamData(Channel.STDOUT, fits))
        with self.assertRaises(LocalProtocolError):
            encode(Channel.STDOUT, fits + b"x", V4_BASE64)

    def test_messages_in_base64(self) -> None:
        """In base64 a long payload is split into messages of the maximum size."""
        data = bytes(range(256)) * 200
        cut = list(messages(Channel.STDOUT, data, V1_BASE64))
        self.assertEqual([len(one) for one in cut], [32769, 32769, 2733])
        read = [decode(one, V1_BASE64) for one in cut]
        self.assertEqual(b"".join(one.data for one in read if one is not None), data)
        self.assertEqual(list(messages(Channel.STDOUT, b"", V1_BASE64)), [])

    def test_close(self) -> None:
        """Only version 5 can encode a close message."""
        self.assertEqual(encode_close(Channel.STDIN), b"\xff\x00")
        for protocol in (V4, V1, UNNAMED, V4_BASE64):
            with self.assertRaises(LocalProtocolError):
                encode_close(Channel.STDIN, protocol)

    @given(st.integers(0, 5 * MAX_PAYLOAD_BYTES))
    def test_messages(self, size: int) -> None:
        """
        A long payload is split into full messages and a last one; an empty payload gives none.
        """
        data = (b"0123456789abcdef" * (size // 16 + 1))[:size]
        cut = list(messages(Channel.STDOUT, data))
        self.assertEqual(b"".join(one[1:] for one in cut), data)
        self.assertTrue(all(one[:1] == b"\x01" and len(one) > 1 for one in cut))
        self.assertTrue(all(len(one) == MAX_PAYLOAD_BYTES + 1 for one in cut[:-1]))


def read(name: str, split: int | None = None) -> list[object]:
    """Decode kubectl's messages in a capture, read whole or in pieces of ``split``."""
    items = json.loads((CAPTURES / name).read_text())["items"]
    data = b"".join(bytes.fromhex(one["hex"]) for one in items[1:] if one["dir"] == "C")
    frames = Connection(ConnectionType.SERVER)
    meant: list[object] = []
    step = split or len(data)
    message = b""
    for start in range(0, len(data), step):
        frames.receive_data(data[start : start + step])
        for event in frames.events():
            if isinstance(event, BytesMessage):
                message += bytes(event.data)
                if event.message_finished:
                    meant.append(decode(message))
                    message = b""
            elif isinstance(event, CloseConnection):
                meant.append(event.code)
            else:
                assert isinstance(event, Ping), event
    return meant


class CaptureTests(SynchronousTestCase):
    """Captured messages of real kubectls."""

    def test_stdin(self) -> None:
        """``exec -i -- cat`` sends its input, the close of stdin and a WebSocket Close."""
        for name in ("ws-v5-exec-stdin-cat-kubectl1.30", "ws-v5-exec-stdin-cat-kubectl1.33"):
            meant = read(f"{name}.json")
            data = b"".join(one.data for one in meant if isinstance(one, StreamData))
            self.assertTrue(data)
            self.assertIn(StreamClosed(Channel.STDIN), meant)
            self.assertEqual(meant[-1], 1000)

    def test_resize(self) -> None:
        """
        ``exec -it`` sends its size; ``attach -it`` first sends a larger one, to force a redraw.
        """
        for name, count in (("exec-tty-resize", 2), ("attach-tty", 2)):
            decoder = SizeDecoder()
            sizes: list[TerminalSize] = []
            for one in read(f"ws-v5-{name}-kubectl1.33.json"):
                if isinstance(one, StreamData) and one.channel is Channel.RESIZE:
                    sizes += decoder.feed(one.data)
            self.assertGreaterEqual(len(sizes), count, name)

    def test_exit_code(self) -> None:
        """The captured status that made kubectl exit with 7 decodes to exit code 7."""
        items = json.loads((CAPTURES / "ws-v5-exec-exit7-kubectl1.33.json").read_text())["items"]
        frames = Connection(ConnectionType.CLIENT)
        statuses = []
        for one in items:
            raw = bytes.fromhex(one["hex"])
            if one["dir"] == "S" and not raw.startswith(b"HTTP/"):
                frames.receive_data(raw)
                for event in frames.events():
                    if isinstance(event, BytesMessage):
                        meant = decode(bytes(event.data))
                        assert isinstance(meant, StreamData)
                        if meant.channel is Channel.ERROR:
                            statuses.append(decode_status(meant.data))
        (ending,) = statuses
        self.assertEqual((ending.reason, ending.exit_code), (COMPLETED, 7))
        self.assertIsInstance(ending, Ending)

    def test_every_split(self) -> None:
        """Captured messages are the same on any split."""
        for path in sorted(CAPTURES.glob("ws-v5-*.json")):
            whole = read(path.name)
            for split in range(1, 40):
                self.assertEqual(read(path.name, split), whole, f"{path.name} by {split}")
