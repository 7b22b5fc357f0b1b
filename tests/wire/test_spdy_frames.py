"""Tests for :mod:`twisted_exec.wire.spdy`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire import spdy
from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError
from twisted_exec.wire.spdy import (
    Data,
    Frame,
    FrameReader,
    FrameWriter,
    GoAway,
    HeaderFrame,
    Ping,
    RstStream,
    SPDYSettings,
    SynReply,
    SynStream,
    WindowUpdate,
)
from twisted_exec.wire.spdy_headers import HeaderWriter

CAPTURES = Path(__file__).parents[1] / "captures"
VECTORS = json.loads((CAPTURES / "spdy-vectors.json").read_text())


def control(kind: int, payload: bytes, flags: int = 0, length: int | None = None) -> bytes:
    """Encode any control frame."""
    size = len(payload) if length is None else length
    head = b"\x80\x03" + kind.to_bytes(2, "big") + bytes((flags,)) + size.to_bytes(3, "big")
    return head + payload


def read(data: bytes, split: int | None = None) -> list[Frame]:
    """Read frames from bytes in pieces of ``split``, with pieces of data joined."""
    return read_on(FrameReader(), data, split)


def read_on(reader: FrameReader, data: bytes, split: int | None = None) -> list[Frame]:
    """Read frames with a reader that has already read others."""
    found = []
    step = split or max(1, len(data))
    for start in range(0, len(data), step):
        reader.feed(data[start : start + step])
        while (frame := reader.next_frame()) is not None:
            found.append(frame)
    return joined(found)


def joined(found: list[Frame]) -> list[Frame]:
    """Join the pieces of each data frame."""
    result: list[Frame] = []
    for frame in found:
        last = result[-1] if result else None
        if (
            isinstance(frame, Data)
            and isinstance(last, Data)
            and last.stream_id == frame.stream_id
            and not last.fin
        ):
            result[-1] = Data(frame.stream_id, last.data + frame.data, frame.fin)
        else:
            result.append(frame)
    return result


def captured(name: str, direction: str) -> bytes:
    """Return the bytes of one side of a captured session, without the HTTP head."""
    items = json.loads((CAPTURES / name).read_text())["items"]
    data = b"".join(bytes.fromhex(one["hex"]) for one in items if one["dir"] == direction)
    return data.partition(b"\r\n\r\n")[2]


def seen(frame: dict[str, Any]) -> Frame | None:
    """Return a frame as in the vectors, or ``None`` if the reader skips it."""
    pairs = [(k.encode(), v.encode()) for k, v in frame.get("headers", {}).items()]
    fin = bool(frame["flags"] & 1)
    kind = frame["type"]
    if kind == "DATA":
        data = bytes.fromhex(frame["data"])
        return Data(frame["sid"], data, fin) if data or fin else None
    if kind == "SYN_STREAM":
        return SynStream(frame["sid"], tuple(sorted(pairs)), fin)
    if kind == "SYN_REPLY":
        return SynReply(frame["sid"], tuple(sorted(pairs)), fin)
    if kind == "PING":
        return Ping(frame["id"])
    if kind == "GOAWAY":
        return GoAway(frame["last"], frame["status"])
    return RstStream(frame["sid"], frame["status"])


def in_order(frame: Frame) -> Frame:
    """Sort the headers, which Go writes in any order."""
    if isinstance(frame, SynStream):
        return SynStream(frame.stream_id, tuple(sorted(frame.headers)), frame.fin)
    return frame


class CaptureTests(SynchronousTestCase):
    """Captured frames of real kubectls and their server."""

    def test_vectors(self) -> None:
        """Captured frames decode as in the vectors, on any split."""
        splits = [None, *range(1, 40), 64, 100]
        for session in VECTORS["sessions"]:
            for direction in "CS":
                expected = [seen(one) for one in session["frames"] if one["dir"] == direction]
                wanted = joined([one for one in expected if one is not None])
                data = captured(session["capture"], direction)
                for split in splits:
                    found = [in_order(one) for one in read(data, split)]
                    self.assertEqual(found, wanted, (session["capture"], split))


class ReadTests(SynchronousTestCase):
    """Tests for :class:`FrameReader`."""

    def test_every_type(self) -> None:
        """Frames of all types decode, on any split."""
        headers = [(b"streamtype", b"stdin")]
        writer = FrameWriter()
        data = writer.syn_stream(1, headers) + writer.syn_reply(1, headers)
        data += control(8, b"\0\0\0\1" + writer._headers.write(headers), 1)
        data += spdy.rst_stream(1, 5) + spdy.ping(7) + control(9, bytes(7) + b"\2")
        data += control(4, b"\0\0\0\1" + b"\x01\0\0\4" + b"\0\0\1\0") + spdy.go_away(3, 1)
        data += b"".join(spdy.data(5, b"hello", True))
        expected = [
            SynStream(1, tuple(headers)),
            SynReply(1, tuple(headers)),
            HeaderFrame(1, tuple(headers), True),
            RstStream(1, 5),
            Ping(7),
            WindowUpdate(0, 2),
            SPDYSettings(((0x01000004, 256),)),
            GoAway(3, 1),
            Data(5, b"hello", True),
        ]
        for split in range(1, len(data) + 1):
            self.assertEqual(read(data, split), expected)

    def test_flags(self) -> None:
        """SYN_STREAM may have FIN and UNIDIRECTIONAL."""
        payload = b"\x80\0\0\1" + bytes(6)
        for flags in range(4):
            (frame,) = read(control(1, payload + HeaderWriter().write([]), flags))
            self.assertEqual(frame, SynStream(1, (), bool(flags & 1), bool(flags & 2)))

    def test_pieces(self) -> None:
        """A data frame of any length is delivered as it arrives, in pieces of up to 32 KiB."""
        reader = FrameReader()
        reader.feed(b"\0\0\0\5\1\xff\xff\xff")
        self.assertIsNone(reader.next_frame())
        reader.feed(b"abc")
        self.assertEqual(reader.next_frame(), Data(5, b"abc"))
        self.assertIsNone(reader.next_frame())
        left = (1 << 24) - 1 - 3
        sizes = []
        while left:
            reader.feed(bytes(min(left, 100_000)))
            left -= min(left, 100_000)
            while (piece := reader.next_frame()) is not None:
                assert isinstance(piece, Data)
                sizes.append(len(piece.data))
                self.assertEqual(piece.fin, not left and sum(sizes) == (1 << 24) - 4)
        self.assertEqual((max(sizes), sum(sizes)), (32 << 10, (1 << 24) - 4))

    def test_rest(self) -> None:
        """``rest_bytes`` is the length of the data frame's missing part."""
        reader = FrameReader()
        for data, rest in ((b"\0\0\0\1\0\0\0", 0), (b"\4a", 3), (b"bcd", 0)):
            reader.feed(data)
            while reader.next_frame() is not None:
                pass
            self.assertEqual(reader.rest_bytes, rest)

    def test_empty_data(self) -> None:
        """An empty data frame is skipped, unless it has FIN."""
        self.assertEqual(read(b"\0\0\0\5\0\0\0\0" * 3 + b"\0\0\0\5\1\0\0\0"), [Data(5, b"", True)])

    def refused(self, data: bytes) -> str:
        with self.assertRaises(RemoteProtocolError) as caught:
            read(data)
        return str(caught.exception)

    def test_unknown(self) -> None:
        """Unknown frame types and versions raise RemoteProtocolError."""
        for kind in (0, 5, 10, 11, 0xFFFF):
            self.assertIn("unknown", self.refused(control(kind, bytes(8))))
        self.assertIn("0x80020001", self.refused(b"\x80\x02\0\x01\0\0\0\0"))

    def test_stream_0(self) -> None:
        """Frames for stream 0 raise RemoteProtocolError."""
        block = HeaderWriter().write([])
        for data in (
            b"\0\0\0\0\0\0\0\1x",
            control(1, bytes(10) + block),
            control(2, bytes(4) + block),
            control(8, bytes(4) + block),
            control(3, bytes(4) + b"\0\0\0\5"),
        ):
            self.assertIn("stream 0", self.refused(data))

    def test_lengths(self) -> None:
        """An invalid length is refused on its announcement, before any payload is buffered."""
        for kind, length in (
            (1, 9),
            (1, 70_000),
            (2, 3),
            (2, 0xFFFFFF),
            (3, 7),
            (3, 9),
            (4, 3),
            (4, 4 + 8 * 65),
            (6, 3),
            (6, 5),
            (7, 4),
            (8, 3),
            (8, 0xFFFFFF),
            (9, 12),
        ):
            told = self.refused(control(kind, b"", length=length))
            self.assertEqual(told, f"a control frame of type {kind} is {length} bytes long")

    def test_settings(self) -> None:
        """The number of settings must match the frame's length."""
        read(control(4, b"\0\0\0\x40" + bytes(8 * 64)))
        for count in (0, 2, 0xFFFFFFFF):
            payload = count.to_bytes(4, "big") + bytes(8)
            self.assertIn("entries", self.refused(control(4, payload)))

    def test_numbers(self) -> None:
        """Zero PING ids, zero RST_STREAM statuses and undefined flags are refused."""
        self.assertIn("PING", self.refused(spdy.ping(0)))
        self.assertIn("RST_STREAM", self.refused(spdy.rst_stream(1, 0)))
        for kind, size in ((3, 8), (6, 4), (7, 8), (9, 8)):
            self.assertIn("flags", self.refused(control(kind, b"\1" * size, 1)))

    @settings(max_examples=300, deadline=None)
    @given(st.binary(max_size=400), st.lists(st.integers(1, 60), max_size=20))
    def test_anything(self, data: bytes, cuts: list[int]) -> None:
        """Any bytes give the same frames, or the same error, on any split."""
        self.assertEqual(self.outcome(data, []), self.outcome(data, cuts))

    @settings(max_examples=300, deadline=None)
    @given(
        st.lists(
            st.tuples(st.integers(0, 11), st.integers(0, 3), st.binary(max_size=24)), max_size=8
        ),
        st.lists(st.integers(1, 30), max_size=20),
    )
    def test_any_frames(self, made: list[tuple[int, int, bytes]], cuts: list[int]) -> None:
        """Frames with arbitrary payloads give the same result on any split."""
        data = b"".join(control(kind, payload, flags) for kind, flags, payload in made)
        self.assertEqual(self.outcome(data, []), self.outcome(data, cuts))

    def outcome(self, data: bytes, cuts: list[int]) -> tuple[list[Frame], str]:
        reader, found, start = FrameReader(), [], 0
        for size in [*cuts, max(1, len(data))]:
            reader.feed(data[start : start + size])
            start += size
            try:
                while (frame := reader.next_frame()) is not None:
                    found.append(frame)
            except RemoteProtocolError as problem:
                return joined(found), str(problem)
        return joined(found), ""


class WriteTests(SynchronousTestCase):
    """Encoding of frames."""

    def test_data(self) -> None:
        """Data is sent in frames of up to 32 KiB; only the last one has FIN."""
        payload = bytes(range(256)) * 300
        sent = b"".join(spdy.data(3, payload, True))
        self.assertEqual(read(sent), [Data(3, payload, True)])
        self.assertEqual(sent[:8], b"\0\0\0\3\0\0\x80\0")
        self.assertEqual(b"".join(spdy.data(3, b"")), b"")
        self.assertEqual(b"".join(spdy.data(3, b"", True)), b"\0\0\0\3\1\0\0\0")
        self.assertEqual(b"".join(spdy.data(3, b"x")), b"\0\0\0\3\0\0\0\1x")
        whole = list(spdy.data(3, bytes(32 << 10), True))
        self.assertEqual((len(whole), whole[0]), (2, b"\0\0\0\3\1\0\x80\0"))

    def test_fin(self) -> None:
        """SYN_STREAM and SYN_REPLY may have FIN."""
        self.assertEqual(read(FrameWriter().syn_stream(1, [], True)), [SynStream(1, (), True)])
        self.assertEqual(read(FrameWriter().syn_reply(1, fin=True)), [SynReply(1, (), True)])

    def test_ids(self) -> None:
        """An invalid stream id raises LocalProtocolError."""
        for stream_id in (0, 1 << 31):
            for write in (
                lambda stream_id=stream_id: FrameWriter().syn_stream(stream_id, []),
                lambda stream_id=stream_id: FrameWriter().syn_reply(stream_id),
                lambda stream_id=stream_id: list(spdy.data(stream_id, b"x")),
                lambda stream_id=stream_id: spdy.rst_stream(stream_id, 1),
            ):
                with self.assertRaises(LocalProtocolError):
                    write()
