"""
Tests for :mod:`twisted_exec.cli.console.session`.
"""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import fields, replace
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.console.test_floor import Person
from twisted_exec.api.patterns import Pattern, Search
from twisted_exec.cli.console.display import UserTerminal
from twisted_exec.cli.console.escape import EscapeCommand, parse_escape
from twisted_exec.cli.console.script import Expect, scripted_outcome
from twisted_exec.cli.console.session import (
    NO_BREAK,
    NOTHING_TO_ASK,
    TIMED_OUT,
    WHICH_KEY,
    ConsoleSession,
    Outcome,
)
from twisted_exec.cli.console.type_ahead import TYPE_AHEAD_BYTES
from twisted_exec.cli.messages import FAILED_CODE
from twisted_exec.console.floor import Floor
from twisted_exec.console.notices import HINT, RESTARTED, notice
from twisted_exec.streaming.remotecommand.stream import ConsoleStream
from twisted_exec.wire.endings import COMPLETED, MACHINE_DELETED, POOL_DELETED, REVOKED, Ending
from twisted_exec.wire.marks import Attendance, Notice, NoticeKind, NoticeRole, not_sent
from twisted_exec.wire.resize import Break, Role, TerminalSize
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
NO_SPACE = Outcome(1, "cannot write output: No space left on device")


class FakeStream(ConsoleStream):
    """The stream to the machine, as the session sees it; ``told`` records the session's calls."""

    can_half_close = True
    is_resumable = False
    attendance: Attendance | None = None
    overdue_seconds: float | None = 0.0

    def __init__(self, can_half_close: bool = True) -> None:
        self.can_half_close = can_half_close
        self.told: list[Any] = []
        self.sent = b""
        self.flow: Any = None

    def write(self, data: bytes) -> None:
        self.sent += data

    def registerProducer(self, producer: object, streaming: bool) -> None:
        self.flow = producer

    def pause_output(self) -> None:
        self.told.append("pause")

    def resume_output(self) -> None:
        self.told.append("resume")

    def end_input(self) -> None:
        self.told.append("end of input")

    def resize(self, size: TerminalSize) -> None:
        self.told.append((size.columns, size.rows))

    def wish(self, wish: Break | Role) -> None:
        self.told.append(wish)
        self.sent += b"|"

    def leave(self) -> None:
        self.told.append("leave")

    def abort(self) -> None:
        self.told.append("abort")


class FakeSource:
    """The user's input."""

    reading = False
    stopped = False

    def pauseProducing(self) -> None:
        self.reading = False

    def resumeProducing(self) -> None:
        self.reading = True

    def stop(self) -> None:
        self.reading, self.stopped = False, True


class FakeSink:
    """The user's output; ``flush`` plays a reader who took everything."""

    def __init__(self, session: ConsoleSession) -> None:
        self.session = session
        self.written = b""
        self.flow: Any = None
        self.closing = False

    def write(self, data: bytes) -> None:
        self.written += data

    def registerProducer(self, producer: object, streaming: bool) -> None:
        self.flow = producer

    def unregisterProducer(self) -> None:
        self.flow = None

    def loseConnection(self) -> None:
        self.closing = True

    def flush(self) -> None:
        assert self.closing
        self.session.output_lost(None)


class SessionCase(SynchronousTestCase):
    """A session between fakes."""

    def begin(self, timeout: float | None = None, **more: Any) -> None:
        self.clock = Clock()
        parts = {each.name for each in fields(UserTerminal)}
        terminal = UserTerminal(**{key: more.pop(key) for key in parts & {*more}})
        settings: dict[str, Any] = {"interactive": True, "terminal": terminal, **more}
        self.session = ConsoleSession(self.clock, **settings)
        self.source, self.sink = FakeSource(), FakeSink(self.session)
        self.session.start(self.source, self.sink, timeout_seconds=timeout)

    def attach(self, **more: Any) -> FakeStream:
        stream = FakeStream(**more)
        self.session.attached(stream)
        return stream

    def outcome(self) -> Outcome:
        return self.successResultOf(self.session.finished)


class TypingTests(SessionCase):
    """Keys go to the machine, output to the user."""

    def test_both_ways(self) -> None:
        """Typed bytes are sent to the machine; the machine's output is written."""
        self.begin()
        stream = self.attach()
        self.session.typed(b"ls\r")
        self.session.data_received(b"bin\r\n")
        self.assertEqual((stream.sent, self.sink.written), (b"ls\r", b"bin\r\n"))

    def test_size(self) -> None:
        """The terminal's size is sent at the start, and again when it changes."""
        size = TerminalSize(80, 24)
        self.begin(size=lambda: size)
        stream = self.attach()
        size = TerminalSize(132, 43)
        self.session.window_changed()
        self.assertEqual(stream.told, [(80, 24), (132, 43)])

    def test_type_ahead(self) -> None:
        """Keys typed while connecting reach the machine."""
        self.begin()
        self.assertTrue(self.source.reading)
        self.session.typed(b"early")
        self.assertEqual(self.attach().sent, b"early")

    def test_piped_input_waits(self) -> None:
        """Piped input is not read before the stream is open."""
        self.begin(interactive=False)
        self.assertFalse(self.source.reading)
        self.attach()
        self.assertTrue(self.source.reading)


class QuietTests(SessionCase):
    """``--quiet``."""

    def test_writer(self) -> None:
        """Notices that the user is the writer are left out; those that need an act are shown."""
        bob, ann = Person("bob"), Person("ann")
        floor = Floor(Clock())
        floor.join(ann, force=True)
        free = ann.news().encode()
        floor.join(bob, force=True)
        taken, lost = bob.news().encode(), ann.news().encode()
        for quiet, shown in ((True, b"$ " + lost), (False, b"$ " + free + taken + lost)):
            self.begin(quiet=quiet)
            self.attach()
            for output in (b"$ ", free, taken, lost):
                self.session.data_received(output)
            self.assertEqual(self.sink.written, shown)


class EscapeTests(SessionCase):
    """The escape key leaves."""

    def test_leaves(self) -> None:
        """
        The escape key ends the session with exit code 0 and no message; earlier input is sent.
        """
        self.begin(escapes=parse_escape("^],~"))
        stream = self.attach()
        self.session.typed(b"a\x1db")
        self.assertEqual((stream.sent, stream.told), (b"a", ["leave"]))
        self.assertTrue(self.source.stopped)
        self.session.detached("connection closed")
        self.assertNoResult(self.session.finished)
        self.sink.flush()
        self.assertEqual(self.outcome(), Outcome())

    def test_farewell(self) -> None:
        """A user who leaves reads so, by either key, and not when the session ends otherwise."""
        for keys in (b"\x1d", b"\r~."):
            self.begin(escapes=parse_escape("^],~"), farewell=lambda: "Disconnected from vm.")
            self.attach()
            self.session.typed(keys)
            self.session.detached("left")
            self.sink.flush()
            self.assertEqual(self.outcome(), Outcome(line="Disconnected from vm."))

    def test_farewell_before_the_console(self) -> None:
        """A user who leaves before the console is open reads how many keys were not sent."""
        self.begin(escapes=parse_escape("^],~"), farewell=lambda: "Left before.")
        self.session.typed(b"ls\r\x1d")
        self.sink.flush()
        self.assertEqual(self.outcome(), Outcome(line="Left before; 3 keys were not sent."))

    def test_does_not_wait_for_a_dead_peer(self) -> None:
        """A server or reader that hangs delays leaving by at most one second."""
        self.begin(escapes=parse_escape("^],~"))
        stream = self.attach()
        self.session.typed(b"\x1d")
        self.clock.advance(1)
        self.assertEqual(stream.told, ["leave", "abort"])
        self.assertEqual(self.outcome(), Outcome())

    def test_leaves_a_stuck_session(self) -> None:
        """The escape key works while the stream is paused."""
        self.begin(escapes=parse_escape("^],~"))
        stream = self.attach()
        stream.flow.pauseProducing()
        self.assertTrue(self.source.reading)
        self.session.typed(b"x" * 10)
        self.session.typed(b"\x1d")
        self.assertEqual((stream.sent, stream.told), (b"", ["leave"]))

    def test_while_connecting(self) -> None:
        """The key and Ctrl-C cancel the attempt."""
        for key, outcome in ((b"\x1d", Outcome()), (b"\x03", Outcome(signal=signal.SIGINT))):
            self.begin(escapes=parse_escape("^],~"))
            attempt: Deferred[None] = Deferred()
            self.session.connecting(attempt)
            self.session.typed(key)
            self.failureResultOf(attempt, CancelledError)
            self.sink.flush()
            self.assertEqual(self.outcome(), outcome)

    def test_while_opening(self) -> None:
        """The attempt has a second to end the session that the server has just opened."""
        for answers in (True, False):
            self.begin(escapes=parse_escape("^],~"))
            leaving: Deferred[None] = Deferred()

            async def attempt(leaving: Deferred[None] = leaving) -> None:
                try:
                    await Deferred()
                except CancelledError:
                    await leaving

            connecting = Deferred.fromCoroutine(attempt())
            self.session.connecting(connecting)
            self.session.typed(b"\x1d")
            self.sink.flush()
            self.assertNoResult(self.session.finished)
            if answers:
                leaving.callback(None)
            else:
                self.clock.advance(1)
                self.failureResultOf(connecting, CancelledError)
            self.assertEqual(self.outcome(), Outcome())
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_only_from_a_terminal(self) -> None:
        """In a pipe the key's byte is data."""
        self.begin(interactive=False, escapes=parse_escape("^],~"))
        stream = self.attach()
        self.session.typed(b"a\x1db")
        self.assertEqual((stream.sent, stream.told), (b"a\x1db", []))

    def test_ctrl_c_is_the_machines(self) -> None:
        """Once there is a session, Ctrl-C interrupts what runs on the machine."""
        self.begin(escapes=parse_escape("^],~"))
        stream = self.attach()
        self.session.typed(b"\x03")
        self.assertEqual(stream.sent, b"\x03")


class MenuTests(SessionCase):
    """Commands of the escape menu."""

    def test_in_order(self) -> None:
        """A BREAK, a SysRq and roles are sent in order with what is typed; the user reads of the first two."""
        said: list[str] = []
        self.begin(escapes=parse_escape("^],~"), say=said.append)
        stream = self.attach()
        self.session.typed(b"a\r~Bb\r~Sh~f\r~r")
        self.assertEqual(stream.sent, b"a\r|b\r|h|\r|")
        self.assertEqual(stream.told, [Break(), Break(), Role.WRITER, Role.OBSERVER])
        self.assertEqual(said, ["BREAK sent", WHICH_KEY, "BREAK and h sent"])

    def test_no_break(self) -> None:
        """If the console has no BREAK, nothing is sent, and a SysRq asks for no key."""
        said: list[str] = []
        self.begin(escapes=parse_escape("^],~"), say=said.append)
        stream = self.attach()
        stream.attendance = Attendance(1, has_break=False)
        self.session.typed(b"a\r~B")
        self.session.typed(b"~S")
        self.assertEqual((stream.sent, stream.told, said), (b"a\r", [], [NO_BREAK, NO_BREAK]))
        self.session.typed(b"~Sh")
        self.assertEqual((stream.sent, stream.told), (b"a\r", []))

    def test_no_break_without_keys(self) -> None:
        """So it is if another program has the keys, such as ssh."""
        said: list[str] = []
        self.begin(say=said.append)
        stream = self.attach()
        stream.attendance = Attendance(1, has_break=False)
        self.session.handle([EscapeCommand.BREAK])
        self.assertEqual((stream.told, said), ([], [NO_BREAK]))
        stream.attendance = Attendance(1, has_break=True)
        self.session.handle([EscapeCommand.BREAK])
        self.assertEqual((stream.told, said), ([Break()], [NO_BREAK, "BREAK sent"]))

    def test_waits_with_what_is_typed(self) -> None:
        """Menu commands keep their place in input that waits for the stream."""
        self.begin(escapes=parse_escape("^],~"))
        self.session.typed(b"a\r~Bb\r")
        stream = self.attach()
        self.assertEqual(stream.sent, b"a\r|b\r")
        stream.flow.pauseProducing()
        self.session.typed(b"c\r~Sx")
        self.assertEqual(stream.sent, b"a\r|b\r")
        stream.flow.resumeProducing()
        self.assertEqual(stream.sent, b"a\r|b\rc\r|x")

    def test_leaves(self) -> None:
        """~. leaves, even while the stream is paused or not open yet; later input is dropped."""
        for stuck in (False, True):
            self.begin(escapes=parse_escape("^],~"))
            stream = self.attach()
            if stuck:
                stream.flow.pauseProducing()
            self.session.typed(b"~.more\r")
            self.assertEqual((stream.sent, stream.told), (b"", ["leave"]))
        self.begin(escapes=parse_escape("^],~"))
        self.session.typed(b"~.")
        self.sink.flush()
        self.assertEqual(self.outcome(), Outcome())

    def test_help(self) -> None:
        """Help is printed for the user; nothing goes to the machine."""
        said: list[str] = []
        self.begin(escapes=parse_escape("^],~"), say=said.append)
        stream = self.attach()
        self.session.typed(b"~?")
        (told,) = said
        self.assertIn("~B   send BREAK\n", told)
        self.assertEqual((stream.sent, self.sink.written), (b"", b""))

    def test_read_only(self) -> None:
        """In a read-only session, each command that sends something, or switches the machine, prints an explanation."""
        said: list[str] = []
        self.begin(
            escapes=parse_escape("^],~"),
            say=said.append,
            read_only=True,
            act=self.fail,
            draw=lambda _: None,
        )
        stream = self.attach()
        for keys in (b"~B", b"~S", b"~f", b"~r", b"~P"):
            self.session.typed(keys)
        self.assertEqual((stream.sent, stream.told), (b"", []))
        self.assertEqual(said, [NOTHING_TO_ASK] * 5)
        self.session.typed(b"~S")
        self.session.typed(b"~.")
        self.assertEqual(stream.told, ["leave"])

    def test_observer(self) -> None:
        """An observer's text is not sent, so commands work right after it."""
        said: list[str] = []
        self.begin(escapes=parse_escape("^],~"), say=said.append)
        stream = self.attach()
        joined = notice(f"the writer of this console is ada; you are an observer {HINT}")
        for part in (b"$ ", joined[:20], joined[20:]):
            self.session.data_received(part)
        for key in (b"l", b"s", b"~", b"?", b"x", b"~", b"f"):
            self.session.typed(key)
        self.assertEqual(len(said), 1)
        self.assertEqual(stream.told, [Role.WRITER])
        self.session.data_received(notice("you have taken over this console from ada"))
        for key in (b"l", b"s", b"~", b"?"):
            self.session.typed(key)
        self.assertEqual(stream.sent, b"lsx|ls~?")

    def test_break_of_an_observer(self) -> None:
        """Each BREAK or SysRq of an observer is answered, and none is sent; a SysRq needs no key."""
        said: list[str] = []
        self.begin(escapes=parse_escape("^],~"), say=said.append)
        stream = self.attach()
        role = Notice("x", NoticeKind.ROLE, NoticeRole.OBSERVER, writer="ada")
        for news, line in (
            (role, "nothing was sent: you are an observer; ada is the writer"),
            (replace(role, writer=""), "nothing was sent: you are an observer"),
            (replace(role, role=NoticeRole.DENIED), f"nothing was sent: {MAY_ONLY_OBSERVE}"),
        ):
            self.session.notice(news)
            said.clear()
            for keys in (b"~B", b"~B", b"~S", b"~S"):
                self.session.typed(keys)
            self.assertEqual(said, [line] * 4)
        self.assertEqual((stream.sent, stream.told), (b"", []))

    def test_nothing_is_sent_from_a_read_only_session(self) -> None:
        """In a read-only session commands work right after other keys."""
        said: list[str] = []
        self.begin(escapes=parse_escape("^],~"), say=said.append, read_only=True)
        self.attach()
        for key in (b"l", b"~", b"?"):
            self.session.typed(key)
        self.assertEqual(len(said), 1)

    def test_discarded_keys(self) -> None:
        """While keys are discarded, commands work right after other keys; the session begins a line."""
        for keys in (b"ab", b"~", b"~s~"):
            said: list[str] = []
            self.begin(escapes=parse_escape("^],~"), say=said.append)
            self.session.await_approval(lambda: "")
            for byte in "\u00e9\x1b[A".encode():
                self.session.typed(b"%c" % byte)
            self.assertEqual(self.session.discarded_keys, 2)
            for key in (b"x", b"~", b"?", *([b"%c" % key for key in keys])):
                self.session.typed(key)
            self.assertIn("right after Enter", said[0])
            stream = self.attach()
            told = len(said)
            self.session.typed(b"~s")
            self.assertEqual((len(said), stream.sent), (told + 1, b""))

    def test_machine_is_off(self) -> None:
        """The same holds while the machine is off, and right after keys were discarded."""
        said: list[str] = []
        self.begin(escapes=parse_escape("^],~"), say=said.append)
        stream = self.attach()
        for news in (
            Notice("it ended", NoticeKind.INTERRUPTED, why="it ended"),
            not_sent("it ended"),
            Notice("another"),
            RESTARTED,
        ):
            self.session.notice(news)
            self.session.typed(b"ab")
            told = len(said)
            self.session.typed(b"~s")
            self.assertEqual(len(said), told + (news is not RESTARTED), news)
        self.assertTrue(stream.sent.endswith(b"ab~s"))
        # Discarded keys have no further notice, and input that arrives again has an echo at least.
        for news in (Notice("the console line is back"), None):
            self.session.notice(not_sent("the line is lost"))
            for keys in (b"", b"ab", b"c"):
                told = len(said)
                self.session.typed(keys + b"~s")
                self.assertEqual(len(said), told + 1, keys)
            if news is None:
                self.session.data_received(b"login: ")
            else:
                self.session.notice(news)
            self.session.typed(b"ab~s")
            self.assertEqual(len(said), told + 1)
            self.assertTrue(stream.sent.endswith(b"ab~s"))

    def test_next_session(self) -> None:
        """The session that follows begins a line, whatever the former one was sent."""
        escapes, said = parse_escape("^],~"), list[str]()
        for _ in range(2):
            self.begin(escapes=escapes, say=said.append)
            stream = self.attach()
            self.session.typed(b"~?ab")
            self.assertEqual(stream.sent, b"ab")
        self.assertEqual(len(said), 2)

    def test_suspend(self) -> None:
        """~ and Ctrl-Z suspend the client; the user reads when it goes on, and if it was not suspended."""
        for was_stopped, message in (
            (True, "The console of vm goes on."),
            (False, "The shell has no job control: this program was not suspended."),
        ):
            said: list[str] = []
            self.begin(
                escapes=parse_escape("^],~"),
                suspend=lambda was_stopped=was_stopped: was_stopped,
                say=said.append,
                place=lambda: "vm",
            )
            stream = self.attach()
            self.session.typed(b"~\x1als")
            self.assertEqual((said, stream.sent), ([message], b"ls"))

    def test_suspended_by_another_program(self) -> None:
        """The user reads the same line; with piped input there is none."""
        for interactive in (True, False):
            said: list[str] = []
            self.begin(interactive=interactive, say=said.append, place=lambda: "vm")
            self.attach()
            self.session.continued()
            self.assertEqual(said, ["The console of vm goes on."] * interactive)

    def test_suspend_over_a_screen(self) -> None:
        """The program whose screen the shell has overwritten draws it again."""
        self.begin(
            escapes=parse_escape("^],~"),
            suspend=lambda: True,
            full_screen=lambda: True,
            size=lambda: TerminalSize(80, 24),
        )
        stream = self.attach()
        self.session.typed(b"~\x1a")
        self.assertEqual(stream.told[-2:], [(80, 23), (80, 24)])

    def test_only_from_a_terminal(self) -> None:
        """Piped input has no escape menu."""
        self.begin(interactive=False, escapes=parse_escape("^],~"))
        stream = self.attach()
        self.session.typed(b"~.\r~B")
        self.assertEqual((stream.sent, stream.told), (b"~.\r~B", []))


class OtherSideTests(SessionCase):
    """Sessions that the other side ends."""

    def end(self, ending: Ending) -> Outcome:
        self.begin()
        self.attach()
        self.session.data_received(b"tail")
        self.session.ended(ending)
        self.session.detached("connection closed")
        self.assertNoResult(self.session.finished)  # the tail is not written yet
        self.clock.advance(3600)
        self.assertNoResult(self.session.finished)
        self.sink.flush()
        self.assertEqual(self.sink.written, b"tail")
        return self.outcome()

    def test_process_ended(self) -> None:
        """The exit code is that of the process."""
        outcome = self.end(Ending(COMPLETED, "/bin/sh ended with code 7", 7))
        self.assertEqual(outcome.exit_code, 7)
        self.assertEqual(outcome.line, "session ended: Completed: /bin/sh ended with code 7")

    def test_process_ended_well(self) -> None:
        """A session that completes ends with exit code 0 and a message."""
        ending = Ending(COMPLETED)
        outcome = Outcome(0, "session ended: Completed", ending=ending)
        self.assertEqual(self.end(ending), outcome)

    def test_pool_deleted(self) -> None:
        """A pool that was deleted may come back, unlike a machine."""
        for reason, more in (
            (
                POOL_DELETED,
                "; a poollet that starts creates its pool again; open the console again when the pool is back",
            ),
            (MACHINE_DELETED, ""),
        ):
            line = self.end(Ending(reason, "it was deleted")).line
            self.assertEqual(line, f"session ended: {reason}: it was deleted{more}")

    def test_withdrawn(self) -> None:
        """A user whose role was withdrawn reads which role helps, and how an administrator grants it."""
        lacks = (
            'machines.compute.ironcore.dev "vm" is forbidden: User "ada" cannot create resource '
            '"machines/exec" in API group "compute.ironcore.dev" in the namespace "lab"'
        )
        remedy = (
            "; ask an administrator for the role console-user (console-observer suffices for --read-only): "
            "kubectl create rolebinding ada-console-user --clusterrole=console-user --user=ada -n lab"
        )
        for message, more in ((lacks, remedy), (lacks + remedy, ""), ("the token has expired", "")):
            self.begin()
            self.attach()
            self.session.ended(Ending(REVOKED, message))
            self.session.detached("connection closed")
            self.sink.flush()
            self.assertEqual(
                self.outcome().line, f"session ended: AuthorizationWithdrawn: {message}{more}"
            )

    def test_machine_deleted(self) -> None:
        """Any other reason is a failure, and the message names it."""
        ending = Ending(MACHINE_DELETED, 'machine "vm" was deleted')
        line = 'session ended: MachineDeleted: machine "vm" was deleted'
        self.assertEqual(self.end(ending), Outcome(1, line, ending=ending))

    def test_lost(self) -> None:
        """A connection lost without a status is a failure."""
        self.begin()
        self.attach()
        self.session.detached("connection lost before the session's status")
        self.sink.flush()
        self.assertEqual(self.outcome(), Outcome(1, "connection lost before the session's status"))

    def test_refused(self) -> None:
        """A refusal by the server is the one-line message."""
        self.begin()
        self.session.failed('machine "x" not found')
        self.sink.flush()
        self.assertEqual(self.outcome(), Outcome(1, 'machine "x" not found'))


class TimeoutTests(SessionCase):
    """``--timeout`` bounds everything."""

    def test_while_connecting(self) -> None:
        """The timeout cancels the connection attempt."""
        self.begin(timeout=5)
        attempt: Deferred[None] = Deferred()
        self.session.connecting(attempt)
        self.clock.advance(5)
        self.failureResultOf(attempt, CancelledError)
        self.sink.flush()
        self.assertEqual(self.outcome(), Outcome(124, TIMED_OUT))

    def test_step(self) -> None:
        """The message names the step of a connection that is not open yet."""
        self.begin(timeout=5)
        self.session.step = lambda: "TLS"
        self.clock.advance(5)
        self.sink.flush()
        self.assertEqual(self.outcome(), Outcome(124, f"{TIMED_OUT}: TLS"))

    def test_open_session(self) -> None:
        """The timeout ends an open session."""
        self.begin(timeout=5, interactive=False)
        stream = self.attach()
        self.clock.advance(5)
        self.assertEqual(stream.told, ["leave"])
        self.session.detached("connection closed")
        self.sink.flush()
        self.assertEqual(self.outcome(), Outcome(124, TIMED_OUT))

    def test_reader_who_does_not_read(self) -> None:
        """The timeout also limits the writing of the last output."""
        self.begin(timeout=5, interactive=False)
        self.attach()
        self.session.ended(Ending(COMPLETED))
        self.session.detached("connection closed")
        self.clock.advance(5)
        self.assertEqual(self.outcome(), Outcome(124, TIMED_OUT))

    def test_slow_reader_of_a_script(self) -> None:
        """The output of a script is written to its end, which only --timeout and signals cut."""
        for cut in (None, Outcome(124, TIMED_OUT), Outcome(signal=signal.SIGINT)):
            self.begin(timeout=3600, interactive=False)
            self.attach()
            script = Expect(self.clock, [], limited=True)
            script.outcome = Outcome()
            self.session.conclude(script.outcome)
            self.session.detached("")
            self.clock.advance(3599)
            self.assertNoResult(self.session.finished)
            if cut is None:
                self.sink.flush()
            elif cut.signal:
                self.session.interrupted(cut.signal)
            else:
                self.clock.advance(1)
            self.assertEqual(scripted_outcome(script, self.outcome()), cut or Outcome())

    def test_no_timer_is_left(self) -> None:
        """A session that has ended leaves no timer behind."""
        self.begin(timeout=5, interactive=False)
        self.attach()
        self.session.ended(Ending(COMPLETED))
        self.session.detached("connection closed")
        self.sink.flush()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class OutputTests(SessionCase):
    """The user's output."""

    def test_back_pressure(self) -> None:
        """A slow output pauses the stream, a slow stream pauses a pipe."""
        self.begin(interactive=False)
        stream = self.attach()
        self.sink.flow.pauseProducing()
        self.sink.flow.resumeProducing()
        self.assertEqual(stream.told, ["pause", "resume"])
        stream.flow.pauseProducing()
        self.assertFalse(self.source.reading)
        stream.flow.resumeProducing()
        self.assertTrue(self.source.reading)

    def test_type_ahead_is_bounded(self) -> None:
        """Reading of input pauses while too much of it waits for the stream."""
        self.begin()
        stream = self.attach()
        stream.flow.pauseProducing()
        paste = b"x" * TYPE_AHEAD_BYTES
        self.session.typed(paste)
        self.assertFalse(self.source.reading)
        stream.flow.resumeProducing()
        self.assertEqual(stream.sent, paste)
        self.assertTrue(self.source.reading)

    def test_reader_went_away(self) -> None:
        """With a closed standard output, as in ``| head``, the session ends silently."""
        self.begin(interactive=False)
        stream = self.attach()
        self.session.output_lost(None)
        self.assertEqual(stream.told, ["leave"])
        self.session.detached("connection closed")
        self.assertEqual(self.outcome(), Outcome())

    def test_disk_full(self) -> None:
        """Failure to write output fails the session."""
        self.begin(interactive=False)
        self.attach()
        self.session.output_lost(FULL)
        self.session.detached("connection closed")
        self.assertEqual(self.outcome(), NO_SPACE)

    def test_disk_full_at_the_end(self) -> None:
        """Failure to write the last output fails the session, but not one that has another message."""
        for outcome in (Outcome(), Outcome(7), Outcome(124, "late"), Outcome(signal=2)):
            self.begin(interactive=False)
            self.attach()
            self.session.conclude(outcome)
            self.session.output_lost(FULL)
            self.session.detached("")
            is_told = outcome.line or outcome.signal
            self.assertEqual(self.outcome(), outcome if is_told else NO_SPACE)

    def test_disk_full_in_a_script(self) -> None:
        """A script fails if its output cannot be written, before its end or after it."""
        for shown in (b"", b"=> "):
            clock = Clock()
            script = Expect(clock, [("=> ", Search(Pattern("=> ", True)))], limited=True)
            self.begin(interactive=False, script=script)
            script.drive(self.session)
            self.attach()
            clock.pump([0.1] * 4)
            script.received(shown)
            clock.advance(0)
            self.session.output_lost(FULL)
            self.session.detached("")
            self.assertEqual(
                scripted_outcome(script, self.outcome()), Outcome(FAILED_CODE, NO_SPACE.line)
            )


class SignalTests(SessionCase):
    """Signals that end the program."""

    def test_leaves_in_order(self) -> None:
        """A signal ends the session first, then the program."""
        self.begin()
        stream = self.attach()
        self.session.interrupted(signal.SIGTERM)
        self.assertEqual(stream.told, ["leave"])
        self.session.detached("connection closed")
        self.sink.flush()
        self.assertEqual(self.outcome(), Outcome(signal=signal.SIGTERM))

    def test_closed_window(self) -> None:
        """The end of input and SIGHUP both tell of it, in any order: the session ends in order."""
        for signal_is_first in (True, False):
            self.begin()
            stream = self.attach()
            if signal_is_first:
                self.session.interrupted(signal.SIGHUP)
            self.session.input_ended()
            if not signal_is_first:
                self.session.interrupted(signal.SIGHUP)
            self.assertEqual(stream.told, ["leave"], signal_is_first)
            self.session.detached("connection closed")
            self.sink.flush()
            self.outcome()

    def test_while_the_tail_is_written(self) -> None:
        """A signal ends the program even if the last output is not read."""
        self.begin(interactive=False)
        self.attach()
        self.session.ended(Ending(COMPLETED))
        self.session.detached("connection closed")
        self.session.interrupted(signal.SIGINT)
        self.assertEqual(self.outcome(), Outcome(signal=signal.SIGINT))

    def test_attached_too_late(self) -> None:
        """A stream that opens after the end is aborted."""
        self.begin()
        self.session.interrupted(signal.SIGTERM)
        self.assertEqual(self.attach().told, ["abort"])
