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
            self.lines(
                b"a\x1b[3", b"1mb\r\n\x1b]0;title\x07\xc3", b"\xa9\ta\x07\x00x\b\x00c\r\n# "
            ),
            ["ab", "é       ac", "# "],
        )

    def test_draws_rows(self) -> None:
        """A program draws on the screen of lines while it places the cursor in rows."""
        top = b"\x1b[H\x1b[2Jtop - 12:45\x1b[K\r\nTasks: 99\x1b[K\r\n  1 root init\x1b[K\x1b[6;1H"
        for output, expected in (
            (b"# ", False),
            (b"# clear\r\n\x1b[H\x1b[2J\x1b[3J# ", False),
            (b"\x1b[1;1H\x1b[2J# ", False),
            (top, True),
            (top + b"\x1b[?25l\x1b[H", True),
            (top + b"\x1b[25;1H\r\n\x1b[?25h\x1b[K# ", False),
            (top + b"\x1b[Htop - 12:46\r\n\x1b[K\r\n", True),
            (top + b"\x1b[Htop - 12:46\r\n\x1b[K\r\n\r\n  2 root", True),
            (top + b"\x1b[Htop - 12:46\r\n\x1b[K\r\n\r\n  2 root\x1b[5;1H\r\n# ", False),
            (b"\x1b[Hone\r\ntwo\r\nthree\r\nfour\r\n# ", False),
            (b"\x1b[2J\x1b[H# ", False),
            (b"\x1b[1;1H\x1b[m\x1b[J# ", False),
            (b"\x1b[?25l\x1b[H\x1b[2Jtop - 12:45\r\nTasks: 99", True),
            (b"\x1b[?25l\x1b[H\x1b[2Jtop\r\n\x1b[5;1H\r\n\x1b[?25h# \x1b[H\x1b[2J# ", False),
            (b"\x1b[5;1Hmenu\x1b[H\x1b[J# ", False),
            (b"\x1b[05;80H", True),
            (b"\x1b[12dSetup", True),
            (b"\x1b7\x1b[r\x1b[999;999H\x1b[6n\x1b8# ", False),
            (b"line\r\n\x1b[s\x1b[24;0fProgress: [ 10%]\x1b[u", False),
            (b"\x1b[2;1Hmenu\x1b7\x1b[24;1H12:45\x1b8", True),
            (b"\x1b[?1049h\x1b[2;1H~\x1b[24;1H\x1b[K\x1b[?1049l# ", False),
            (b"\x1b[3;1Hmenu\x1bc# ", False),
            (b"\x1b[3;1H" + b"x" * (32 << 10), False),
        ):
            scrollback = Scrollback()
            scrollback.add(output)
            self.assertEqual(scrollback.draws_rows(4), expected, output[:80])

    def test_last_line(self) -> None:
        """The line that the machine has not ended goes on behind a program's other screen."""
        drawn = b"\x1b[1;1H\x1b[2J~\r\n" + b"\x1b[24;1H\x1b[K~" * 100
        for output, expected in (
            (b"", b""),
            (b"one\r\n", b""),
            (b"one\r\n\x1b[?2004h\x1b[1m# \x1b[m", b"\x1b[1m# \x1b[m"),
            (b"one\x1b[H\x1b[2J\x1b[3J# ", b"# "),
            (b"# ab\x08", b""),
            (b"x" * 600, b""),
            (b"# vi\r\n\x1b[?1049h\x1b[?1h" + drawn + b"\x1b[?1l\x1b[?1049l\x1b[>4;m# ", b"# "),
            (b"\r\nfile: \x1b[?1049h" + drawn + b"\x1b[?1049lsaved", b"file: saved"),
            (b"\n$ \x1b7\x1b[?47h" + drawn + b"\x1b[2J\x1b[?47l\x1b8ab", b"$ ab"),
            (drawn + b"\x1b[?1049l# ", b"# "),
            (
                b"\n\x1b[?1049h" + drawn + b"\x1b[?1049l\x1b[?1049h" + drawn + b"\x1b[?1049l# ",
                b"# ",
            ),
            (b"\n$ \x1b[?1049h\x1b[2Jname: ", b""),
            (b"\n$ \x1b[?1047h" + drawn + b"\x1b[?1047l# ", b""),
        ):
            scrollback = Scrollback()
            scrollback.add(output)
            self.assertEqual(scrollback.last_line(), expected, output[-80:])

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
