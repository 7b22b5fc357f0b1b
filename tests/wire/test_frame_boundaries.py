"""Tests for :mod:`twisted_exec.wire.frame_boundaries`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire import spdy as spdy_frames
from twisted_exec.wire.endings import SHUTTING_DOWN, Ending
from twisted_exec.wire.frame_boundaries import (
    MAX_TRACKED_BYTES,
    MOST_FRAMES,
    FrameBoundaries,
    ends_with_close,
    frame_boundaries,
)
from twisted_exec.wire.spdy import Data, Frame, FrameReader, FrameWriter, GoAway
from twisted_exec.wire.upgrade import SPDY, WEBSOCKET

ENDING = Ending(SHUTTING_DOWN, "the node server is going down")


def frame(first: int, payload: bytes, mask: bytes = b"") -> bytes:
    """Encode a WebSocket frame with the shortest possible head."""
    size, bit = len(payload), 0x80 if mask else 0
    if size < 126:
        head = bytes((first, bit | size))
    elif size < 1 << 16:
        head = bytes((first, bit | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, bit | 127)) + size.to_bytes(8, "big")
    return head + mask + payload


def websocket_frames(data: bytes) -> list[tuple[int, bytes]]:
    """Return first bytes and payloads of unmasked frames below 64 KiB."""
    found = []
    while data:
        size, start = data[1], 2
        if size == 126:
            size, start = int.from_bytes(data[2:4], "big"), 4
        found.append((data[0], data[start : start + size]))
        data = data[start + size :]
    return found


def spdy_frames_of(data: bytes) -> list[Frame]:
    """Decode SPDY frames as a client does."""
    reader, found = FrameReader(), []
    reader.feed(data)
    while (one := reader.next_frame()) is not None:
        found.append(one)
    return found


class WebSocketTests(SynchronousTestCase):
    """Boundaries of WebSocket messages."""

    MESSAGES = (
        frame(0x82, b"\x01" + b"a" * 20),
        frame(0x82, b"\x01" + b"b" * 300),
        frame(0x82, b"\x01" + b"c" * 70_000),
        frame(0x89, b""),
        frame(0x02, b"\x01begin") + frame(0x89, b"ping") + frame(0x80, b" and end"),
        frame(0x82, b"masked", b"mask"),
    )

    def check(
        self, messages: Sequence[bytes], pieces: list[bytes], follower: FrameBoundaries
    ) -> None:
        ends, passed = set(), 0
        for message in messages:
            passed += len(message)
            ends.add(passed)
        passed = 0
        for piece in pieces:
            self.assertEqual(follower.to_user(piece), len(piece))
            passed += len(piece)
            self.assertEqual(follower.at_edge, passed in ends, passed)

    def test_many_frames(self) -> None:
        """Of many small frames only some are tracked at once, so that the caller can do other work."""
        follower = frame_boundaries(WEBSOCKET, "v5.channel.k8s.io", commands=True)
        flood = b"\x82\x02\x01x" * (2 * MOST_FRAMES)
        sizes = []
        while flood:
            sizes.append(follower.to_user(flood))
            flood = flood[sizes[-1] :]
        self.assertEqual(sizes, [4 * MOST_FRAMES - 2, 4 * MOST_FRAMES, 2])
        self.assertTrue(follower.at_edge)

    @given(st.lists(st.integers(1, 80_000), max_size=20))
    def test_any_split(self, cuts: list[int]) -> None:
        """``at_edge`` is true exactly after each whole message, on any split."""
        whole = b"".join(self.MESSAGES)
        bounds = [0, *sorted(cut for cut in cuts if cut < len(whole)), len(whole)]
        pieces = [whole[a:b] for a, b in pairwise(bounds) if a != b]
        self.check(
            self.MESSAGES, pieces, frame_boundaries(WEBSOCKET, "v5.channel.k8s.io", commands=True)
        )

    def test_bytewise(self) -> None:
        """``at_edge`` is right even for single bytes."""
        messages = [message for message in self.MESSAGES if len(message) < 1000]
        whole = b"".join(messages)
        pieces = [whole[at : at + 1] for at in range(len(whole))]
        self.check(messages, pieces, frame_boundaries(WEBSOCKET, "", commands=True))

    def test_stop(self) -> None:
        """With ``stop``, only the rest of the current message passes."""
        follower = frame_boundaries(WEBSOCKET, "v4.channel.k8s.io", commands=True)
        self.assertEqual(follower.to_user(self.MESSAGES[0], stop=True), 0)
        follower.to_user(self.MESSAGES[1][:100])
        rest = self.MESSAGES[1][100:]
        self.assertEqual(follower.to_user(rest[:50], stop=True), 50)
        self.assertEqual(follower.to_user(rest[50:] + self.MESSAGES[0], stop=True), len(rest) - 50)
        self.assertTrue(follower.at_edge)

    def test_owed(self) -> None:
        """``owed`` is true until a status on channel 3 or a Close passes."""
        for protocol, told in (
            ("v5.channel.k8s.io", frame(0x82, b"\x03{}")),
            ("v4.base64.channel.k8s.io", frame(0x81, b"3e30=")),
            ("v4.channel.k8s.io", frame(0x88, b"\x03\xe8")),
        ):
            whole = b"".join(self.MESSAGES) + frame(0x82, b"\x03") + told
            for step in (1, 7, len(whole)):
                follower = frame_boundaries(WEBSOCKET, protocol, commands=True)
                for start in range(0, len(whole) - len(told), step):
                    follower.to_user(whole[: len(whole) - len(told)][start : start + step])
                self.assertTrue(follower.owed)
                for start in range(0, len(told), step):
                    follower.to_user(told[start : start + step])
                self.assertFalse(follower.owed, (protocol, step))

    def test_nothing_owed(self) -> None:
        """Protocols before version 4, and forwarded ports, owe no status."""
        for protocol, commands in (
            ("", True),
            ("channel.k8s.io", True),
            ("v4.channel.k8s.io", False),
        ):
            self.assertFalse(frame_boundaries(WEBSOCKET, protocol, commands=commands).owed)

    def test_within_fragments(self) -> None:
        """Between fragments, a whole short message is no edge, although it is read by itself."""
        follower = frame_boundaries(WEBSOCKET, "v5.channel.k8s.io", commands=True)
        for piece, edge in (
            (frame(0x82, b"\x01x"), True),
            (frame(0x02, b"\x01be"), False),
            (frame(0x89, b"ping"), False),
            (frame(0x80, b"gin"), True),
            (frame(0x82, b"\x03{}"), True),
        ):
            self.assertTrue(follower.owed)
            self.assertEqual(follower.to_user(piece), len(piece))
            self.assertEqual(follower.at_edge, edge)
        self.assertFalse(follower.owed)

    def test_last_words(self) -> None:
        """The last words are the Status on channel 3 and a normal Close, as from a server."""
        follower = frame_boundaries(WEBSOCKET, "v5.channel.k8s.io", commands=True)
        told, close = websocket_frames(follower.last_words(ENDING))
        self.assertEqual((told[0], told[1][:1]), (0x82, b"\x03"))
        status = json.loads(told[1][1:])
        self.assertEqual((status["status"], status["reason"]), ("Failure", SHUTTING_DOWN))
        self.assertEqual(close, (0x88, (1000).to_bytes(2, "big")))
        self.assertFalse(follower.from_user(b"\x82\x85maskhello"))

    def test_told_already(self) -> None:
        """If the machine's Status has passed, the last words are only a Close."""
        follower = frame_boundaries(WEBSOCKET, "v5.channel.k8s.io", commands=True)
        follower.to_user(frame(0x82, b"\x03{}"))
        (close,) = websocket_frames(follower.last_words(ENDING))
        self.assertEqual(close, (0x88, (1000).to_bytes(2, "big")))

    def test_base64(self) -> None:
        """In base64 protocols the Status is a text message."""
        follower = frame_boundaries(WEBSOCKET, "v4.base64.channel.k8s.io", commands=True)
        told, _ = websocket_frames(follower.last_words(ENDING))
        self.assertEqual((told[0], told[1][:1]), (0x81, b"3"))

    def test_before_version_4(self) -> None:
        """Before version 4 the last words are the message and a Close with 1001."""
        follower = frame_boundaries(WEBSOCKET, "channel.k8s.io", commands=True)
        told, close = websocket_frames(follower.last_words(ENDING))
        self.assertEqual(told, (0x82, b"\x03the node server is going down"))
        self.assertEqual(close, (0x88, (1001).to_bytes(2, "big")))

    def test_ports(self) -> None:
        """Forwarded ports get only a Close with 1001 and the message."""
        long = Ending(SHUTTING_DOWN, "ä" * 100)
        for protocol, commands in (
            ("SPDY/3.1+portforward.k8s.io", True),
            ("v4.channel.k8s.io", False),
        ):
            (close,) = websocket_frames(
                frame_boundaries(WEBSOCKET, protocol, commands=commands).last_words(long)
            )
            self.assertEqual(close, (0x88, (1001).to_bytes(2, "big") + "ä".encode() * 61))


class SPDYTests(SynchronousTestCase):
    """Boundaries of SPDY frames, and the error stream."""

    def follower(
        self, protocol: str = "v4.channel.k8s.io", commands: bool = True
    ) -> FrameBoundaries:
        return frame_boundaries(SPDY, protocol, commands=commands)

    def opened(self, *kinds: bytes) -> bytes:
        writer = FrameWriter()
        return b"".join(
            writer.syn_stream(2 * number + 1, [(b"streamType", kind)])
            for number, kind in enumerate(kinds)
        )

    def test_any_split(self) -> None:
        """``at_edge`` is true exactly after each whole frame, on any split."""
        frames = [
            FrameWriter().syn_reply(1),
            b"".join(spdy_frames.data(3, b"hello")),
            spdy_frames.ping(2),
            b"".join(spdy_frames.data(3, b"", fin=True)),
        ]
        ends = {sum(map(len, frames[: number + 1])) for number in range(len(frames))}
        whole = b"".join(frames)
        for step in range(1, 30):
            follower, passed = self.follower(), 0
            for start in range(0, len(whole), step):
                passed += follower.to_user(whole[start : start + step])
                self.assertEqual(follower.at_edge, passed in ends)

    def test_last_words(self) -> None:
        """The last words are the Status with FIN on the error stream, and GOAWAY."""
        follower = self.follower()
        opening = self.opened(b"stdin", b"error", b"stdout")
        more = [follower.from_user(opening[at : at + 1]) for at in range(len(opening))]
        self.assertTrue(more[0])
        self.assertFalse(more[-1])
        told, away = spdy_frames_of(follower.last_words(ENDING))
        assert isinstance(told, Data)
        self.assertEqual((told.stream_id, told.fin), (3, True))
        self.assertEqual(json.loads(told.data)["reason"], SHUTTING_DOWN)
        self.assertIsInstance(away, GoAway)

    def test_owed(self) -> None:
        """``owed`` is true until a status on the error stream, or GOAWAY, passes."""
        output = FrameWriter().syn_reply(3) + b"".join(spdy_frames.data(5, b"out", fin=True))
        for told in (
            b"".join(spdy_frames.data(3, b"{}")),
            b"".join(spdy_frames.data(3, b"", fin=True)),
            spdy_frames.go_away(3),
        ):
            follower = self.follower()
            follower.from_user(self.opened(b"stdin", b"error", b"stdout"))
            follower.to_user(output)
            follower.to_user(b"".join(spdy_frames.data(3, b"")))
            self.assertTrue(follower.owed)
            for at in range(len(told)):
                follower.to_user(told[at : at + 1])
            self.assertFalse(follower.owed)
        self.assertFalse(self.follower("v2.channel.k8s.io").owed)
        self.assertFalse(self.follower("portforward.k8s.io").owed)

    def test_told_already(self) -> None:
        """If the machine's Status has passed, the last words are only GOAWAY."""
        follower = self.follower()
        follower.from_user(self.opened(b"stdin", b"error", b"stdout"))
        follower.to_user(b"".join(spdy_frames.data(3, b"{}", fin=True)))
        (away,) = spdy_frames_of(follower.last_words(ENDING))
        self.assertIsInstance(away, GoAway)

    def test_no_error_stream(self) -> None:
        """Without an error stream, the last words are only GOAWAY."""
        follower = self.follower()
        self.assertTrue(follower.from_user(self.opened(b"stdin")))
        (away,) = spdy_frames_of(follower.last_words(ENDING))
        self.assertIsInstance(away, GoAway)

    def test_ports(self) -> None:
        """Forwarded ports get only GOAWAY, because each connection has its own error stream."""
        for follower in (
            self.follower("portforward.k8s.io"),
            self.follower("portforward.k8s.io", commands=False),
        ):
            self.assertFalse(follower.from_user(self.opened(b"error")))
            (away,) = spdy_frames_of(follower.last_words(ENDING))
            self.assertIsInstance(away, GoAway)

    def test_not_spdy(self) -> None:
        """Tracking stops at invalid SPDY frames, which the next hop refuses."""
        follower = self.follower()
        self.assertFalse(follower.from_user(b"\x80\x09" + b"\0" * 20))
        self.assertFalse(follower.from_user(self.opened(b"error")))

    def test_bounded(self) -> None:
        """Tracking stops after MAX_TRACKED_BYTES without an error stream."""
        follower = self.follower()
        much = b"".join(spdy_frames.data(1, b"x" * MAX_TRACKED_BYTES))
        self.assertTrue(follower.from_user(much[:1000]))
        self.assertFalse(follower.from_user(much[1000:]))


class CloseTests(SynchronousTestCase):
    """Whether the last bytes of a server are a Close frame."""

    def test_close(self) -> None:
        for frame in (b"\x88\x00", b"\x88\x02\x03\xe8", b"\x88\x7d\x03\xe9" + b"x" * 123):
            self.assertTrue(ends_with_close(frame), frame)
            self.assertTrue(ends_with_close(b"\x82\x03\x01ab" + frame), frame)

    def test_restart(self) -> None:
        """Close 1012 does not end the session: its client resumes."""
        self.assertFalse(ends_with_close(b"\x82\x03\x01ab" + b"\x88\x05\x03\xf4why"))

    def test_no_close(self) -> None:
        for data in (
            b"",
            b"\x88",
            b"\x82\x03\x01ab",
            b"\x88\x02\x03\xe8x",
            b"\x88\x01\x03",
            b"\x88\x02\xff\xff",
            b"x" * 300,
        ):
            self.assertFalse(ends_with_close(data), data)
