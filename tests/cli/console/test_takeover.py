"""Tests for :mod:`twisted_exec.cli.console.takeover`, in a session."""

from __future__ import annotations

import signal
from dataclasses import replace

from twisted.internet.defer import Deferred, fail

from tests.cli.console.test_menu import MenuCase
from tests.cli.console.test_people import ADA, PeopleCase, SaidStream
from tests.cli.console.test_session import FakeStream
from twisted_exec.api.status import Forbidden
from twisted_exec.cli.console.escape import parse_escape
from twisted_exec.cli.console.people import NAMES_SECONDS, Person
from twisted_exec.cli.console.takeover import ROLE_SECONDS, TOO_LONG_BEHIND_TAKEOVER
from twisted_exec.cli.console.type_ahead import TYPE_AHEAD_BYTES
from twisted_exec.console.notices import HINT
from twisted_exec.wire.marks import Attendance, Notice, NoticeKind, NoticeRole
from twisted_exec.wire.resize import Role, TerminalSize

OBSERVES = Notice("ada types", NoticeKind.ROLE, NoticeRole.OBSERVER, "ada", hint=HINT)


def roles_of(stream: FakeStream) -> list[Role]:
    """Return the roles that a session has asked for."""
    return [each for each in stream.told if isinstance(each, Role)]


class TakeOverTests(MenuCase):
    """The question before ``~f``."""

    def test_question(self) -> None:
        """A second key takes the console from a user who types; any other key changes nothing."""
        for key, told in ((b"y", [Role.WRITER]), (b"n", []), (b"\r", []), (b"\x03", [])):
            self.setUp()
            stream = self.open()
            self.session.notice(OBSERVES)
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
                self.session.notice(OBSERVES)
                self.assertIn(b"ada types at this console.", self.drawn)
                self.assertEqual(roles_of(stream), told)
                self.assertEqual(stream.sent.replace(b"|", b""), b"a\r" + sent)

    def test_ahead_without_question(self) -> None:
        """Without a writer, keys behind ``~f`` keep their order; a server may never tell the role."""
        free = replace(OBSERVES, writer="")
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
                self.session.notice(replace(OBSERVES, writer=""))
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
        self.session.notice(replace(OBSERVES, writer=""))
        self.session.typed(b"~f")
        self.assertEqual(roles_of(stream), [Role.WRITER])

    def test_writer(self) -> None:
        """A writer takes over from own sessions only after a question; keys for it are not for the machine."""
        for count, key, expected, told in (
            (2, b"\r", "any other sessions of yours only observe.", []),
            (2, b"y", "any other sessions of yours only observe.", [Role.WRITER]),
            (1, b"y\r", "You are the writer of this console already.", []),
        ):
            stream = self.open()
            stream.attendance = Attendance(count, "ada")
            self.session.attendance_changed(stream.attendance)
            self.assertIn(expected, " ".join(self.type(b"~f", key).split()))
            self.session.typed(b"ls\r")
            self.assertEqual((roles_of(stream), stream.sent[-3:]), (told, b"ls\r"))


class TakeOverFromTests(PeopleCase):
    """What the question before ``~f`` says about the writer, for users who may list the sessions."""

    OBSERVES = replace(OBSERVES, writer="bob")

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

    def test_no_question(self) -> None:
        """If the question cannot be asked, the answer that the user types does not reach the machine."""
        stream = self.open()
        self.listing = fail(ConnectionRefusedError("refused"))
        self.session.notice(self.OBSERVES)
        self.session.typed(b"~f")
        self.assertIn("refused", self.drawn.decode())
        self.session.typed(b"y\r")
        self.assertEqual((stream.sent, roles_of(stream)), (b"", []))
        self.session.typed(b"ls\r")
        self.assertEqual(stream.sent, b"ls\r")

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
