"""
Tests for :mod:`twisted_exec.cli.console.display`, in a session.
"""

from __future__ import annotations

import re
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.cli.console.test_outage import OutageCase, RecordingScript
from tests.cli.console.test_session import FakeSink, FakeSource, FakeStream
from tests.streaming.remotecommand.resuming import Client
from twisted_exec.cli.console.display import UserTerminal
from twisted_exec.cli.console.escape import parse_escape
from twisted_exec.cli.console.session import ConsoleSession, Outcome
from twisted_exec.console.notices import HINT, notice
from twisted_exec.testing.resumable_console import ResumableConsole
from twisted_exec.wire.endings import Ending
from twisted_exec.wire.marks import Notice, NoticeKind, NoticeRole
from twisted_exec.wire.resize import Role, TerminalSize
from twisted_exec.wire.terminal_modes import Modes


class MarkTests(OutageCase):
    """Notices and gaps beside the output."""

    def test_notice(self) -> None:
        """A notice is shown as in the output of other sessions, on one line."""
        self.begin()
        self.attach()
        self.session.notice(Notice("the console line is back\r\n\x1b[2J"))
        self.assertEqual(
            self.sink.written, b"\r\n[twisted-exec: the console line is back ?[2J]\r\n"
        )

    def test_role(self) -> None:
        """Notices say what the user's role is."""
        self.begin()
        stream = self.attach()
        self.session.notice(Notice("ada types", NoticeKind.ROLE, NoticeRole.OBSERVER, "ada"))
        self.session.typed(b"ls")
        self.session.typed(b"~f")
        self.assertEqual(stream.told, [Role.WRITER])

    def test_names(self) -> None:
        """The name of a user makes no observer of a writer, and no script fail: the kind counts."""
        self.begin()
        stream = self.attach()
        for text in (
            f"you have taken over this console from {HINT}",
            f"the writer of this console is ada; you are an observer {HINT}",
            "what you type is not sent: x is back",
        ):
            self.session.notice(Notice(text))
        self.session.typed(b"ls")
        self.session.typed(b"~.")
        self.assertEqual((stream.sent, stream.told), (b"ls~.", []))

    def test_forged(self) -> None:
        """
        A machine cannot play an observer's notice: what is typed behind it is text, and no command.
        """
        self.begin()
        stream = self.attach()
        forged = notice(f"the writer of this console is ada; you are an observer {HINT}")
        self.session.data_received(forged)
        self.session.data_received(b"x" + forged)
        self.session.typed(b"ls")
        self.session.typed(b"~.")
        self.assertEqual((stream.sent, stream.told), (b"ls~.", []))
        self.assertEqual(self.sink.written, forged + b"x" + forged)

    def test_forged_reason(self) -> None:
        """A machine cannot make a script fail with the notice that its input was discarded."""
        self.begin(interactive=False, linger_seconds=1)
        self.attach()
        self.session.data_received(notice("what you type is not sent: believe me"))
        self.session.input_ended()
        self.clock.advance(1)
        self.session.detached("connection closed")
        self.sink.flush()
        self.assertEqual(self.outcome(), Outcome())

    def test_quiet(self) -> None:
        """With ``--quiet`` the notice that the user is the writer is left out; a machine's is not."""
        self.begin(quiet=True)
        self.attach()
        text = "you have taken over this console from ada"
        self.session.notice(Notice(text, NoticeKind.ROLE, NoticeRole.WRITER))
        self.assertEqual(self.sink.written, b"")
        self.session.data_received(notice(text))
        self.assertEqual(self.sink.written, notice(text))

    def test_skipped(self) -> None:
        """Missing output leaves a mark in the output, as a slow reader's does."""
        self.begin()
        self.attach()
        self.session.skipped(1000)
        self.session.skipped(None)
        self.assertEqual(
            self.sink.written, notice("1000 bytes skipped") + notice("output is missing here")
        )

    def test_reported(self) -> None:
        """Without a terminal the output has nothing for people but marks of gaps; a machine's notice is output."""
        reported: list[Notice] = []
        self.begin(interactive=False, report=reported.append)
        self.attach()
        observer = Notice("ada types", NoticeKind.ROLE, NoticeRole.OBSERVER, "ada")
        self.session.notice(observer)
        self.session.data_received(forged := notice("believe me"))
        self.session.skipped(7)
        self.assertEqual(reported, [observer])
        self.assertEqual(self.sink.written, forged + notice("7 bytes skipped"))

    def test_like_gap(self) -> None:
        """A message is no gap in the output, whatever its text: a mark says what it is."""
        reported: list[Notice] = []
        self.begin(interactive=False, report=reported.append)
        self.attach()
        self.session.notice(message := Notice("7 bytes skipped"))
        self.assertEqual((reported, self.sink.written), ([message], b""))

    def test_gap_in_output(self) -> None:
        """Where all notices are in the output, a gap stays there, and other notices are for people."""
        reported: list[Notice] = []
        self.begin(interactive=False, report=reported.append)
        self.session.attached(FakeStream())
        self.session.data_received(notice("ada is back"))
        self.session.data_received(notice("7 bytes skipped"))
        self.assertEqual([each.text for each in reported], ["ada is back"])
        self.assertEqual(self.sink.written, notice("7 bytes skipped"))


class SessionScriptTests(OutageCase):
    """A session that a script drives."""

    def test_events(self) -> None:
        """The script gets notices and gaps instead of the user, and hears of outages."""
        script = RecordingScript()
        self.begin(interactive=False, script=script)
        self.attach()
        self.session.notice(Notice("the console line is back"))
        self.session.skipped(7)
        self.session.outage("connection lost")
        self.session.resumed(1, 0, 0)
        self.assertEqual(
            script.events,
            ["the console line is back", "skipped: 7 bytes skipped", "outage", "resumed"],
        )
        self.assertEqual(self.sink.written, b"")

    def test_ordinary(self) -> None:
        """In an ordinary session the script gets the notices that are in the output."""
        script = RecordingScript()
        self.begin(interactive=False, script=script)
        self.session.attached(FakeStream())
        self.session.data_received(b"a")
        self.session.data_received(notice("7 bytes skipped"))
        self.session.data_received(b"b" + notice("not a whole piece"))
        self.assertEqual(script.events, ["skipped: 7 bytes skipped"])
        self.assertEqual(self.sink.written, b"ab" + notice("not a whole piece"))


class BannerTests(OutageCase):
    """The banner of a machine."""

    def test_shown(self) -> None:
        """Only a terminal whose user wants more than the output shows it, also in an ordinary session."""
        banner = Notice("banner: ask ops", NoticeKind.BANNER)
        for shows in (True, False):
            self.begin(shows_more=shows)
            self.session.attached(FakeStream())
            self.session.notice(banner)
            self.session.data_received(banner.output)
            self.session.data_received(b"login: ")
            shown = b"banner: ask ops\r\n" * 2 if shows else b""
            self.assertEqual(self.sink.written, shown + b"login: ")

    def test_script(self) -> None:
        """A script does not get it."""
        script = RecordingScript()
        self.begin(interactive=False, script=script)
        self.session.attached(FakeStream())
        self.session.notice(Notice("banner: ask ops", NoticeKind.BANNER))
        self.assertEqual((script.events, self.sink.written), ([], b""))


class MessageTests(OutageCase):
    """Messages at a terminal of 40 columns and 6 rows, between the output of a machine."""

    is_full = False

    def begin(self, timeout: float | None = None, **more: Any) -> None:
        more = {"shows_more": True, "size": lambda: TerminalSize(40, 6), **more}
        full_screen = lambda: self.is_full  # noqa: E731
        more = {"act": self.fail, "draw": lambda _: None, "full_screen": full_screen, **more}
        super().begin(timeout, **more)
        self.stream = self.attach()

    def tell(self) -> bytes:
        """Tell the user something; return what was written around that."""
        before = len(self.sink.written)
        self.session.typed(b"~s")
        return self.sink.written[before:]

    def test_prompt(self) -> None:
        """The machine's last line moves below a message, with its colours."""
        for output, written in (
            (b"booted\r\n\x1b[1mvm\x1b[m# ", b"\r" + b" " * 11 + b"\r\x1b[1mvm\x1b[m# "),
            (b"\x1b[?2004h$ ls", b"\r    \r$ ls"),
            (b"a line\r\n", b""),
            (b"$ clear\r\n\x1b[H\x1b[2J\x1b[3J$ ", b"\r  \r$ "),
            (b"40%\r50%", b"\r   \r50%"),
            (b"x" * 50, b"x" * 50),
        ):
            self.begin()
            self.session.data_received(output)
            self.assertEqual(self.tell(), written, output)

    def test_machine_is_off(self) -> None:
        """The last line of a machine that is off is not drawn again: nobody could answer it."""
        self.begin()
        self.session.data_received(b"vm# ")
        notice = Notice("off; this session waits", NoticeKind.INTERRUPTED, why="powered off")
        self.session.notice(notice)
        self.assertEqual(self.tell(), b"")
        self.assertTrue(self.sink.written.endswith(b"waits]\r\n"), self.sink.written)

    def test_drawn_line(self) -> None:
        """A line in which a program moves the cursor is left alone, and so is a very long one."""
        for output in (b"\x1b[1;5Hmenu", b"$ abc\x1b[2D", b"$ l\b \b", b"x" * 600):
            self.begin()
            self.session.data_received(output)
            self.assertEqual(self.tell(), b"", output)

    def test_output_alone(self) -> None:
        """A user who wants the output alone, and a pipe, get nothing else."""
        self.begin(shows_more=False)
        self.session.data_received(b"$ ")
        self.assertEqual(self.tell(), b"")

    def test_notice(self) -> None:
        """A long notice is broken at blanks, and the prompt follows it."""
        self.begin()
        self.session.data_received(b"$ ")
        self.session.notice(
            Notice(f"the writer of this console is ada; you are an observer {HINT}")
        )
        rows = [
            b"$ \r  \r[twisted-exec: the writer of this",
            b"  console is ada; you are an observer",
            b"  (~f or --force takes over)]",
            b"$ ",
        ]
        self.assertEqual(self.sink.written, b"\r\n".join(rows))

    def test_margins(self) -> None:
        """The whole screen scrolls for a message, and for the output behind it."""
        self.begin(margins=lambda: b"1;5")
        self.session.notice(Notice("ada is back"))
        self.assertEqual(
            self.sink.written,
            b"\x1b7\x1b[r\x1b8[twisted-exec: ada is back]\r\n",
        )

    def test_no_writer(self) -> None:
        """An observer of a console without a writer reads how to type; there is nobody to take over from."""
        self.begin()
        text = f"this console has no writer; you are an observer {HINT}"
        self.session.notice(Notice(text, NoticeKind.ROLE, NoticeRole.OBSERVER, hint=HINT))
        self.assertTrue(
            self.sink.written.endswith(b"observer (~f to\r\n  type)]\r\n"), self.sink.written
        )

    def test_name_like_hint(self) -> None:
        """The name of a user is shown as it is, also if it reads like the hint behind it."""
        self.begin(size=lambda: TerminalSize(200, 6))
        text = f"{HINT} has left; this console has no writer {HINT}"
        self.session.notice(Notice(text, NoticeKind.ROLE, NoticeRole.OBSERVER, hint=HINT))
        shown = f"{HINT} has left; this console has no writer (~f to type)"
        self.assertEqual(self.sink.written, f"[twisted-exec: {shown}]\r\n".encode())

    def test_full_screen(self) -> None:
        """
        Over a program's screen a notice takes the last row, until the next key has the program's
        picture drawn again: messages on the screen behind it stay.
        """
        redrawn: list[bool] = []
        self.begin(redraw=redrawn.append)
        self.session.data_received(b"\x1b[?1049hvi")
        self.is_full = True
        self.session.notice(Notice("ada is back"))
        row = b"\x1b7\x1b(B\x1b[m\x1b[7m\x1b[6;1H[twisted-exec: ada is back]\x1b[K\x1b8"
        self.assertEqual(self.sink.written, b"\x1b[?1049hvi" + row)
        self.assertEqual(redrawn, [])
        self.session.typed(b"j")
        self.session.typed(b"k")
        self.assertEqual(redrawn, [True])

    def test_long(self) -> None:
        """What has more rows than a program's screen is a view to page through, from its beginning."""
        drawn: list[bytes] = []
        self.is_full = True
        self.begin(draw=drawn.append)
        self.session.typed(b"~?")
        rows = re.findall(r"\x1b\[\d;1H(?:\x1b\[7m)?([^\x1b]*)", b"".join(drawn).decode())
        self.assertTrue(rows[0].startswith("At the start of a line"), rows)
        self.assertRegex(rows[5], r"\A1-\d of \d+ .* q quit")
        self.session.typed(b"jq")
        self.session.typed(b"x")
        self.assertEqual((self.sink.written, self.stream.sent), (b"", b"x"))

    def test_most_rows(self) -> None:
        """Messages cover half of a program's screen at most, unless a single message needs more."""
        self.is_full = True
        self.begin()
        for name in ("ada", "bob", "eve", "ian"):
            self.session.notice(Notice(f"{name} is back"))
        rows = (f"[twisted-exec: {name} is back]" for name in ("bob", "eve", "ian"))
        self.assertEqual(self.covering(), list(rows))
        self.session.notice(Notice("x" * 130))
        word = ["  " + "x" * 38, "x" * 40, "x" * 40, "x" * 12 + "]"]
        self.assertEqual(self.covering(), ["[twisted-exec:", *word])
        self.session.typed(b"j")
        self.session.notice(Notice("ada is back"))
        self.assertEqual(self.covering(), ["[twisted-exec: ada is back]"])

    def test_whole_messages(self) -> None:
        """Of a message that makes room for another one, nothing stays without its beginning."""
        self.is_full = True
        self.begin()
        self.session.notice(Notice("a message of several rows which is long"))
        rows = ["[twisted-exec: a message of several rows", "  which is long]"]
        self.assertEqual(self.covering(), rows)
        new = [f"[twisted-exec: {name} is back]" for name in ("ada", "bob")]
        for name in ("ada", "bob"):
            self.session.notice(Notice(f"{name} is back"))
        self.assertEqual(self.covering(), ["", *new])

    def covering(self) -> list[str]:
        """Return the last rows of the screen as the last messages have drawn them."""
        drawn = self.sink.written.rpartition(b"\x1b7")[2].decode()
        return re.findall(r"\x1b\[\d;1H([^\x1b]*)", drawn)

    def test_drawn_rows(self) -> None:
        """So it is over what a program has drawn on the screen of lines, until that program has left."""
        redrawn: list[bool] = []
        self.begin(redraw=redrawn.append)
        picture = b"\x1b[H\x1b[2Jtop - 12:45\r\nTasks: 99\x1b[5;1H"
        self.session.data_received(picture)
        self.session.notice(Notice("ada is back"))
        row = b"\x1b7\x1b(B\x1b[m\x1b[7m\x1b[6;1H[twisted-exec: ada is back]\x1b[K\x1b8"
        self.assertEqual(self.sink.written, picture + row)
        self.session.typed(b"j")
        self.assertEqual(redrawn, [True])
        self.session.typed(b"\r~s")
        self.session.data_received(b"\x1b[6;1H\r\n# ")
        self.clock.advance(1)
        self.sink.written = b""
        self.session.notice(Notice("eve is back"))
        self.session.typed(b"k")
        self.assertEqual(self.sink.written, b"\r  \r[twisted-exec: eve is back]\r\n# ")
        self.assertEqual(redrawn, [True])

    def test_erased(self) -> None:
        """A user who leaves, and the end of the session, leave no message over what a program has drawn."""
        picture = b"\x1b[H\x1b[2Jtop - 12:45\r\nTasks: 99\x1b[5;1H"
        for end in (
            lambda: self.session.typed(b"\x1d"),
            lambda: self.session.ended(Ending("deleted")),
        ):
            self.begin(escapes=parse_escape("^],~"))
            self.session.data_received(picture)
            self.session.notice(Notice("ada is back"))
            self.sink.written = b""
            end()
            self.assertEqual(self.sink.written, b"\x1b7\x1b[m\x1b[6;1H\x1b[K\x1b8")

    def test_drawn_over(self) -> None:
        """
        A notice is drawn again when the program has drawn, unless it has left, or the user has
        pressed a key, which erases the notice.
        """

        def leave() -> None:
            self.is_full = False
            self.session.data_received(b"\x1b[?1049l")

        row = b"\x1b7\x1b(B\x1b[m\x1b[7m\x1b[6;1H[twisted-exec: ada is back]\x1b[K\x1b8"
        for happens, again in (
            (lambda: None, row),
            (lambda: self.session.typed(b"j"), b"\x1b7\x1b[m\x1b[6;1H\x1b[K\x1b8"),
            (leave, b"\x1b[?1049l"),
        ):
            self.is_full = True
            self.begin()
            self.session.notice(Notice("ada is back"))
            for drawn in (b"\x1b[5;1Hvi", b"\x1b[6;1H~"):
                self.session.data_received(drawn)
                self.clock.advance(0.05)
            happens()
            self.clock.advance(0.06)
            self.clock.advance(1)
            written = row + b"\x1b[5;1Hvi\x1b[6;1H~" + again
            self.assertEqual(self.sink.written, written)

    def test_drawn_over_often(self) -> None:
        """A message does not stay for ever on the screen of a user who presses no key."""
        self.is_full = True
        self.begin()
        self.session.notice(Notice("ada is back"))
        for _ in range(20):
            self.session.data_received(b"\x1b[6;1H~")
            self.clock.advance(0.2)
        self.assertEqual(self.sink.written.count(b"ada is back"), 11)

    def test_drawn_over_and_left(self) -> None:
        """The next program on the other screen does not get the message of the last one."""
        self.is_full = True
        self.begin()
        self.session.notice(Notice("ada is back"))
        for is_full in (False, True):
            self.is_full = is_full
            self.session.data_received(b"~")
            self.clock.advance(0.2)
        self.assertEqual(self.sink.written.count(b"ada is back"), 1)

    def test_greeting(self) -> None:
        """The greeting is a message, too; who attaches the stream may have it shown later."""
        self.begin(greeting=lambda: "Connected.")
        self.assertEqual(self.said, ["Connected."])
        super().begin(greeting=lambda: "Connected.")
        self.session.attached(FakeStream(), greets=False)
        self.assertEqual(self.said, [])
        self.session.greet()
        self.assertEqual(self.said, ["Connected."])


class HistoryTests(SynchronousTestCase):
    """A terminal and what was printed before its connection."""

    def open(self, printed: bytes = b"", **more: Any) -> None:
        """Open a session of which the terminal shows everything."""
        self.clock = Clock()
        self.server = ResumableConsole(self.clock)
        self.server.print(printed)
        terminal = UserTerminal(size=lambda: TerminalSize(20, 4), **more)
        self.session = ConsoleSession(self.clock, interactive=True, terminal=terminal)
        self.sink = FakeSink(self.session)
        self.session.start(FakeSource(), self.sink)

    def connect(self, user: Any = None) -> None:
        self.end = Client(self.server, self.clock, user or self.session)

    def print(self, data: bytes) -> None:
        self.server.print(data)
        self.end.pump()

    def return_later(self, printed: bytes) -> None:
        """Lose the connection, print, and connect again."""
        self.end.cut()
        self.server.print(printed)
        self.end.wait(2)

    def test_margins(self) -> None:
        """The scroll region of an earlier terminal is reset behind the history; the present one is kept."""
        modes = Modes()
        self.open(b"\x1b[1;3ra", watch=modes.feed, margins=lambda: modes.margins)
        self.connect()
        self.print(b"\x1b[1;2rb")
        self.return_later(b"c")
        self.assertEqual(self.sink.written, b"\x1b[1;3ra\x1b7\x1b[r\x1b8\x1b[1;2rbc")
        self.assertEqual(modes.margins, b"1;2")

    def test_margins_in_history(self) -> None:
        """Behind each editor in the output from before the session the whole screen scrolls."""
        modes, reset = Modes(), b"\x1b7\x1b[r\x1b8"
        watched = {"watch": modes.feed, "margins": lambda: modes.margins}
        editor, left = b"\x1b[?1049h\x1b[1;3r~", b"\x1b[?1049l"
        history = editor + left + b"a\r\n" + editor + left + b"b"
        self.open(history, **watched, full_screen=lambda: modes.full_screen)
        self.connect()
        shown = (editor + left + reset + text for text in (b"a\r\n", b"b"))
        self.assertEqual(self.sink.written, b"".join(shown))

    def test_margins_of_editor(self) -> None:
        """Those that an editor leaves behind are for its user's terminal; that user keeps them."""
        for role, reset in ((NoticeRole.OBSERVER, b"\x1b7\x1b[r\x1b8"), (NoticeRole.WRITER, b"")):
            modes = Modes()
            watched = {"watch": modes.feed, "margins": lambda modes=modes: modes.margins}
            self.open(**watched, full_screen=lambda modes=modes: modes.full_screen)
            self.connect()
            self.session.notice(Notice("x", NoticeKind.ROLE, role, "ada"))
            self.print(b"\x1b[?1049h\x1b[1;3r~")
            self.sink.written = b""
            self.print(b"\x1b[?1049l# ")
            self.print(b"ls")
            self.assertEqual(self.sink.written, b"\x1b[?1049l" + reset + b"# ls", role)
