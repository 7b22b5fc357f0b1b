"""
Tests for :mod:`twisted_exec.cli.console.window`, in a session.
"""

from __future__ import annotations

import re
from typing import Any

from tests.cli.console.test_outage import OutageCase
from twisted_exec.wire.marks import Attendance, Notice, NoticeKind, NoticeRole
from twisted_exec.wire.resize import TerminalSize


class WindowTests(OutageCase):
    """The window of an observer, beside the writer's."""

    def begin_observing(self, **settings: Any) -> Any:
        """Begin a session of an observer, whose window and screen the test changes."""
        self.size, self.is_full, self.redrawn = TerminalSize(200, 24), False, 0
        self.refreshed: list[float] = []

        def redraw(is_picture: bool) -> bool:
            if is_picture:
                self.refreshed.append(self.clock.seconds())
            else:
                self.redrawn += 1
                self.sink.written = b""
            return True

        shown = {
            "size": lambda: self.size,
            "full_screen": lambda: self.is_full,
            "redraw": redraw,
            "shows_more": True,
        }
        self.begin(**{**shown, **settings})
        stream = self.attach()
        self.session.notice(Notice("x", NoticeKind.ROLE, NoticeRole.OBSERVER, "bob"))
        return stream

    def attended(self, stream: Any, columns: int, rows: int) -> None:
        stream.attendance = Attendance(2, "bob", size=TerminalSize(columns, rows))
        self.session.attendance_changed(stream.attendance)

    def covering(self) -> list[str]:
        """Return the messages over the last rows of the screen."""
        drawn = self.sink.written.rpartition(b"\x1b7")[2].decode()
        return re.findall(r"\x1b\[\d+;1H(\[.*?\])\x1b", drawn)

    def resized(self, columns: int, rows: int) -> None:
        self.size = TerminalSize(columns, rows)
        self.session.window_changed()

    def test_smaller_window(self) -> None:
        """
        An observer whose window is smaller than the writer's reads it once a program draws the whole
        screen, and for other sizes again, in place of the first message.
        """
        stream = self.begin_observing()
        self.attended(stream, 240, 24)
        self.session.data_received(b"lines")
        self.assertEqual(self.covering(), [])
        self.is_full = True
        line = "[twisted-exec: bob's window is {} and yours {}: this picture is incomplete; enlarge your window]"
        lines = [line.format("240x24", "200x24")]
        for _ in range(2):
            self.session.data_received(b"a screen")
            self.assertEqual(self.covering(), lines)
        self.attended(stream, 200, 40)
        lines = [line.format("200x40", "200x24")]
        self.assertEqual(self.covering(), lines)
        for is_full in (False, True):
            self.is_full = is_full
            self.session.data_received(b"another program")
        self.assertEqual((self.covering(), self.redrawn), (lines, 0))

    def test_equal_again(self) -> None:
        """When the windows are equal, the message about them leaves the screen, and no other message does."""
        stream = self.begin_observing()
        self.is_full = True
        self.attended(stream, 240, 24)
        self.session.inform("other")
        self.assertEqual(len(self.covering()), 2)
        self.attended(stream, 200, 24)
        self.session.data_received(b"a screen")
        self.clock.advance(1)
        self.assertEqual(self.covering(), ["[twisted-exec: other]"])
        self.assertGreater(len(self.refreshed), 0)

    def test_size_in_status(self) -> None:
        """The status has the difference of the windows while a program draws for the writer's."""
        stream = self.begin_observing(act=self.fail, draw=lambda _: None)
        self.is_full = True
        self.attended(stream, 240, 24)
        line = "bob's window is 240x24 and yours 200x24: this picture is incomplete; enlarge your window"
        for is_full, columns, lines in (
            (True, 240, 1),
            (False, 240, 0),
            (True, 240, 1),
            (True, 200, 0),
        ):
            self.is_full = is_full
            self.attended(stream, columns, 24)
            self.session.data_received(b"x\r\n")
            self.session.typed(b"x")
            self.sink.written = b""
            self.said.clear()
            self.session.typed(b"~s")
            shown = self.sink.written.decode() + "".join(self.said)
            self.assertEqual(shown.count(f"  size        {line}"), lines, (is_full, columns))

    def test_smaller_window_of_lines(self) -> None:
        """
        The same holds for a program that draws on the usual screen, such as ``top``, also with more
        rows than the observer's window has; not for a larger window, nor for lines.
        """
        stream = self.begin_observing(act=self.fail, draw=lambda _: None)
        picture = b"\x1b[?25l\x1b[H" + b"a row\r\n" * 38 + b"last"
        line = "[twisted-exec: bob's window is {} and yours 200x24: this picture is incomplete; enlarge your window]"
        lines: list[str] = []
        for output, size, is_told in (
            (b"$ ls\r\n" * 30, (240, 40), False),
            (picture, (240, 40), True),
            (picture, (240, 40), False),
            (b"\x1b[?25l\x1b[Hlast", (100, 24), False),
            (picture, (200, 40), True),
        ):
            self.attended(stream, *size)
            self.session.data_received(output)
            self.clock.advance(1)
            if is_told:
                lines = [line.format("x".join(map(str, size)))]
            self.assertEqual(self.covering(), lines)
        self.assertEqual(self.refreshed, [])
        self.resized(200, 40)
        self.clock.advance(1)
        self.assertEqual((self.covering(), self.redrawn), ([], 1))

    def test_larger_window(self) -> None:
        """The picture may be wrong in a larger window, too; without a difference nobody reads anything."""
        stream = self.begin_observing()
        self.is_full = True
        self.attended(stream, 200, 24)
        self.assertEqual(self.covering(), [])
        self.attended(stream, 200, 20)
        line = "[twisted-exec: bob's window is {0} and yours 200x24: this picture may be wrong at times; make your window {0}]"
        lines = [line.format("200x20")]
        self.assertEqual(self.covering(), lines)
        self.attended(stream, 100, 20)
        self.assertEqual(self.covering(), [line.format("100x20")])

    def test_refreshed(self) -> None:
        """
        The server draws the picture again after a program's output, in a window of another size, at
        most each two seconds.
        """
        stream = self.begin_observing()
        self.is_full = True
        self.attended(stream, 200, 24)
        self.session.data_received(b"a screen")
        self.clock.advance(1)
        self.assertEqual(self.refreshed, [])
        self.attended(stream, 100, 24)
        self.session.data_received(b"a screen")
        self.clock.advance(0.5)
        self.assertEqual(self.refreshed, [1.5])
        self.session.show(b"the picture")
        self.clock.advance(10)
        self.assertEqual(self.refreshed, [1.5])
        for _ in range(12):
            self.session.data_received(b"more of it")
            self.clock.advance(0.25)
            self.session.show(b"the picture")
        self.assertEqual(self.refreshed, [1.5, 12, 14])
        for seconds in (1.5, 8):
            self.clock.advance(seconds)
            self.session.show(b"the picture")
        self.assertEqual(self.refreshed, [1.5, 12, 14, 16])
        for is_full, columns in ((False, 100), (True, 200)):
            self.is_full = is_full
            self.attended(stream, columns, 24)
            self.session.data_received(b"more of it")
            self.clock.advance(3)
        self.assertEqual(len(self.refreshed), 4)

    def test_not_refreshed(self) -> None:
        """After a picture that did not come, the output does not wait for another until one comes."""
        stream = self.begin_observing()
        self.is_full = True
        self.attended(stream, 100, 24)
        for is_shown, times in ((False, 1), (False, 1), (True, 2)):
            if is_shown:  # such as after a key
                self.session.show(b"the picture")
            self.session.data_received(b"more of it")
            self.clock.advance(3)
            self.assertEqual(len(self.refreshed), times)

    def test_resized_window(self) -> None:
        """
        An observer's window that is resized is drawn again by the server, because the machine's
        program does not know its size; messages about earlier sizes go.
        """
        stream = self.begin_observing()
        self.is_full = True
        self.attended(stream, 200, 40)
        line = "[twisted-exec: bob's window is 200x40 and yours {}: this picture is incomplete; enlarge your window]"
        for rows, lines, redrawn in (
            (24, [line.format("200x24")], 0),
            (30, [line.format("200x30")], 1),
            (40, [], 2),
            (24, [line.format("200x24")], 3),
        ):
            if redrawn:
                for each in (rows - 1, rows):
                    self.resized(200, each)
                    self.session.data_received(b"more of it")
                self.clock.advance(0.3)
            self.assertEqual((self.covering(), self.redrawn), (lines, redrawn))
        self.is_full = False
        self.resized(200, 30)
        self.clock.advance(0.3)
        self.assertEqual(self.redrawn, 3)

    def test_smaller_window_untold(self) -> None:
        """Neither a writer nor a user of ``--quiet`` or of a terminal that cannot show it reads it."""
        for settings in ({}, {"quiet": True}, {"shows_more": False}):
            stream = self.begin_observing(**settings)
            if not settings:
                self.session.notice(Notice("x", NoticeKind.ROLE, NoticeRole.WRITER))
            self.is_full = True
            self.attended(stream, 240, 40)
            self.assertEqual(self.covering(), [], settings)
