"""
Tests for :mod:`twisted_exec.wire.log_frames`.
"""

from __future__ import annotations

from unittest import TestCase

from hypothesis import given
from hypothesis import strategies as st

from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.log_frames import MID_LINE, FrameDecoder, Framing, LogFrame

_EPOCH = "0123456789abcdef"


class FramingTests(TestCase):
    """The response header."""

    def test_header(self) -> None:
        """The header is read back, whatever the case of its name."""
        for framing in (Framing(_EPOCH, 0), Framing(_EPOCH, 2**62, 2**63 - 1)):
            name, value = framing.header()
            self.assertEqual(Framing.of([(b"a", b"b"), (name.lower(), value)]), framing)
        self.assertEqual(value[:31], b"frames; epoch=0123456789abcdef;")

    def test_no_frames(self) -> None:
        """Without the header, or with another one, the body is plain text."""
        for value in (
            b"",
            b"text",
            b"frames; epoch=x; start=1",
            b"frames; epoch=0123456789abcdef",
            b"epoch=0123456789abcdef; start=1",
            b"frames; epoch=0123456789abcdef; start=1; end=x",
            b"frames; epoch=0123456789abcdef; start=\xff",
        ):
            self.assertIsNone(Framing.of([(b"console-log", value)]))
        self.assertIsNone(Framing.of([]))


class FrameTests(TestCase):
    """Frames of a body."""

    @given(
        st.lists(
            st.builds(
                LogFrame,
                st.binary(max_size=40),
                st.integers(0, 2**64 - 1),
                st.integers(0, 2**64 - 1),
                st.integers(0, 3),
            )
        ),
        st.integers(1, 60),
    )
    def test_split(self, frames: list[LogFrame], size: int) -> None:
        """Frames may be split anywhere."""
        body, decoder = b"".join(each.encode() for each in frames), FrameDecoder()
        found = [
            each for at in range(0, len(body), size) for each in decoder.feed(body[at : at + size])
        ]
        self.assertEqual(found, frames)
        self.assertTrue(decoder.is_between)

    def test_format(self) -> None:
        """The head is as documented."""
        self.assertEqual(
            LogFrame(b"ok", 258, 3, MID_LINE).encode(),
            b"\0\0\0\x02\0\0\0\x01\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x03ok",
        )

    def test_incomplete(self) -> None:
        """An incomplete frame is not delivered."""
        decoder = FrameDecoder()
        self.assertEqual(decoder.feed(LogFrame(b"text", 4, 0).encode()[:-1]), [])
        self.assertFalse(decoder.is_between)

    def test_too_large(self) -> None:
        """A frame that is too large is refused before it is buffered."""
        with self.assertRaises(RemoteProtocolError):
            FrameDecoder().feed(b"\xff" * 24)
        with self.assertRaises(RemoteProtocolError):
            FrameDecoder().feed(LogFrame(b"x" * ((1 << 20) + 1), 1, 1).encode())
