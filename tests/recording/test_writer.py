"""
Tests for :mod:`twisted_exec.recording.writer` and :mod:`~twisted_exec.recording.playback`: what was
recorded is what is played.
"""

from __future__ import annotations

import io
import json

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests import soak
from tests.recording.support import NOW, SECOND, Entry, info, record, signer, trust
from twisted_exec.journal.interfaces import Event, EventKind
from twisted_exec.recording.playback import block_before, end_time, frames
from twisted_exec.recording.signatures import UnusableCertificate
from twisted_exec.recording.verification import verify
from twisted_exec.recording.writer import BLOCK_BYTES, RecordingWriter

pieces = st.lists(
    st.tuples(
        st.integers(0, 5000),
        st.one_of(
            st.binary(min_size=1, max_size=40),
            st.text(min_size=1, max_size=20).map(lambda text: text.encode(errors="ignore") or b"x"),
            st.sampled_from(["é".encode()[:1], "é".encode()[1:], "€".encode()[:2], b"\x1b[31m"]),
        ),
    ),
    max_size=30,
)


def played(recording: bytes) -> bytes:
    """Return the output of a recording."""
    return b"".join(frame.data for frame in frames(io.BytesIO(recording)) if frame.code == "o")


def events(recording: bytes) -> list[list[object]]:
    """Return the events as a player of asciicasts reads them."""
    lines = [line for line in recording.splitlines() if not line.startswith(b"#")]
    header = json.loads(lines[0])
    assert header["version"] == 3, header
    return [json.loads(line) for line in lines[1:]]


class WriterTests(SynchronousTestCase):
    """Tests for :class:`RecordingWriter`."""

    @settings(
        deadline=None,
        max_examples=soak.figure_of("recording.test_writer.WriterTests.test_round_trip"),
    )
    @given(pieces, st.booleans())
    def test_round_trip(self, given_pieces: list[tuple[int, bytes]], sign_each: bool) -> None:
        """Any output is played byte for byte at its time, however it is split and signed."""
        entries: list[Entry] = []
        time = NOW
        for milliseconds, data in given_pieces:
            time += milliseconds * 1_000_000
            entries.append((time, data))
        recording = record(entries, sign_each=sign_each)
        output = b"".join(data for _, data in given_pieces)
        self.assertEqual(played(recording), output)
        report = verify(io.BytesIO(recording), trust())
        self.assertTrue(report.is_closed)
        self.assertEqual(report.head.offset, len(output))
        if given_pieces:
            self.assertEqual(end_time(io.BytesIO(recording)), time // 1_000_000)

    @settings(deadline=None, max_examples=10)
    @given(st.integers(BLOCK_BYTES - 4, BLOCK_BYTES + 4), st.integers(1, 3))
    def test_full_blocks(self, size: int, count: int) -> None:
        """A block has up to 64 KiB, and ends between two characters."""
        output = b"x" * size + "€".encode() * BLOCK_BYTES * count
        recording = record([(NOW, output)])
        self.assertEqual(played(recording), output)
        self.assertNotIn(b"\n# raw", recording)
        for event in events(recording):
            self.assertLessEqual(len(str(event[2]).encode()), BLOCK_BYTES)

    def test_character_in_two_parts(self) -> None:
        """A character whose bytes come one by one is one event, at the time of its last byte."""
        first, last = "é".encode()[:1], "é".encode()[1:]
        recording = record([(NOW, b"a" + first), (NOW + SECOND, last + b"b")])
        self.assertEqual(events(recording), [[0, "o", "a"], [1, "o", "éb"]])

    def test_bytes_that_are_not_text(self) -> None:
        """Players show replacement characters; the bytes are in a comment."""
        recording = record([(NOW, b"a\xff\x00b")])
        self.assertEqual(events(recording), [[0, "o", "a�\0b"]])
        self.assertIn(b"# raw Yf8AYg==\n", recording)

    def test_events(self) -> None:
        """Sizes resize players, other events are markers, and all of them are in comments."""
        size = Event(2, NOW + SECOND, EventKind.SIZE, {"columns": 132, "rows": 50})
        boot = Event(2, NOW + SECOND, EventKind.BOOT, {"number": 3, "reason": "Started"})
        join = Event(
            2, NOW + 2 * SECOND, EventKind.JOIN, {"user": "ada", "session": "s", "role": "w"}
        )
        recording = record([(NOW, b"ab"), size, boot, join, (NOW + 3 * SECOND, b"cd")])
        self.assertEqual(
            events(recording),
            [
                [0, "o", "ab"],
                [1, "r", "132x50"],
                [0, "m", "boot 3: Started"],
                [1, "m", "ada joined as w"],
                [1, "o", "cd"],
            ],
        )
        line = next(line for line in recording.splitlines() if line.startswith(b"# event"))
        self.assertEqual(
            json.loads(line[8:]),
            {"data": {"columns": 132, "rows": 50}, "kind": "size", "offset": 2},
        )

    def test_viewers(self) -> None:
        """Markers name users; a session whose user was not recorded is named by its id."""
        role = Event(0, NOW, EventKind.ROLE, {"session": "s", "user": "ada", "role": "writer"})
        left = Event(0, NOW, EventKind.LEAVE, {"session": "s", "user": "ada"})
        unknown = Event(0, NOW, EventKind.LEAVE, {"session": "t"})
        markers = [text for _, _, text in events(record([role, left, unknown]))]
        self.assertEqual(markers, ["ada is writer now", "ada left", "session t left"])

    def test_gap(self) -> None:
        """Output behind a gap is in a new block, which states its offset."""
        gap = Event(2, NOW, EventKind.GAP, {"bytes": 98, "end": 100})
        recording = record([(NOW, b"ab"), gap, (NOW, b"cd")])
        self.assertEqual(played(recording), b"abcd")
        self.assertEqual(verify(io.BytesIO(recording), trust()).head.offset, 102)
        newest = block_before(io.BytesIO(recording), 1 << 62)
        assert newest is not None
        self.assertEqual(newest.offset, 100)

    def test_gap_without_event(self) -> None:
        """Offsets that jump without an event do not move later output."""
        writer = RecordingWriter(info(), signer())
        text = writer.begin() + writer.output(NOW, 0, b"ab") + writer.output(NOW, 7, b"cd")
        newest = block_before(io.BytesIO(text + writer.close(NOW)), 1 << 62)
        assert newest is not None
        self.assertEqual(newest.offset, 7)

    def test_size_in_later_blocks(self) -> None:
        """Each block begins with the size of the terminal, so that an excerpt shows it."""
        size = Event(0, NOW, EventKind.SIZE, {"columns": 132, "rows": 50})
        recording = record([size, (NOW, b"x" * 2 * BLOCK_BYTES)])
        sizes = [event for event in events(recording) if event[1] == "r"]
        self.assertEqual(sizes, [[0, "r", "132x50"]] * 3)

    def test_expired_certificate(self) -> None:
        """A recorder whose certificate is not valid does not sign."""
        writer = RecordingWriter(info(), signer(days=1))
        writer.begin()
        error = self.assertRaises(UnusableCertificate, writer.sign_head, NOW + 90_000 * SECOND)
        self.assertIn("renew it", str(error))
        self.assertIn(b'"closed":false', writer.sign_head(NOW))
