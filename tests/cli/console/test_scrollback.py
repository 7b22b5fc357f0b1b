"""Tests for :mod:`twisted_exec.cli.console.scrollback`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.console.scrollback import LEAST_BYTES, Scrollback


class ScrollbackTests(SynchronousTestCase):
    """Output of a machine as lines."""

    def lines(self, *pieces: bytes) -> list[str]:
        scrollback = Scrollback()
        for piece in pieces:
            scrollback.add(piece)
        return scrollback.lines()

    def test_lines(self) -> None:
        """Lines have text only, however the output is split; the last one may be unfinished."""
        self.assertEqual(self.lines(), [])
        self.assertEqual(
            self.lines(b"a\x1b[3", b"1mb\r\n\x1b]0;title\x07\xc3", b"\xa9\ta\b\x00c\r\n# "),
            ["ab", "é       ac", "# "],
        )

    def test_bounded(self) -> None:
        """The oldest output is dropped; the newest stays."""
        scrollback = Scrollback()
        line = b"x" * 1023 + b"\n"
        for _ in range(4 * LEAST_BYTES // len(line)):
            scrollback.add(line)
        scrollback.add(b"last\r\n")
        lines = scrollback.lines()
        self.assertEqual(lines[-2:], ["x" * 1023, "last"])
        self.assertGreaterEqual(len(lines), LEAST_BYTES // len(line))
        self.assertLessEqual(sum(map(len, lines)), 2 * LEAST_BYTES)
