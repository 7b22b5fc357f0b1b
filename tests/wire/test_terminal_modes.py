"""
Tests for :mod:`twisted_exec.wire.terminal_modes`.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.retained import weight
from twisted_exec.wire.terminal_modes import LOOK_BACK_BYTES, Modes, behind_programs, undo_behind


class ModesTests(SynchronousTestCase):
    """Tests for :class:`Modes`."""

    def undo_after(self, *pieces: bytes) -> bytes:
        modes = Modes()
        for piece in pieces:
            modes.feed(piece)
        return modes.undo()

    def test_untouched(self) -> None:
        """Text, cursor movements, and modes that are already reset leave nothing to undo."""
        for output in (
            b"$ ls\r\n",
            b"\x1b[2J\x1b[H\x1b[5;10Hx\x1b[K",
            b"\x1b[1;31mred\x1b[0m \x1b[32mgreen\x1b[m",
            b"\x1b[?25l\x1b[?25h\x1b[?2004h\x1b[?2004l\x1b=\x1b>",
            b"\x1b(0lqk\x1b(B",
            b"\x1b]0;title\x07",
        ):
            self.assertEqual(self.undo_after(output), b"", output)

    def test_editor(self) -> None:
        """Leaving an editor resets its screen, its mouse tracking and its hidden cursor."""
        self.assertEqual(
            self.undo_after(b"\x1b[?1049h\x1b[?1h\x1b=\x1b[?2004h\x1b[?1002;1006h\x1b[?25l"),
            b"\x1b[?1l\x1b[?25h\x1b[?1002l\x1b[?1006l\x1b[?2004l\x1b[?1049l\x1b>",
        )

    def test_full_screen(self) -> None:
        """An editor's screen is a full one until it leaves."""
        modes, shown = Modes(), []
        for output in (b"$ vi\r\n", b"\x1b[?1049h", b"text", b"\x1b[?1049l"):
            modes.feed(output)
            shown.append(modes.full_screen)
        self.assertEqual(shown, [False, True, True, False])

    def test_one_alternate_screen(self) -> None:
        """A program leaves the alternate screen with any of its modes, whichever has switched it on."""
        for on in (b"47", b"1047", b"1049"):
            for off in (b"47", b"1047", b"1049"):
                modes = Modes()
                modes.feed(b"\x1b[?%sh\x1b[?%sl" % (on, off))
                self.assertEqual((modes.full_screen, modes.undo()), (False, b""), (on, off))

    def test_colour(self) -> None:
        """An open text attribute is reset."""
        self.assertEqual(self.undo_after(b"\x1b[0;1mbold"), b"\x1b[m")

    def test_keyboard_protocols(self) -> None:
        """Keyboard protocols are reset."""
        self.assertEqual(self.undo_after(b"\x1b[>1u\x1b[>5u"), b"\x1b[<2u")
        self.assertEqual(self.undo_after(b"\x1b[>1u\x1b[<u"), b"")
        self.assertEqual(self.undo_after(b"\x1b[>4;2m"), b"\x1b[>4m")
        self.assertEqual(self.undo_after(b"\x1b[>4;2m\x1b[>4m"), b"")

    def test_leading_zeros(self) -> None:
        """An emulator writes a number that has not arrived yet as a zero, which the number follows."""
        for padded, plain in ((b"\x1b[>04;02m", b"\x1b[>4;2m"), (b"\x1b[>01u", b"\x1b[>1u")):
            modes, expected = Modes(), Modes()
            modes.feed(padded)
            expected.feed(plain)
            self.assertEqual(modes.reports(), plain)
            self.assertEqual(modes.undo(), expected.undo())

    def test_margins(self) -> None:
        """The whole screen scrolls again, and the cursor stays where it is."""
        whole = b"\x1b7\x1b[r\x1b8"
        self.assertEqual(self.undo_after(b"\x1b[1;", b"5r"), whole)
        self.assertEqual(self.undo_after(b"\x1b[?6h\x1b[3r"), b"\x1b[?6l" + whole)
        for reset in (b"\x1b[r", b"\x1b[0;0r", b"\x1b[;r", b"\x1bc"):
            self.assertEqual(self.undo_after(b"\x1b[1;5r", reset), b"", reset)
        for other in (b"\x1b[?1;5r", b"\x1b[1;2;3;4;5$r"):  # XTRESTORE, DECCARA
            self.assertEqual(self.undo_after(other), b"", other)

    def test_ansi_modes(self) -> None:
        """Characters replace others again, and a line feed keeps the column."""
        self.assertEqual(self.undo_after(b"\x1b[4h\x1b[4;20h"), b"\x1b[4l\x1b[20l")
        for output in (b"\x1b[4;20h\x1b[20;4l", b"\x1b[4h\x1bc", b"\x1b[2h\x1b[12h", b"\x1b[?4h"):
            self.assertEqual(self.undo_after(output), b"", output)

    def test_full_reset(self) -> None:
        """After a full reset by the machine there is nothing to undo."""
        self.assertEqual(self.undo_after(b"\x1b[?1049h\x1b[?25l\x1bc"), b"")

    def test_reports(self) -> None:
        """What an editor has set for keys, mouse and paste can be set in another terminal."""
        modes = Modes()
        modes.feed(b"\x1b[?1049h\x1b[?1h\x1b=\x1b[?2004h\x1b[?1002;1006h\x1b[>4;2m\x1b[>1u\x1b[>5u")
        reports = b"\x1b[?1002h\x1b[?1006h\x1b[?2004h\x1b=\x1b[>4;2m\x1b[>1u\x1b[>5u"
        self.assertEqual(modes.reports(), reports)
        modes.feed(b"\x1b[<u\x1b[?1002;1006;2004l\x1b>\x1b[>4;0m")
        self.assertEqual(modes.reports(), b"\x1b[>1u")

    def test_long_output(self) -> None:
        """A program that began its screen long before the end of an output is left, too."""
        begun = b"$ vi\r\n\x1b[?1049h\x1b[?1002;1006h\x1b=\x1b[1;2"
        drawn = b"\x1b[H~\x1b[K" * 30_000
        undo = b"\x1b[?25h\x1b[?1002l\x1b[?1006l\x1b[?1049l\x1b>"
        output = (begun + drawn + b"\x1b[?25l")[-LOOK_BACK_BYTES:]
        self.assertEqual(undo_behind(output), undo)
        left = begun + drawn[:20_000] + b"\x1b[?1002;1006l\x1b>\x1b[?1049l$ "
        for between in (0, 20_000, 100_000):
            self.assertEqual(undo_behind(left + b"x" * between), b"", between)
        self.assertEqual(undo_behind(b""), b"")

    def test_unfinished(self) -> None:
        """The memory for an unfinished sequence is bounded."""
        modes = Modes()
        for _ in range(1000):
            modes.feed(b"\x1b[?" + b"1;" * 50)
        self.assertLess(weight(modes), 200)

    @given(cuts=st.lists(st.integers(0, 70), max_size=10))
    def test_any_split(self, cuts: list[int]) -> None:
        """Splitting the output does not change the result."""
        whole = b"a\x1b[?1049h\x1b[31mb\x1b[?25l\x1b[>4;1m\x1b[>1u\x1b[1;5r\x1b[4h\x1b(0"
        edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
        pieces = [whole[start:stop] for start, stop in pairwise(edges)]
        self.assertEqual(self.undo_after(*pieces), self.undo_after(whole))

    @given(st.binary(max_size=300))
    def test_anything(self, output: bytes) -> None:
        """Any output is accepted, and after its undo sequence there is nothing left to undo."""
        undo = self.undo_after(output)
        if b"\x1b" not in output:
            self.assertEqual(undo, b"")
        self.assertEqual(self.undo_after(output, b"\x18", undo), b"")


class BehindProgramsTests(SynchronousTestCase):
    """Tests for :func:`behind_programs`."""

    def test_cut(self) -> None:
        """Each piece but the last ends with the end of a full-screen program."""
        self.assertEqual(
            behind_programs(b"$ vi\x1b[?1049htext\x1b[?1049l$ ls\x1b[?47h\x1b[?47l"),
            [b"$ vi\x1b[?1049htext\x1b[?1049l", b"$ ls\x1b[?47h\x1b[?47l", b""],
        )

    def test_no_program(self) -> None:
        """Output without a full-screen program is one piece."""
        self.assertEqual(behind_programs(b"$ ls\r\n"), [b"$ ls\r\n"])
