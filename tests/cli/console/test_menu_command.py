"""Tests for :mod:`twisted_exec.cli.console.menu_command`, in a session."""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, fail

from tests.cli.console.test_menu import MenuCase
from tests.cli.console.test_people import ADA, PeopleCase, SaidStream
from tests.cli.console.test_session import FakeStream
from twisted_exec.api.status import Forbidden
from twisted_exec.cli.console.escape import parse_escape
from twisted_exec.cli.console.menu_command import NO_MARKS, NO_MESSAGES
from twisted_exec.cli.console.people import Person
from twisted_exec.cli.console.session import (
    NAMES_SECONDS,
    NOTHING_TO_ASK,
    ROLE_SECONDS,
    TOO_LONG_BEHIND_TAKEOVER,
)
from twisted_exec.cli.console.type_ahead import TYPE_AHEAD_BYTES
from twisted_exec.console.notices import HINT
from twisted_exec.wire.control_messages import Message, Role, TerminalSize
from twisted_exec.wire.resume import Attendance, Notice, NoticeKind, NoticeRole
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE


def roles_of(stream: FakeStream) -> list[Role]:
    """Return the roles that a session has asked for."""
    return [each for each in stream.told if isinstance(each, Role)]


class TakeOverTests(MenuCase):
    """The question before ``~f``."""

    OBSERVES = Notice("ada types", NoticeKind.ROLE, NoticeRole.OBSERVER, "ada", hint=HINT)

    def test_question(self) -> None:
        """A second key takes the console from a user who types; any other key changes nothing."""
        for key, told in ((b"y", [Role.WRITER]), (b"n", []), (b"\r", []), (b"\x03", [])):
            self.setUp()
            stream = self.open()
            self.session.notice(self.OBSERVES)
            asked = self.type(b"~f").replace("\r\n  ", " ")
            self.assertIn(
                "ada types at this console. If you take it over, ada only observes", asked
            )
            self.assertEqual(roles_of(stream), [])
            self.type(key)
            self.assertEqual(roles_of(stream), told)
            self.session.typed(b"\r")

    def typed_ahead(
        self, typed: bytes, *, attach_first: bool, resumable: bool = True
    ) -> FakeStream:
        """Open a session, and type before the role is known."""
        self.said.clear()
        self.begin(
            escapes=parse_escape("^],~"),
            act=self.fail,
            size=lambda: TerminalSize(60, 6),
            draw=self.draw,
            say=self.said.append,
        )
        stream = SaidStream()
        stream.is_resumable = resumable
        if attach_first:
            self.session.attached(stream)
        self.drawn = b""
        for each in typed:
            self.session.typed(bytes([each]))
        if not attach_first:
            self.assertEqual(self.said, ["this command waits until the console is open"])
            self.session.attached(stream)
        self.assertEqual((stream.sent, roles_of(stream), self.drawn), (b"a\r", [], b""))
        return stream

    def test_ahead(self) -> None:
        """The question comes also if ``~f`` is typed before the role is known, and keys behind it answer it."""
        for attach_first in (False, True):
            for keys, told, sent in (
                (b"n", [], b""),
                (b"y", [Role.WRITER], b""),
                (b"~fls\r", [], b"ls\r"),
            ):
                stream = self.typed_ahead(b"a\r~f" + keys, attach_first=attach_first)
                self.session.notice(self.OBSERVES)
                self.assertIn(b"ada types at this console.", self.drawn)
                self.assertEqual(roles_of(stream), told)
                self.assertEqual(stream.sent.replace(b"|", b""), b"a\r" + sent)

    def test_ahead_without_question(self) -> None:
        """Without a writer, keys behind ``~f`` keep their order; a server may never tell the role."""
        free = replace(self.OBSERVES, writer="")
        for learns in (
            lambda: self.session.notice(free),
            lambda: self.clock.advance(ROLE_SECONDS),
        ):
            stream = self.typed_ahead(b"a\r~fls\r", attach_first=False, resumable=False)
            learns()
            self.assertEqual((stream.sent, roles_of(stream)), (b"a\r|ls\r", [Role.WRITER]))

    def test_ahead_too_long(self) -> None:
        """
        Of more than 64 KiB behind ``~f`` the machine gets nothing, and the user reads how many keys were lost.
        """
        paste = b"x" * (TYPE_AHEAD_BYTES - 4)
        for attach_first in (False, True):
            for more, lost in (
                (b"", 0),
                (b"12345", len(paste) + 10),
                (b"12345\r~B!", len(paste) + 14),
            ):
                stream = self.typed_ahead(b"a\r~fls\r", attach_first=attach_first)
                self.said.clear()
                for each in (paste, b"\n", more):
                    self.session.typed(each)
                self.assertEqual(self.said, [TOO_LONG_BEHIND_TAKEOVER] * bool(lost))
                self.said.clear()
                self.session.typed(b"\x1b[A" * bool(lost))
                self.session.notice(replace(self.OBSERVES, writer=""))
                self.assertEqual(roles_of(stream), [Role.WRITER])
                if lost:
                    expected = f"{lost} keys typed behind the takeover were discarded"
                    self.assertEqual((self.said, stream.sent), ([expected], b"a\r|"))
                    self.session.typed(b"~?")
                    self.assertIn("this help", self.said[-1])
                else:
                    self.assertEqual(stream.sent, b"a\r|ls\r" + paste + b"\n")

    def test_ahead_left(self) -> None:
        """Keys that leave work while ``~f`` waits, and so do the status and the help."""
        for keys, signal_number in ((b"\x1d", 0), (b"\x03", signal.SIGINT)):
            self.said.clear()
            self.begin(
                escapes=parse_escape("^],~"), act=self.fail, draw=self.draw, say=self.said.append
            )
            self.session.typed(b"~f~?" + keys)
            self.assertIn("this help", self.said[-1])
            self.sink.flush()
            self.assertEqual(self.outcome().signal, signal_number)

    def test_no_question(self) -> None:
        """A console without a writer is taken at once."""
        stream = self.open()
        self.session.notice(replace(self.OBSERVES, writer=""))
        self.session.typed(b"~f")
        self.assertEqual(roles_of(stream), [Role.WRITER])

    def test_writer(self) -> None:
        """A writer takes over from own sessions only after a question; keys for it are not for the machine."""
        for count, key, expected, told in (
            (2, b"\r", "other sessions of yours only observe.", []),
            (2, b"y", "other sessions of yours only observe.", [Role.WRITER]),
            (1, b"y\r", "You are the writer of this console already.", []),
        ):
            stream = self.open()
            stream.attendance = Attendance(count, "ada")
            self.session.attendance_changed(stream.attendance)
            self.assertIn(expected, " ".join(self.type(b"~f", key).split()))
            self.session.typed(b"ls\r")
            self.assertEqual((roles_of(stream), stream.sent[-3:]), (told, b"ls\r"))


class OverScreenTests(MenuCase):
    """Dialogs over the screen that a program draws, on a terminal of 60 columns and 6 rows."""

    ERASED = b"\x1b7\x1b[m\x1b[5;1H\x1b[K\x1b[6;1H\x1b[K\x1b8"

    def open(self, **more: Any) -> FakeStream:
        self.full_screen = True
        self.redrawn: list[bool] = []
        redraw = partial(self.redrawn.append, True)
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
        self.session.notice(TakeOverTests.OBSERVES)
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


class TakeOverFromTests(PeopleCase):
    """What the question before ``~f`` says about the writer, for users who may list the sessions."""

    OBSERVES = replace(TakeOverTests.OBSERVES, writer="bob")

    def asked(self, listing: object) -> str:
        """Return the question, after the server's answer."""
        stream = self.open()
        self.listing = listing
        self.session.notice(self.OBSERVES)
        self.session.typed(b"~f")
        self.clock.advance(NAMES_SECONDS)
        self.assertEqual(roles_of(stream), [])
        question = " ".join(self.drawn.decode().split())
        self.session.typed(b"y")
        self.assertEqual(roles_of(stream), [Role.WRITER])
        return question

    def test_writer(self) -> None:
        """The user reads that the writer's connection is lost, or that the writer is the same user."""
        own, bob = Person("bob", is_own=True), Person("bob")
        lost = replace(bob, is_lost=True)
        more = "If you take it over, bob only observes."
        for listing, expected in (
            ([ADA, bob], f"bob types at this console. {more}"),
            ([ADA, bob, lost], f"bob types at this console. {more}"),
            ([ADA, lost], f"bob's connection is lost; bob is the writer. {more}"),
            (
                [own, bob],
                "You type at this console in another session. If you take it over, that session only observes.",
            ),
            ([ADA], f"bob types at this console. {more}"),
            (fail(Forbidden("no")), f"bob types at this console. {more}"),
            (Deferred(), f"bob types at this console. {more}"),
        ):
            self.assertIn(f"{expected} y takes over", self.asked(listing))

    def test_own_sessions(self) -> None:
        """A writer whose other sessions type, too, reads of these in the question."""
        own, other = Person("bob", is_own=True), Person("bob")
        for listing, expected in (
            (
                [own, other],
                "You type at this console in another session, too. If you take it over,",
            ),
            (
                [own, other, other],
                "in 2 other sessions, too. If you take it over, these only observe.",
            ),
            ([own, ADA], "You are the writer of this console already."),
        ):
            stream = self.open()
            self.listing = listing
            stream.attendance = Attendance(len(listing), "bob")
            self.session.attendance_changed(stream.attendance)
            self.session.typed(b"~f")
            self.assertIn(expected, " ".join(self.drawn.decode().split()))


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
        """A user who may only observe reads why nothing can be sent."""
        stream = self.open()
        self.session.notice(Notice("x", NoticeKind.ROLE, NoticeRole.DENIED))
        drawn = " ".join(self.type(b"~M").split())
        self.assertIn(f"Only users who may type send messages; {MAY_ONLY_OBSERVE}.", drawn)
        stream = self.open(read_only=True)
        self.type(b"~M")
        self.assertEqual(self.said, [NOTHING_TO_ASK])
        self.assertEqual(self.messages(stream), [])

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
