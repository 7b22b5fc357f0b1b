"""Tests for :mod:`twisted_exec.wire.frame_boundaries`."""

from __future__ import annotations

from unittest import TestCase

from hypothesis import given
from hypothesis import strategies as st

from twisted_exec.wire.frame_boundaries import Frames, GoneAway


def frame(kind: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, 0]) + bytes(4) + payload


def away(last: int, told: bytes = b"") -> bytes:
    return frame(7, last.to_bytes(4, "big") + bytes(4) + told)


FRAMES = st.lists(
    st.one_of(
        st.builds(frame, st.sampled_from([0, 1, 3, 4, 6, 8, 9, 200]), st.binary(max_size=40)),
        st.builds(away, st.integers(0, 0x7FFFFFFF), st.binary(max_size=9)),
    )
)


class FramesTests(TestCase):
    """Tests for :class:`Frames`."""

    @given(FRAMES, st.data())
    def test_any_split(self, frames: list[bytes], data: st.DataObject) -> None:
        """On any split, GOAWAY frames become events and all others pass unchanged."""
        raw, cutter, passed, told = b"".join(frames), Frames(), b"", []
        while raw:
            at = data.draw(st.integers(1, len(raw)))
            for piece in cutter.cut(raw[:at]):
                if isinstance(piece, GoneAway):
                    told.append(piece.last_stream)
                else:
                    passed += piece
            raw = raw[at:]
        self.assertEqual(passed, b"".join(each for each in frames if each[3] != 7))
        last = [int.from_bytes(each[9:13], "big") for each in frames if each[3] == 7]
        self.assertEqual(told, last)

    def test_order(self) -> None:
        """A GOAWAY event comes between the frames before and after it."""
        one, two = frame(0, b"one"), frame(0, b"two")
        told = list(Frames().cut(one + away(5, b"restarting") + two))
        self.assertEqual(told, [one, GoneAway(5), two])

    def test_reserved_bit(self) -> None:
        """The reserved bit of a stream id is ignored (RFC 9113, section 6.8)."""
        self.assertEqual(list(Frames().cut(away(0x80000003))), [GoneAway(3)])

    def test_too_long(self) -> None:
        """A frame that is too long is refused on its head, before buffering its payload."""
        for head in (b"\x00\x40\x01\x00\x00", b"HTTP/1.1 400 Bad Request"):
            with self.assertRaises(ValueError):
                list(Frames().cut(head.ljust(9, b"\0")))

    def test_short(self) -> None:
        """A GOAWAY that is too short raises ValueError."""
        with self.assertRaises(ValueError):
            list(Frames().cut(frame(7, b"1234567")))
