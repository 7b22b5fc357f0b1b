"""
Tests for :mod:`twisted_exec.cli.console.outage`, in a session.
"""

from __future__ import annotations

import signal
from typing import Any, cast

from twisted.internet.defer import Deferred

from tests.cli.console.test_session import FakeStream, SessionCase
from tests.streaming.remotecommand.test_pings import Carrier
from twisted_exec.cli.console.display import SessionScript
from twisted_exec.cli.console.escape import parse_escape
from twisted_exec.cli.console.session import TIMED_OUT, Outcome
from twisted_exec.cli.console.type_ahead import SCRIPT_SECONDS
from twisted_exec.console.notices import RESTARTED
from twisted_exec.streaming.remotecommand.client import LOST
from twisted_exec.streaming.remotecommand.pings import SILENCE_SECONDS, Pings
from twisted_exec.wire.marks import Attendance, Notice, NoticeRole, not_sent
from twisted_exec.wire.resize import Break, TerminalSize
from twisted_exec.wire.resume import Position, RoundTrip
from twisted_exec.wire.typed_keys import keys_counted


class ResumableStream(FakeStream):
    """A stream whose notices are marks, and which connects again by itself."""

    is_resumable = True
    overdue_seconds: float | None = 0.0
    round_trip_seconds: float | None = 0.0123
    position: Position | None = Position("0" * 16, 4711)
    transport: Any = None
    echo_seconds: float | None = None
    round_trips: tuple[RoundTrip, ...] = ()
    resumes = missed_bytes = waiting_keys = 0
    unconfirmed = (0, 0)
    owed_seconds = 0.0
    drops_keys = False
    attendance: Attendance | None = None
    session = "3f2a"
    hindrance = ""


class RecordingScript(SessionScript):
    """Records what a session passes on to its script."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def noticed(self, notice: Notice) -> None:
        self.events.append(notice.text)

    def skipped(self, text: str) -> None:
        self.events.append(f"skipped: {text}")

    def outage(self) -> None:
        self.events.append("outage")

    def resumed(self) -> None:
        self.events.append("resumed")

    def failed(self, line: str) -> None:
        self.events.append(f"failed: {line}")


class OutageCase(SessionCase):
    """A session of a resumable stream; ``said`` has the messages of the program."""

    def begin(self, timeout: float | None = None, **more: Any) -> None:
        self.said: list[str] = []
        more.setdefault("escapes", parse_escape("^],~"))
        super().begin(timeout, say=self.said.append, **more)

    def attach(self, **more: Any) -> ResumableStream:
        stream = ResumableStream(**more)
        self.session.attached(stream)
        return stream


class OutageTests(OutageCase):
    """A connection that is lost, and comes back."""

    def test_lines(self) -> None:
        """The user reads that the connection is lost, or why, how to leave, and how long the loss lasted."""
        restarts = "exec-apiserver is restarting"
        for escapes, reason, heading in (
            ("^],~", restarts, f"{restarts}; Ctrl-] leaves, not Ctrl-C"),
            ("~", LOST, "connection lost; ~. leaves, not Ctrl-C"),
            ("none", LOST, "connection lost"),
        ):
            self.begin(escapes=parse_escape(escapes))
            self.attach()
            timers = len(self.clock.getDelayedCalls())
            self.session.outage(reason)
            self.clock.advance(0.49)
            self.assertEqual(self.said, [])
            self.clock.advance(0.01)
            self.assertEqual(self.said, [f"{heading}\nreconnecting"])
            self.session.resumed(3.24, 0, 0)
            self.assertEqual(self.said[1:], ["reconnected after 3.2 s"])
            self.assertEqual(len(self.clock.getDelayedCalls()), timers)

    def test_line_begins_with_boot(self) -> None:
        """
        A command is one behind a new start of the machine, whatever was typed before it; also with a
        runtime of release 0.2.0, whose notice has no kind of its own.
        """
        for notice in (RESTARTED, Notice(RESTARTED.text)):
            self.begin()
            stream = self.attach()
            self.session.typed(b"vi x")
            self.session.notice(notice)
            self.session.typed(b"~?")
            self.assertEqual(stream.sent, b"vi x")

    def test_count(self) -> None:
        """On a terminal the line counts the seconds while nothing is printed behind it."""
        drawn: list[bytes] = []
        size = TerminalSize(80, 6)
        self.begin(draw=drawn.append, size=lambda: size, moves_cursor=True, act=self.fail)
        stream = self.attach()
        self.session.outage(LOST)
        self.clock.pump([0.5, 1, 1])
        self.assertEqual(self.said, ["connection lost; Ctrl-] leaves, not Ctrl-C\nreconnecting"])
        self.assertIn(b"mreconnecting, 2 s\x1b", drawn[-1])
        for count, text in ((1, b"1 key"), (5, b"5 keys")):
            stream.waiting_keys = count
            self.clock.advance(1)
            self.assertRegex(drawn[-1], rb"mreconnecting, \d s; " + text + rb" to send\x1b")
        stream.missed_bytes = 5
        self.session.resumed(4, 0, 0)
        line = b"reconnected after 4.0 s; 5 bytes of output follow"
        self.assertEqual(drawn[-1], b"\x1b7\x1b[A\r\x1b(B\x1b[m" + line + b"\x1b[K\x1b8")
        count = len(drawn)
        self.clock.advance(9)
        self.assertEqual((len(drawn), len(self.said)), (count, 1))

    def test_count_of_late_keys(self) -> None:
        """The count says that keys will not be sent, once the loss has lasted too long."""
        drawn: list[bytes] = []
        size = TerminalSize(80, 6)
        self.begin(draw=drawn.append, size=lambda: size, moves_cursor=True, act=self.fail)
        stream = self.attach()
        self.session.outage(LOST)
        stream.waiting_keys = 14
        self.clock.pump([0.5, 1])
        self.assertRegex(drawn[-1], rb"mreconnecting, \d s; 14 keys to send\x1b")
        stream.drops_keys = True
        self.clock.advance(1)
        self.assertRegex(drawn[-1], rb"mreconnecting, \d s; 14 keys will not be sent\x1b")

    def test_sends_late(self) -> None:
        """A user's keys are not sent late; the input of a script is, which expects that."""
        for interactive in (True, False):
            self.begin(interactive=interactive)
            self.assertIs(self.session.sends_late, not interactive)

    def test_count_behind_messages(self) -> None:
        """The count goes on below what the user has asked for, with the keys that wait."""
        drawn: list[bytes] = []
        size = TerminalSize(80, 6)
        self.begin(draw=drawn.append, size=lambda: size, moves_cursor=True, act=self.fail)
        stream = self.attach()
        self.session.outage(LOST)
        self.clock.advance(0.5)
        for seconds, keys in ((1, b"~s"), (3, b"~?")):
            self.session.typed(keys)
            stream.waiting_keys = seconds
            self.clock.advance(1)
            self.assertRegex(
                self.said[-1], rf"^reconnecting, \d s; {keys_counted(seconds)} to send\Z"
            )
            self.clock.advance(1)
            self.assertRegex(drawn[-1], rb"mreconnecting, \d s; \d")
        self.assertEqual(len(self.said), 5)
        self.session.typed(b"~?")
        self.session.resumed(4, 0, 0)
        self.assertEqual(self.said[-1], "reconnected after 4.0 s")

    def test_count_in_a_narrow_window(self) -> None:
        """In a window that has become too narrow for the line, a part of it counts on in one row."""
        drawn: list[bytes] = []
        size = TerminalSize(80, 6)
        self.begin(draw=drawn.append, size=lambda: size, moves_cursor=True, act=self.fail)
        stream = self.attach()
        stream.waiting_keys = 5
        self.session.outage(LOST)
        self.clock.pump([0.5, 1])
        size = TerminalSize(25, 6)
        self.session.window_changed()
        self.clock.advance(1)
        self.assertEqual(self.said[-1], "reconnecting, 2 s; 5 key")
        self.clock.advance(1)
        self.assertIn(b"mreconnecting, 4 s; 5 key\x1b", drawn[-1])

    def test_leave_with_keys(self) -> None:
        """A user who leaves during a loss reads how many keys are doubtful, and how many were not sent."""
        for farewell, unconfirmed, line in (
            ("Disconnected from vm.", (0, 0), "Disconnected from vm."),
            (
                "Disconnected from vm.",
                (14, 0),
                "Disconnected from vm; 14 keys may not have reached the machine.",
            ),
            ("Disconnected from vm.", (0, 14), "Disconnected from vm; 14 keys were not sent."),
            ("", (0, 1), "1 key was not sent"),
        ):
            self.begin(farewell=lambda line=farewell: line)
            stream = self.attach()
            self.session.outage(LOST)
            stream.unconfirmed = unconfirmed
            self.session.typed(b"\x1d")
            self.session.detached("left")
            self.sink.flush()
            self.assertEqual(self.outcome(), Outcome(line=line))

    def test_leave_observer(self) -> None:
        """An observer, who knows that the machine gets nothing, does not read of keys."""
        self.begin(read_only=True, farewell=lambda: "Disconnected from vm.")
        stream = self.attach()
        self.session.outage(LOST)
        stream.unconfirmed = (0, 3)
        self.session.typed(b"\x1d")
        self.session.detached("left")
        self.sink.flush()
        self.assertEqual(self.outcome(), Outcome(line="Disconnected from vm."))

    def test_leave_unconfirmed(self) -> None:
        """
        While the connection is up, keys are doubtful that the server owes for long, and all if it does
        not answer the end of the session; not those of the last second before an answer.
        """
        doubtful = "Disconnected from vm; 14 keys may not have reached the machine."
        for owed_seconds, answers, line in (
            (1.9, True, "Disconnected from vm."),
            (1.9, False, doubtful),
            (3.0, True, doubtful),
            (3.0, False, doubtful),
        ):
            self.begin(farewell=lambda: "Disconnected from vm.")
            stream = self.attach()
            stream.unconfirmed, stream.owed_seconds = (14, 0), owed_seconds
            self.session.typed(b"\x1d")
            if answers:
                self.session.detached("left")
                self.sink.flush()
            else:
                self.clock.advance(1)
            self.assertEqual(self.outcome(), Outcome(line=line))

    def test_commands_wait(self) -> None:
        """The user reads that a command waits for the connection."""
        for command in (b"~r", b"~f", b"~B"):
            self.begin()
            self.attach()
            self.session.outage(LOST)
            self.session.typed(command)
            self.assertEqual(self.said, ["this command waits until the connection is back"])

    def test_count_over_a_screen(self) -> None:
        """Over a program's screen the lines return after a key has erased them, until the end of the loss."""
        size = TerminalSize(80, 6)
        self.begin(size=lambda: size, shows_more=True, full_screen=lambda: True)
        self.attach()
        self.session.outage(LOST)
        self.clock.advance(0.5)
        for _ in range(3):
            self.session.typed(b"j")
            self.sink.written = b""
            self.clock.advance(1)
            self.assertRegex(
                self.sink.written,
                rb"\[5;1Hconnection lost; Ctrl-\] leaves, not Ctrl-C\x1b\[K"
                rb"\x1b\[6;1Hreconnecting, \d s\x1b\[K\x1b8\Z",
            )
        self.session.resumed(4, 0, 0)
        self.assertTrue(self.sink.written.endswith(b"\x1b[6;1Hreconnected after 4.0 s\x1b[K\x1b8"))
        self.session.typed(b"j")
        self.sink.written = b""
        self.clock.advance(9)
        self.assertEqual(self.sink.written, b"")

    def test_missed_output(self) -> None:
        """The line says how much output the machine has printed meanwhile."""
        self.begin()
        stream = self.attach()
        for count, text in ((1, "1 byte of output follows"), (4096, "4096 bytes of output follow")):
            self.session.outage(LOST)
            self.clock.advance(1)
            stream.missed_bytes = count
            self.session.resumed(1, 0, 0)
            self.assertEqual(self.said[-1], f"reconnected after 1.0 s; {text}")

    def test_short(self) -> None:
        """A loss of less than half a second is not worth a line."""
        self.begin()
        self.attach()
        for _ in range(3):
            self.session.outage("connection lost")
            self.clock.advance(0.4)
            self.session.resumed(0.4, 0, 0)
        self.clock.advance(1)
        self.assertEqual(self.said, [])

    def test_discarded(self) -> None:
        """Keys that were never sent are counted apart."""
        self.begin()
        self.attach()
        for unsent, end in ((1, "1 key typed after that was"), (3, "3 keys typed after that were")):
            self.lose_keys(2 + unsent, unsent)
            line = f"2 keys may not have reached the machine; {end} discarded"
            self.assertEqual(self.said[-1], f"the connection was lost, and {line}")

    def test_uncertain(self) -> None:
        """The user always reads that keys may not have reached the machine."""
        for quiet in (False, True):
            self.begin(quiet=quiet)
            self.attach()
            for keys in (1, 17):
                self.lose_keys(keys)
            begin, end = "the connection was lost, and", "may not have reached the machine"
            self.assertEqual(self.said, [f"{begin} 1 key {end}", f"{begin} 17 keys {end}"])

    def lose_keys(self, dropped: int, unsent: int = 0) -> None:
        """Lose so many keys during a loss of the connection, in which the machine prints nothing."""
        self.session.outage("connection lost")
        self.session.resumed(0.1, dropped, unsent)
        self.session.caught_up()

    def test_uncertain_behind_missed_output(self) -> None:
        """
        The user reads it once, behind the output of the loss, which would scroll it away; meanwhile the
        status has it.
        """
        self.begin()
        self.attach()
        line = "the connection was lost, and 3 keys may not have reached the machine"
        self.session.outage("connection lost")
        self.session.resumed(0.1, 3, 0)
        self.session.data_received(b"much output\r\n")
        self.assertEqual(self.said, [])
        self.session.typed(b"~s")
        self.assertEqual(self.said.pop().split("\n")[-1], f"  0 s ago: {line}")
        self.session.caught_up()
        self.assertEqual(self.said, [line])
        self.session.outage("connection lost")
        self.session.resumed(0.1, 0, 0)
        self.session.caught_up()
        self.assertEqual(self.said, [line])

    def test_uncertain_after_two_losses(self) -> None:
        """If the connection is lost again before, the keys of both losses are counted."""
        self.begin()
        self.attach()
        for dropped, unsent in ((3, 1), (4, 2)):
            self.session.outage("connection lost")
            self.session.resumed(0.1, dropped, unsent)
        self.session.caught_up()
        line = "4 keys may not have reached the machine; 3 keys typed after that were discarded"
        self.assertEqual(self.said, [f"the connection was lost, and {line}"])

    def test_uncertain_at_the_end(self) -> None:
        """A user who leaves before, or whose session ends, reads it then."""
        for end in (lambda: self.session.typed(b"~."), lambda: self.session.detached("gone")):
            self.begin()
            self.attach()
            self.session.outage("connection lost")
            self.session.resumed(0.1, 3, 0)
            end()
            line = "the connection was lost, and 3 keys may not have reached the machine"
            self.assertEqual(self.said, [line])

    def test_discarded_before(self) -> None:
        """What a notice said of keys before the loss does not hold for the keys of the loss."""
        self.begin()
        stream = self.attach()
        self.session.notice(not_sent("the line is lost"))
        self.session.outage("connection lost")
        stream.waiting_keys = 3
        self.session.resumed(0.1, 3, 0)
        self.session.caught_up()
        line = "the connection was lost, and 3 keys may not have reached the machine"
        self.assertEqual(self.said[-1:], [line])
        self.session.typed(b"a~?")
        self.assertEqual(stream.sent, b"a~?")

    def test_observer(self) -> None:
        """Keys that were not to be sent are not counted, unless the user has asked for the floor."""
        self.begin()
        self.attach()
        self.session.notice(not_sent("ann types", NoticeRole.OBSERVER))
        self.session.outage("connection lost")
        self.clock.advance(1)
        self.assertEqual(self.session.dropped(4, 3), "")
        self.session.resumed(1.0, 4, 3)
        self.assertEqual(self.said[-1], "reconnected after 1.0 s")
        self.session.outage("connection lost")
        self.session.typed(b"~f")
        self.session.resumed(1.0, 4, 3)
        self.session.caught_up()
        line = "1 key may not have reached the machine; 3 keys typed after that were discarded"
        self.assertEqual(self.said[-1], f"the connection was lost, and {line}")

    def test_command_behind_discarded_keys(self) -> None:
        """Behind keys that were discarded, ``~`` begins a command: the machine has not all of the line."""
        self.begin()
        stream = self.attach()
        self.session.outage("connection lost")
        self.session.typed(b"reb")
        self.session.resumed(0.1, 3, 0)
        self.session.typed(b"~B")
        self.assertEqual(stream.told, [Break()])

    def test_command_behind_withheld_keys(self) -> None:
        """While the machine gets no input, ``~`` begins a command anywhere."""
        self.begin()
        stream = self.attach()
        for withheld in ("2 people are needed", ""):
            stream.attendance = Attendance(1, withheld=withheld)
            self.session.typed(b"reb~B")
        self.assertEqual((stream.told, stream.sent[-5:]), ([Break()], b"reb~B"))

    def test_quiet(self) -> None:
        """With ``--quiet`` there are no lines about the connection."""
        self.begin(quiet=True)
        self.attach()
        self.session.outage("connection lost")
        self.clock.advance(5)
        self.session.resumed(5, 0, 0)
        self.assertEqual(self.said, [])

    def test_messages_begin_lines(self) -> None:
        """Behind a message the cursor is at the beginning of a line."""
        self.begin()
        self.attach()
        self.session.data_received(b"$ ")
        self.assertTrue(self.session.mid_line)
        self.session.outage("connection lost")
        self.clock.advance(1)
        self.assertFalse(self.session.mid_line)

    def test_keys(self) -> None:
        """The stream gets what is typed during an outage; Ctrl-C is a key for the machine."""
        self.begin()
        stream = self.attach()
        self.session.outage("connection lost")
        self.session.typed(b"\x03ls\r")
        self.session.typed(b"~B")
        self.assertEqual((stream.sent, stream.told), (b"\x03ls\r|", [Break()]))

    def test_leave(self) -> None:
        """The keys that leave work during an outage, at once."""
        for keys in (b"~.", b"x\x1d"):
            self.begin()
            stream = self.attach()
            self.session.outage("connection lost")
            self.session.typed(keys)
            self.assertEqual(stream.told, ["leave"])
            self.session.detached("left")
            self.sink.flush()
            self.assertEqual(self.outcome(), Outcome())
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_refused(self) -> None:
        """A session that cannot be resumed ends with the reason."""
        self.begin()
        self.attach()
        self.session.outage("connection lost")
        self.clock.advance(2)
        self.session.detached('machine "vm" not found')
        self.sink.flush()
        self.assertEqual(self.outcome(), Outcome(1, 'machine "vm" not found'))
        self.assertEqual(self.clock.getDelayedCalls(), [])


class ScriptOutageTests(OutageCase):
    """A script whose connection is lost."""

    def begin(self, timeout: float | None = None, **more: Any) -> None:
        super().begin(timeout, **{"interactive": False, **more})

    def test_linger(self) -> None:
        """An outage is no silence of the machine: the linger time begins anew after it."""
        self.begin(linger_seconds=2)
        stream = self.attach()
        self.session.input_ended()
        self.clock.advance(1.5)
        self.session.outage("connection lost")
        self.clock.pump([60] * 60)
        self.assertEqual(stream.told, [])
        self.session.resumed(3600, 0, 0)
        self.clock.advance(1.9)
        self.assertEqual(stream.told, [])
        self.clock.advance(0.1)
        self.assertEqual(stream.told, ["leave"])

    def test_input_ends_during_an_outage(self) -> None:
        """The linger time does not begin during an outage."""
        self.begin(linger_seconds=2)
        stream = self.attach()
        self.session.outage("connection lost")
        self.session.input_ended()
        self.clock.advance(100)
        self.assertEqual(stream.told, [])
        self.session.resumed(100, 0, 0)
        self.clock.advance(2)
        self.assertEqual(stream.told, ["leave"])

    def test_limit(self) -> None:
        """The minute after the end of input begins anew, too."""
        self.begin()
        stream = self.attach()
        self.session.input_ended()
        self.session.outage("connection lost")
        self.clock.advance(SCRIPT_SECONDS * 2)
        self.session.resumed(SCRIPT_SECONDS * 2, 0, 0)
        self.clock.advance(SCRIPT_SECONDS - 1)
        self.assertEqual(stream.told, ["end of input"])
        self.clock.advance(1)
        self.assertEqual(stream.told, ["end of input", "leave"])

    def test_timeout(self) -> None:
        """``--timeout`` counts during an outage."""
        self.begin(timeout=5)
        self.attach()
        self.session.outage("connection lost")
        self.clock.advance(5)
        self.session.detached("left")
        self.sink.flush()
        self.assertEqual(self.outcome(), Outcome(124, f"{TIMED_OUT}: the connection is lost"))

    def test_interrupt(self) -> None:
        """Ctrl-C ends a script during an outage, and the line about the loss says so."""
        self.begin()
        stream = self.attach()
        self.session.outage("connection lost")
        self.clock.advance(1)
        self.assertEqual(self.said, ["connection lost; Ctrl-C leaves\nreconnecting"])
        self.session.interrupted(signal.SIGINT)
        self.assertEqual(stream.told, ["leave"])
        self.session.detached("left")
        self.sink.flush()
        self.assertEqual(self.outcome(), Outcome(signal=signal.SIGINT))

    def test_uncertain(self) -> None:
        """A script fails if nobody knows whether its input reached the machine."""
        self.begin(linger_seconds=2)
        stream = self.attach()
        self.session.typed(b"reboot\n")
        self.session.input_ended()
        self.session.outage("connection lost")
        self.session.resumed(2, 7, 0)
        self.assertEqual(stream.told, ["leave"])
        self.session.detached("left")
        self.sink.flush()
        line = "the connection was lost, and 7 keys may not have reached the machine"
        self.assertEqual(self.outcome(), Outcome(1, line))
        self.assertEqual(self.said, [])

    def test_script_is_uncertain(self) -> None:
        """A script that drives the session hears of it."""
        script = RecordingScript()
        self.begin(script=script)
        self.attach()
        self.session.outage("connection lost")
        self.session.resumed(2, 1, 0)
        event = "failed: the connection was lost, and 1 key may not have reached the machine"
        self.assertEqual(script.events, ["outage", event])


class SilentStream(ResumableStream):
    """A stream whose server does not answer."""

    overdue_seconds: float | None = 4.0


class PingedStream(ResumableStream):
    """A stream with the pings of a client."""

    pings: Pings | None = None

    @property
    def overdue_seconds(self) -> float | None:
        return self.pings.overdue_seconds if self.pings is not None else 0.0

    def pause_output(self) -> None:
        assert self.pings is not None
        self.pings.pause()

    def resume_output(self) -> None:
        assert self.pings is not None
        self.pings.resume()


class SilenceTests(OutageCase):
    """A server that does not answer."""

    act: Deferred[None]

    async def carry_out(self, *_: Any) -> None:
        await self.act

    def silent(self, *, quiet: bool = False, full_screen: bool = False, stream: Any = None) -> None:
        """Begin at a terminal with a message about a server that has not answered for 4 seconds."""
        self.drawn = b""
        self.size = TerminalSize(60, 24)

        def draw(data: bytes) -> None:
            self.drawn += data

        self.begin(
            draw=draw,
            act=self.carry_out,
            moves_cursor=True,
            quiet=quiet,
            full_screen=lambda: full_screen,
            shows_more=True,
            size=lambda: self.size,
        )
        self.silence = stream or SilentStream()
        self.session.attached(self.silence)

    def drawn_after(self, seconds: float) -> bytes:
        """Return what is drawn or written at the next look, after so many seconds of silence."""
        self.silence.overdue_seconds, drawn, written = (
            seconds,
            len(self.drawn),
            len(self.sink.written),
        )
        self.clock.advance(1)
        return self.drawn[drawn:] + self.sink.written[written:]

    def test_counts(self) -> None:
        """The figure grows in its row, and the cursor stays where it is."""
        self.silent()
        for seconds in (5.0, 6.0):
            row = f"\x1b7\x1b[A\r\x1b(B\x1b[mno answer for {seconds:.0f} s"
            self.assertEqual(self.drawn_after(seconds), f"{row}\x1b[K\x1b8".encode())
        self.assertEqual(
            self.said, ["the server does not answer; Ctrl-] leaves\nno answer for 4 s"]
        )
        self.assertIn(b"mthe server answers again\x1b[K", self.drawn_after(0))
        self.assertEqual(self.drawn_after(0), b"")
        self.assertEqual(len(self.said), 1)

    def test_counts_over_a_screen(self) -> None:
        """Over the screen of a program, the message is drawn again, also after a key has erased it."""
        self.silent(full_screen=True)
        for seconds in (5, 6):
            lines = self.drawn_after(seconds)
            row = b"\x1b[23;1Hthe server does not answer; Ctrl-] leaves\x1b[K"
            self.assertIn(row + b"\x1b[24;1Hno answer for %d s\x1b[K" % seconds, lines)
            self.session.typed(b"x")
        self.assertIn(b"\x1b[24;1H[twisted-exec: ada is back]", self.drawn_notice())
        self.assertIn(b"\x1b[24;1Hno answer for 7 s", self.drawn_after(7))
        self.assertEqual(self.drawn_after(0).count(b"answer"), 1)

    def drawn_notice(self) -> bytes:
        self.sink.written = b""
        self.session.notice(Notice("ada is back"))
        return self.sink.written

    def test_counts_no_more(self) -> None:
        """Nothing is drawn where the message may no longer be: it begins again, unless there is output."""

        def output() -> None:
            self.session.data_received(b"x")

        def message() -> None:
            self.session.notice(Notice("ada is back"))

        def narrow() -> None:
            self.size = TerminalSize(50, 24)
            self.session.window_changed()

        for change in (output, message, narrow, lambda: self.session.typed(b"~?")):
            self.silent()
            self.assertIn(b" 5 s", self.drawn_after(5))
            change()
            self.said.clear()
            self.assertEqual(self.drawn_after(6), b"")
            self.assertEqual(self.said, ["no answer for 6 s"] * (change is not output))
        self.silent(quiet=True)
        self.assertEqual((self.drawn_after(5), self.said), (b"", []))

    def test_prompt(self) -> None:
        """A prompt of one row moves below the message; below one of several rows nothing is drawn."""
        for prompt, counts in ((b"\x1b[1m# \x1b[m", True), (b"#" * 60, False)):
            self.silent()
            self.drawn_after(0)
            self.session.data_received(prompt)
            self.drawn_after(4)
            self.assertIs(b"\x1b[A" in self.drawn_after(5), counts)

    def test_lines(self) -> None:
        """The user reads when a ping has no answer for some seconds, and when the server answers again."""
        self.begin()
        stream: Any = ResumableStream()
        stream.overdue_seconds = 0.0
        self.session.attached(stream)
        for seconds in (1.0, 3.0, 5.0, 6.0):
            stream.overdue_seconds = seconds
            self.clock.advance(1)
        self.assertEqual(
            self.said, ["the server does not answer; Ctrl-] leaves\nno answer for 5 s"]
        )
        stream.overdue_seconds = 0.0
        self.clock.advance(1)
        self.assertEqual(self.said[1:], ["the server answers again"])

    def test_leave(self) -> None:
        """After such a line the escape key does not wait for the server, and before it only a second."""
        for overdue, seconds in ((0.0, 1), (5.0, 0)):
            self.begin()
            stream: Any = ResumableStream()
            stream.overdue_seconds = overdue
            self.session.attached(stream)
            self.clock.advance(1)
            self.session.typed(b"\x1d")
            if seconds:
                self.assertFalse(self.session.finished.called)
            self.clock.advance(seconds)
            self.assertTrue(self.session.finished.called)

    def test_dialog(self) -> None:
        """
        A dialog neither ends the silence nor its count, which goes on from the oldest ping without an answer.

        Only bytes from the server bring the line that it answers again.
        """
        stream, carrier = PingedStream(), cast("Any", Carrier())
        self.silent(stream=stream)
        stream.pings = Pings(self.clock, SILENCE_SECONDS, self.fail)
        stream.pings.start(carrier)
        self.clock.pump([1] * 4)
        told = "no answer for {} s"
        for seconds, open_seconds in ((7, 1), (12, 3)):
            self.act = Deferred()
            self.session.typed(b"~L")
            self.clock.pump([1] * open_seconds)
            self.session.typed(b"\x03")
            self.clock.pump([1] * 2)
            self.assertEqual(self.said[-1], told.format(seconds))
            self.session.typed(b"~s")
            self.assertIn(f"unknown; no answer for {seconds} s", self.said[-1])
        self.act = Deferred()
        self.session.typed(b"~L")
        stream.pings.heard()
        self.session.typed(b"\x03")
        self.clock.pump([1] * 2)
        self.assertEqual(self.said[-1], "the server answers again")
        self.assertEqual(self.said.count("the server answers again"), 1)

    def test_lost(self) -> None:
        """If the connection is lost then, that is what the user reads."""
        self.begin()
        stream: Any = ResumableStream()
        stream.overdue_seconds = 5.0
        self.session.attached(stream)
        self.session.outage("the server has not answered for 20 seconds")
        stream.overdue_seconds = 0.0
        self.clock.advance(1)
        self.session.resumed(1, 0, 0)
        self.clock.advance(1)
        self.assertEqual(
            self.said[1:],
            [
                "the server has not answered for 20 seconds; Ctrl-] leaves, not Ctrl-C\nreconnecting",
                "reconnected after 1.0 s",
            ],
        )
