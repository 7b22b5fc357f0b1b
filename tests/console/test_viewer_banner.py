"""Tests for the banner of a machine, which sessions begin with."""

from __future__ import annotations

from dataclasses import replace

from tests.console.doubles import MemoryStream
from tests.console.viewer_case import ViewerCase
from twisted_exec.testing.console import MarkStream
from twisted_exec.wire.marks import Notice, NoticeKind
from twisted_exec.wire.stream_options import CONSOLE

BANNER = ("ask ops", "before a reboot")


class BannerTests(ViewerCase):
    """A user opens the console of a machine with a banner."""

    def test_marks(self) -> None:
        """
        It comes before the last line of the output, beside it: the position of the output is the same.

        So it is on the screen, and the prompt is behind it.
        """
        self.console.says(b"booted\r\nlogin: ")
        stream = MarkStream(options=CONSOLE)
        self.shared.viewer(BANNER).attached(stream)
        banner = Notice("banner: ask ops | before a reboot", NoticeKind.BANNER)
        self.assertEqual(stream.sent[1:4], [b"booted\r\n", banner, b"login: "])
        self.assertEqual(self.shared.journal.end, len(b"booted\r\nlogin: "))

    def test_drawn_screen(self) -> None:
        """Behind the output of a program that draws the screen, and behind a long line."""
        for output in (b"\r\n\x1b[5;1Hmenu", b"x" * 600):
            self.setUp()
            self.console.says(output)
            stream = MarkStream(options=CONSOLE)
            self.shared.viewer(BANNER).attached(stream)
            self.assertEqual(stream.sent[1], output)

    def test_end_of_full_screen_program(self) -> None:
        """It is on the screen that a user sees if a full-screen program ended in the last line."""
        program = b"$ less\r\n\x1b[?1049h1\r\n2\r\n:\r\x1b[K\x1b[?1049l"
        self.console.says(program + b"$ ")
        stream = MarkStream(options=CONSOLE)
        self.shared.viewer(BANNER).attached(stream)
        banner = Notice("banner: ask ops | before a reboot", NoticeKind.BANNER)
        self.assertEqual(stream.sent[1:4], [program, banner, b"$ "])

    def test_stock_client(self) -> None:
        """A stock client with a terminal reads it before the output; nobody else does."""
        other = self.watch("ann")
        before = other.since()
        stream = MemoryStream(self.shared.viewer(BANNER), user="bob", options=CONSOLE)
        self.console.says(b"login: ")
        self.assertTrue(
            stream.since().startswith(b"\r\n[twisted-exec: banner: ask ops | before a reboot]\r\n")
        )
        self.assertNotIn(b"banner", before + other.since())
        self.assertEqual(self.shared.journal.end, len(b"login: "))

    def test_no_terminal(self) -> None:
        """A client without a terminal gets the output alone."""
        options = replace(CONSOLE, tty=False)
        stream = MemoryStream(self.shared.viewer(BANNER), options=options)
        self.console.says(b"login: ")
        self.assertNotIn(b"banner", stream.since())

    def test_back(self) -> None:
        """A user who comes back does not read it again."""
        stream = MarkStream(options=CONSOLE, user="ann")
        viewer = self.shared.viewer(BANNER)
        viewer.attached(stream)
        viewer.away()
        again = self.resume(viewer, 0, options=CONSOLE)
        self.assertFalse([each for each in again.notices if "ask ops" in each])
