"""Tests for :mod:`twisted_exec.cli.console.menu_command`, in a session."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from tests.cli.console.test_menu import MenuCase
from tests.cli.console.test_people import PeopleCase, SaidStream
from tests.cli.console.test_session import FakeStream
from tests.cli.console.test_takeover import OBSERVES
from twisted_exec.cli.console.menu_command import NO_MARKS, NO_MESSAGES
from twisted_exec.wire.marks import Attendance, Notice, NoticeKind, NoticeRole
from twisted_exec.wire.resize import MESSAGE_CHARACTERS, Message
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE


class OverScreenTests(MenuCase):
    """Dialogs over the screen that a program draws, on a terminal of 60 columns and 6 rows."""

    ERASED = b"\x1b7\x1b[m\x1b[5;1H\x1b[K\x1b[6;1H\x1b[K\x1b8"

    def open(self, **more: Any) -> FakeStream:
        self.full_screen = True
        self.redrawn: list[bool] = []
        redraw = self.redrawn.append
        stream = super().open(**{"shows_more": True, "redraw": redraw, **more})
        self.session.data_received(b"\x1b[3;9Hvi")
        return stream

    def rows(self, *pieces: bytes) -> list[str]:
        """Type; return what was drawn over the last rows at last, and check that nothing else was drawn."""
        drawn = self.type(*pieces)
        frames = re.findall(r"\x1b7\x1b\(B\x1b\[m\x1b\[7m(.*?)\x1b8", drawn)
        self.assertEqual(drawn, "".join(f"\x1b7\x1b(B\x1b[m\x1b[7m{each}\x1b8" for each in frames))
        rows = re.findall(r"\x1b\[(\d);1H([^\x1b]*)(?:\x1b\[K)?", frames[-1])
        self.assertEqual([int(row) for row, _ in rows], [*range(7 - len(rows), 7)])
        return [text for _, text in rows]

    def test_question(self) -> None:
        """
        Questions and answers are in the last rows; the last answer of the program stays until a key,
        and the program's picture is drawn again.
        """
        stream = self.open()
        asked = ["Machine a is Running; its power is On."]
        asked.append("Power: f off, r reset (off and on); any other key cancels: ")
        self.assertEqual(self.rows(b"~P"), asked)
        self.assertEqual(self.redrawn, [])
        asked[-1] += "x"
        self.assertEqual(self.rows(b"x"), [*asked, "The power was not changed."])
        self.assertEqual((self.redrawn, stream.sent), ([True], b""))
        self.assertEqual(self.sink.written.count(b"The power was not changed."), 1)
        self.session.typed(b"j")
        self.assertTrue(self.sink.written.endswith(b"\x1b[6;1H\x1b[K\x1b8"), self.sink.written)
        self.assertEqual((self.redrawn, stream.sent), ([True] * 2, b"j"))

    def test_silent_server(self) -> None:
        """Rows that a message has covered are drawn again when the server answers again."""
        stream = self.open()
        stream.overdue_seconds = 0.0
        self.session.typed(b"~s")
        self.session.typed(b"\r")
        self.clock.advance(1)
        self.assertEqual(self.redrawn, [True])
        for lose, find in (
            (partial(setattr, stream, "overdue_seconds", 9.0), lambda: None),
            (partial(self.session.outage, "reset"), partial(self.session.resumed, 3, 0, 0)),
        ):
            lose()
            self.session.typed(b"~s")
            self.redrawn.clear()
            self.session.typed(b"\r")
            self.assertEqual(self.redrawn, [True])
            self.clock.advance(1)
            self.assertEqual(self.redrawn, [True])
            stream.overdue_seconds = 0.0
            find()
            for _ in range(2):
                self.clock.advance(1)
                self.assertEqual(self.redrawn, [True] * 2)

    def test_observer(self) -> None:
        """It is the same for an observer, who reads nothing more behind the last key."""
        self.open()
        self.session.notice(OBSERVES)
        self.assertEqual(
            self.rows(b"~f"),
            [
                "ada types at this console. If you take it over, ada only",
                "  observes.",
                "y takes over; any other key cancels: ",
            ],
        )
        self.rows(b"n")
        self.assertTrue(self.sink.written.endswith(b"\x1b[6;1H\x1b[K\x1b8"), self.sink.written)
        self.assertTrue(self.redrawn)

    def test_line(self) -> None:
        """What the user types is behind the prompt, also after a change of the window's size."""
        self.open()
        self.rows(b"~L")
        for typed, text in ((b"b-", "b-"), (b"\x7f", "b"), (b"x", "bx")):
            row = self.rows(typed)[-1]
            self.assertEqual(row, f"Switch to (number or name; Enter stays here): {text}")
            self.session.window_changed()
        self.assertIn('No name in namespace ns has "bx" in it.', self.rows(b"\r"))

    def test_slow_server(self) -> None:
        """The seconds count in the last row, which the answer replaces."""
        self.open()
        self.client.silent = True
        self.session.typed(b"~P")
        for second in (1, 2):
            self.drawn = b""
            self.clock.advance(second - 0.5)
            row = f"\x1b[6;1Hasking the server about a, {second} s (Ctrl-C cancels)\x1b[K\x1b8"
            self.assertTrue(self.drawn.endswith(row.encode()), self.drawn)
        self.assertEqual(self.rows(b"x\x03"), ["1 key typed meanwhile was discarded"])

    def test_output(self) -> None:
        """Output waits, and the last message is drawn again behind it."""
        self.open()
        self.session.typed(b"~P")
        self.sink.written = b""
        self.session.data_received(b"\x1b[6;1H~")
        self.clock.advance(1)
        self.assertEqual(self.sink.written, b"")
        self.session.typed(b"x")
        self.assertTrue(self.sink.written.startswith(b"\x1b[6;1H~\x1b7\x1b(B"), self.sink.written)
        self.assertTrue(self.sink.written.endswith(b"not changed.\x1b[K\x1b8"), self.sink.written)

    def test_left(self) -> None:
        """A user who leaves in the middle finds no question on the terminal."""
        self.open()
        self.session.typed(b"~P")
        self.session.typed(b"\x1d")
        self.assertTrue(self.sink.written.endswith(self.ERASED), self.sink.written)


class MessageTests(PeopleCase):
    """``~M``."""

    def type(self, *pieces: bytes) -> str:
        self.drawn = b""
        for piece in pieces:
            self.session.typed(piece)
        return self.drawn.decode()

    def messages(self, stream: SaidStream) -> list[str]:
        return [each.text for each in stream.told if isinstance(each, Message)]

    def test_sent(self) -> None:
        """What the user types is sent as a message, and never as input."""
        stream = self.open()
        drawn = self.type(b"~M", b"I  reboot it: \xc3\xa9 ok\r")
        self.assertIn("Message to all viewers: ", drawn)
        self.assertEqual((self.messages(stream), stream.sent), (["I reboot it: \u00e9 ok"], b""))
        self.session.notice(Notice('your message to 1 viewer: "x"', NoticeKind.RECEIPT))
        self.clock.advance(60)
        self.assertEqual(self.said, [])
        self.session.typed(b"ls\r")
        self.assertEqual(stream.sent, b"ls\r")

    def test_alone(self) -> None:
        """A user who is alone reads so before the message is written; a user whose connection is lost reads it later."""
        stream = self.open()
        stream.attendance = Attendance(1, message_characters=MESSAGE_CHARACTERS)
        drawn = " ".join(self.type(b"~M", b"hello\r").split())
        self.assertIn("Nobody else is at this console to read a message.", drawn)
        self.assertNotIn("Message to all viewers", drawn)
        stream.attendance = Attendance(2, lost=1, message_characters=MESSAGE_CHARACTERS)
        self.assertIn("Message to all viewers: ", self.type(b"~M", b"hello\r"))
        self.assertEqual((self.messages(stream), stream.sent), (["hello"], b""))

    def test_cancelled(self) -> None:
        """Nothing is sent without a text, or after Ctrl-C."""
        stream = self.open()
        for keys in (b"\r", b"   \r", b"hello\x03"):
            self.assertIn("Nothing was sent.", self.type(b"~M", keys))
        self.assertEqual((self.messages(stream), stream.sent), ([], b""))

    def test_long(self) -> None:
        """A message ends at the limit that the server has named; the bell rings for further keys."""
        stream = self.open()
        self.assertNotIn("\a", self.type(b"~M", b"x" * 200))
        self.assertEqual(self.type(b"xx", b"\r").count("\a"), 2)
        self.assertEqual(self.messages(stream), ["x" * 200])

    def test_earlier_release(self) -> None:
        """A runtime without messages is sent none, and its machine does not get what the user has typed."""
        stream = self.open()
        stream.attendance = Attendance(2)
        drawn = " ".join(self.type(b"~M", b"hello\r").split())
        self.assertIn(NO_MESSAGES, drawn)
        self.assertEqual((self.messages(stream), stream.sent), ([], b""))

    def test_not_resumable(self) -> None:
        """A session without marks, which would get no receipt, sends none; nor does its machine get the text."""
        self.open()
        stream = FakeStream()
        self.begin(act=self.fail, draw=self.draw)
        self.session.attached(stream)
        self.assertIn(NO_MARKS, self.type(b"~M", b"hello\r"))
        self.assertEqual(stream.sent, b"")

    def test_at_once(self) -> None:
        """A message can be sent before the server has counted the sessions."""
        stream = self.open()
        stream.attendance = None
        self.type(b"~M", b"hello\r")
        self.assertEqual(self.messages(stream), ["hello"])

    def test_observers(self) -> None:
        """A user who may only observe reads why nothing can be sent; a read-only session sends messages."""
        stream = self.open()
        self.session.notice(Notice("x", NoticeKind.ROLE, NoticeRole.DENIED))
        drawn = " ".join(self.type(b"~M").split())
        self.assertIn(f"Only users who may type send messages; {MAY_ONLY_OBSERVE}.", drawn)
        stream = self.open(read_only=True)
        self.type(b"~M", b"hello\r")
        self.assertEqual((self.messages(stream), stream.sent), (["hello"], b""))

    def test_outage(self) -> None:
        """During an outage nothing is sent; without a receipt the user reads that it may not have been."""
        stream = self.open()
        self.session.outage("gone")
        self.assertIn("not sent: the connection is lost", self.type(b"~M", b"hello\r"))
        self.assertEqual(self.messages(stream), [])
        self.session.resumed(1, 0, 0)
        self.type(b"~M", b"hello\r")
        self.said.clear()
        self.clock.advance(5)
        text = "your message may not have been sent: the server has not confirmed it"
        self.assertEqual(self.said, [text])

    def test_read(self) -> None:
        """A message is a notice, which the status repeats with its age: what a machine prints is not there."""
        self.open()
        text = 'message from bob: "hello"'
        self.session.data_received(f"\r\n[twisted-exec: {text}]\r\n".encode())
        self.assertFalse([each for each in self.status() if "hello" in each])
        self.session.notice(Notice(text, NoticeKind.SAID))
        self.assertIn(f"[twisted-exec: {text}]".encode(), self.sink.written)
        self.clock.advance(65)
        self.assertEqual(self.status()[-1], f"  1 min 5 s ago: {text}")
        for number in range(9):
            self.session.notice(Notice(f'message from bob: "{number}"', NoticeKind.SAID))
        self.assertEqual(
            [each[-3:] for each in self.status()[-5:]], [f'"{n}"' for n in range(4, 9)]
        )
