"""
Tests for :mod:`twisted_exec.console.interruption`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ConnectionDone, ConnectionRefusedError, ProcessDone
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.console.floor import ANNOUNCE_SECONDS
from twisted_exec.console.line import LineEnded
from twisted_exec.console.notices import LINE_AGAIN, RESTARTED, TYPED_AFTER, TYPED_BEFORE, notice
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.console.shared_console_limits import ConsoleLimits
from twisted_exec.console.viewer import Viewer
from twisted_exec.streaming.interfaces import (
    LINE_LOST,
    MACHINE_DELETED,
    POWERED_OFF,
    Break,
    Ending,
    Position,
    Role,
    TerminalSize,
)
from twisted_exec.testing.console import MarkStream
from twisted_exec.wire.marks import At, Notice, NoticeKind
from twisted_exec.wire.notices import wrapped_notice
from twisted_exec.wire.stream_options import CONSOLE

from .doubles import MemoryConsole, MemoryStream

CRASH = Ending(LINE_LOST, "the emulator ended")
OFF = Ending(POWERED_OFF, "the machine was powered off")
WAITS = wrapped_notice(
    notice("the emulator ended; this session waits up to 60 s for the machine to start again")
)
OFF_WAITS = wrapped_notice(
    notice(
        "the machine was powered off; this session waits up to 60 s for the machine to start again"
    )
)
AGAIN = notice("the machine has started again")
NOT_SENT = notice("what you type is not sent: the emulator ended")


class InterruptionCase(SynchronousTestCase):
    """A console whose line is open, and whose machine restarts after each crash."""

    paced = False

    def setUp(self) -> None:
        self.clock = Clock()
        self.console = MemoryConsole(paced=self.paced)
        self.boots: list[int] = []
        self.shared = SharedConsole(
            self.console,
            self.clock,
            limits=ConsoleLimits(restart_seconds=60),
            before_output=lambda: self.boots.append(self.shared.journal.end),
            restarts=lambda ending, has_exited: not has_exited,
        )
        self.successResultOf(self.shared.open())

    def attach(self, **options: Any) -> MemoryStream:
        options.setdefault("options", CONSOLE)
        return MemoryStream(self.shared.viewer(), **options)

    def crash(self) -> None:
        self.console.close(LineEnded(CRASH))

    def next_console(self, **more: bool) -> MemoryConsole:
        self.console = MemoryConsole(paced=self.paced, **more)
        self.shared.use(self.console)
        return self.console

    def restart(self) -> None:
        """The next line is open."""
        self.next_console()
        self.successResultOf(self.shared.open())


class RestartTests(InterruptionCase):
    """A crash, and the next boot."""

    def test_output(self) -> None:
        """Output of the next boot follows that of the last one, with two notices between."""
        ann = self.attach()
        self.console.says(b"# ")
        over = self.shared.when_line_over()
        self.crash()
        self.assertEqual(self.successResultOf(over), CRASH)
        self.assertEqual(ann.since(), b"# " + WAITS)
        self.restart()
        self.console.says(b"login: ")
        self.assertEqual(ann.since(), AGAIN + b"login: ")
        self.assertEqual(self.shared.journal.read(0, 100), b"# login: ")
        self.assertEqual(self.boots, [0, 2])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_input(self) -> None:
        """Input in between is discarded, which its user reads once, and is counted; that of the next boot arrives."""
        ann = self.attach()
        self.crash()
        ann.since()
        ann.viewer.data_received(b"rm ")
        ann.viewer.data_received(b"-r x\n")
        self.assertEqual(ann.since(), NOT_SENT)
        self.restart()
        self.assertEqual(ann.since(), AGAIN + notice(f"8 keys {TYPED_BEFORE} were discarded"))
        ann.viewer.data_received(b"ls\n")
        self.assertEqual(self.console.heard(), b"ls\n")
        self.assertEqual(ann.viewer.bytes_to_machine, 3)

    def test_input_that_waited(self) -> None:
        """Input that the line held back when it ended is discarded, too."""
        ann = self.attach()
        self.console.line.pauseProducing()
        self.assertTrue(ann.input_paused)
        self.crash()
        self.assertFalse(ann.input_paused)
        self.restart()
        self.assertFalse(ann.input_paused)

    def test_floor(self) -> None:
        """The writer stays the writer; roles change as ever."""
        ann, bob = self.attach(), self.attach(user="bob")
        self.crash()
        self.assertEqual(self.shared.floor.writer, "ann")
        bob.viewer.wished(Role.WRITER)
        self.restart()
        self.assertEqual(self.shared.floor.writer, "bob")
        ann.viewer.data_received(b"x")
        bob.viewer.data_received(b"y")
        self.assertEqual(self.console.heard(), b"y")

    def test_size(self) -> None:
        """The next line has the newest size."""
        ann = self.attach()
        ann.viewer.window_changed(TerminalSize(80, 25))
        self.crash()
        self.next_console()
        ann.viewer.window_changed(TerminalSize(132, 50))
        self.successResultOf(self.shared.open())
        self.assertEqual(self.console.sizes, [TerminalSize(80, 25), TerminalSize(132, 50)])

    def test_break(self) -> None:
        """A BREAK in between does nothing."""
        ann = self.attach()
        self.crash()
        ann.viewer.wished(Break())
        self.assertEqual(self.clock.getDelayedCalls(), [self.shared.interruption._timer])

    def test_leaves(self) -> None:
        """A user who leaves in between frees the floor."""
        ann, bob = self.attach(), self.attach(user="bob")
        self.crash()
        ann.drop()
        self.assertEqual(self.shared.floor.writer, "nobody")
        self.clock.advance(ANNOUNCE_SECONDS)
        self.assertIn(b"ann has left", bob.since())

    def test_away(self) -> None:
        """A user whose connection was lost before the crash is still away, and has its session."""
        ann = self.attach()
        ann.viewer.away()
        self.crash()
        self.restart()
        self.assertEqual(self.shared.viewers, (ann.viewer,))
        self.assertFalse(ann.viewer.is_ending)

    def test_newcomer(self) -> None:
        """A user who comes in between types for the next boot, which gets the input."""
        self.attach()
        self.crash()
        late = self.attach()
        self.assertTrue(late.input_paused)
        self.assertEqual(late.since(), b"")
        self.restart()
        self.assertFalse(late.input_paused)
        self.assertEqual(late.since(), b"")

    def test_script(self) -> None:
        """Sessions without a terminal, and those whose input has ended, end with the line."""
        pipe = self.attach(options=None)
        ended = self.attach()
        ended.viewer.input_ended()
        self.crash()
        self.assertEqual((pipe.ending, ended.ending), (CRASH, CRASH))

    def test_input_ends_meanwhile(self) -> None:
        """A script whose input ends in between fails: the machine did not get all of it."""
        ann = self.attach()
        self.crash()
        ann.viewer.input_ended()
        self.clock.advance(2)
        self.assertEqual(ann.ending, Ending(LINE_LOST, "the emulator ended"))

    def test_exit(self) -> None:
        """A command that ends itself with an exit code ends its sessions."""
        ann = self.attach()
        self.console.close(ProcessDone(0))
        assert ann.ending is not None
        self.assertEqual(ann.ending.exit_code, 0)

    def test_crash_loop(self) -> None:
        """Each crash has its notices, and its own time."""
        ann = self.attach()
        for _ in range(3):
            self.crash()
            self.clock.advance(59)
            self.restart()
        self.assertEqual(ann.since(), (WAITS + AGAIN) * 3)

    def test_late_output(self) -> None:
        """The rest of the old line's output is read behind the notice, and before the new line's."""
        ann = self.attach()
        console = self.console
        self.shared.interrupt(OFF)
        console.says(b"bye")
        self.restart()
        self.console.says(b"hi")
        self.assertEqual(ann.since(), OFF_WAITS + b"bye" + AGAIN + b"hi")


class EndTests(InterruptionCase):
    """Interruptions that last too long, or that an ending follows."""

    def test_too_long(self) -> None:
        """After its time a session ends as its line did; nobody reads that the others leave."""
        ann, bob = self.attach(), self.attach(user="bob")
        self.crash()
        bob.since()
        self.clock.advance(60)
        self.assertEqual((ann.ending, bob.ending), (CRASH, CRASH))
        self.assertEqual(bob.since(), b"")
        self.assertEqual(self.shared.viewers, ())
        self.restart()
        self.assertEqual(self.attach().ending, None)

    def test_cannot_start(self) -> None:
        """Attempts that fail do not extend the time, and end no session."""
        ann = self.attach()
        self.crash()
        for _ in range(5):
            self.clock.advance(10)
            refused = self.next_console(later=True)
            opening = self.shared.open()
            assert refused.opening is not None
            refused.opening.errback(ConnectionRefusedError())
            self.failureResultOf(opening, ConnectionRefusedError)
            self.assertEqual(self.successResultOf(self.shared.when_line_over()).reason, LINE_LOST)
        self.assertIsNone(ann.ending)
        self.clock.advance(10)
        self.assertEqual(ann.ending, CRASH)

    def test_too_long_while_starting(self) -> None:
        """The end of the time does not cancel a start; those who came meanwhile wait for it."""
        ann = self.attach()
        self.crash()
        console = self.next_console(later=True)
        opening = self.shared.open()
        late = self.attach(user="bob")
        self.clock.advance(60)
        self.assertEqual((ann.ending, late.ending), (CRASH, None))
        assert console.opening is not None
        console.opening.callback(None)
        self.successResultOf(opening)
        late.viewer.wished(Role.WRITER)
        late.viewer.data_received(b"x")
        self.assertEqual(console.heard(), b"x")

    def test_ended(self) -> None:
        """An ending of the console is that of all sessions, at once."""
        deleted = Ending(MACHINE_DELETED, "deleted")
        ann = self.attach()
        self.crash()
        late = self.attach()
        self.shared.end(deleted)
        self.assertEqual((ann.ending, late.ending), (deleted, deleted))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_power_cycle(self) -> None:
        """A line that is closed ends no session before its time."""
        ann = self.attach()
        self.shared.interrupt(OFF)
        self.assertTrue(self.console.closed)
        self.assertEqual(ann.since(), OFF_WAITS)
        self.clock.advance(30)
        self.restart()
        self.assertEqual(ann.since(), AGAIN)
        self.clock.advance(60)
        self.assertIsNone(ann.ending)

    def test_off_while_it_waits(self) -> None:
        """The newest reason counts; the time counts from the end of the line."""
        ann = self.attach()
        self.crash()
        late = self.attach()
        self.clock.advance(30)
        self.shared.interrupt(OFF)
        self.assertEqual(ann.since(), WAITS + OFF_WAITS)
        self.assertEqual(late.since(), OFF_WAITS)
        self.clock.advance(30)
        self.assertEqual((ann.ending, late.ending), (OFF, OFF))

    def test_off_while_starting(self) -> None:
        """A start that is cancelled is an interruption that goes on."""
        ann = self.attach()
        self.crash()
        self.next_console(later=True)
        opening = self.shared.open()
        self.shared.interrupt(OFF)
        self.failureResultOf(opening)
        self.clock.advance(60)
        self.assertEqual(ann.ending, OFF)

    def test_ends_before_it_is_open(self) -> None:
        """A machine that ends during its start is one more crash of the same interruption."""
        ann = self.attach()
        self.crash()
        self.clock.advance(30)
        self.shared.use(EndsAtOnce())
        self.successResultOf(self.shared.open())
        self.assertEqual(self.successResultOf(self.shared.when_line_over()), CRASH)
        self.assertEqual(ann.since(), WAITS)
        self.clock.advance(30)
        self.assertEqual(ann.ending, CRASH)

    def test_disabled(self) -> None:
        """Without a time sessions end with the line, and so does the console."""
        shared = SharedConsole(
            console := MemoryConsole(), self.clock, restarts=lambda ending, has_exited: True
        )
        self.successResultOf(shared.open())
        ann = MemoryStream(shared.viewer(), options=CONSOLE)
        console.close(LineEnded(CRASH))
        self.assertEqual((ann.ending, shared.ending), (CRASH, CRASH))
        shared = SharedConsole(MemoryConsole(), self.clock)
        self.successResultOf(shared.open())
        shared.interrupt(OFF)
        self.assertEqual(shared.ending, OFF)


class LateInputTests(InterruptionCase):
    """Users whose connection was lost while the machine restarted, and what they typed meanwhile."""

    def attach_marks(self) -> tuple[Viewer, MarkStream]:
        viewer, stream = self.shared.viewer(), MarkStream(options=CONSOLE)
        viewer.attached(stream)
        return viewer, stream

    def back(self, viewer: Viewer, offset: int) -> MarkStream:
        stream = MarkStream(options=CONSOLE)
        viewer.resumed(stream, Position(self.shared.journal.epoch, offset))
        return stream

    def test_missed(self) -> None:
        """What arrives before the client's answer was typed for the boot before."""
        viewer, _ = self.attach_marks()
        self.console.says(b"# ")
        viewer.away()
        self.crash()
        self.restart()
        self.console.says(b"login: ")
        again = self.back(viewer, 2)
        self.assertEqual(again.sent[-2:], [RESTARTED, b"login: "])
        viewer.data_received(b"rm x\n")
        viewer.wished(Break())
        self.assertEqual(self.console.heard(), b"")
        self.assertEqual(again.notices[-1], LINE_AGAIN)
        viewer.answered()
        text = f"6 keys {TYPED_BEFORE} were discarded"  # BREAK is one
        self.assertEqual(again.notices[-2:], [LINE_AGAIN, text])
        viewer.data_received(b"root\n")
        self.assertEqual(self.console.heard(), b"root\n")

    def test_counted(self) -> None:
        """The user reads once how many keys of the outage are discarded, also while the machine is off."""
        for restarts, when in ((True, TYPED_BEFORE), (False, "typed meanwhile")):
            viewer, _ = self.attach_marks()
            viewer.away()
            self.crash()
            if restarts:
                self.restart()
            again = self.back(viewer, self.shared.journal.end)
            viewer.data_received(b"rm x\n")
            viewer.answered()
            self.assertEqual(again.notices[-1], f"5 keys {when} were discarded")
            self.assertEqual(sum("discarded" in each for each in again.notices), 1)

    def test_loss_not_noticed(self) -> None:
        """So it is if the loss was noticed only when the user came back; the notice is repeated."""
        viewer, _ = self.attach_marks()
        self.crash()
        self.restart()
        again = self.back(viewer, 0)
        viewer.data_received(b"x")
        self.assertEqual(self.console.heard(), b"")
        self.assertIn(LINE_AGAIN, again.notices)

    def test_seen(self) -> None:
        """A user whose client has answered typed for the present boot, also after a loss."""
        for output in (b"login: ", b""):
            viewer, _ = self.attach_marks()
            self.crash()
            self.restart()
            self.console.says(b"motd\n" + output)
            viewer.answered()
            again = self.back(viewer, self.shared.journal.end - len(output))
            viewer.data_received(b"root\n")
            self.assertEqual(self.console.heard(), b"root\n")
            self.assertEqual(again.notices, [])

    def test_typed_while_off(self) -> None:
        """Keys that are typed while the machine is off count, too, behind its next start."""
        viewer, stream = self.attach_marks()
        self.crash()
        viewer.data_received(b"abc")
        viewer.answered()
        self.assertEqual(sum("were discarded" in each for each in stream.notices), 0)
        self.restart()
        viewer.data_received(b"de")
        viewer.answered()
        self.assertEqual(stream.notices[-1], f"5 keys {TYPED_BEFORE} were discarded")
        viewer.data_received(b"root\n")
        self.assertEqual(self.console.heard(), b"root\n")

    def test_ended_while_off(self) -> None:
        """The same behind the end of the session, if there is no next start."""
        viewer, stream = self.attach_marks()
        self.crash()
        viewer.data_received(b"abc")
        viewer.answered()
        self.clock.advance(60)
        self.assertEqual(stream.notices[-1], f"3 keys {TYPED_AFTER} were discarded")
        self.assertEqual(stream.ending, CRASH)

    def test_ended_while_behind(self) -> None:
        """The same if the session ends before the client has answered."""
        viewer, stream = self.attach_marks()
        self.crash()
        self.restart()
        viewer.data_received(b"abc")
        self.shared.end(OFF)
        self.assertEqual(stream.notices[-1], f"3 keys {TYPED_BEFORE} were discarded")
        self.assertEqual(stream.ending, OFF)

    def test_connected(self) -> None:
        """What is on the way while the machine starts was typed for the boot before."""
        viewer, stream = self.attach_marks()
        self.crash()
        self.restart()
        viewer.data_received(b"rm x\n")
        viewer.answered()
        text = f"5 keys {TYPED_BEFORE} were discarded"
        self.assertEqual(
            stream.sent[-1],
            Notice(text, NoticeKind.DISCARDED, why=f"it was {TYPED_BEFORE}", keys=5),
        )
        viewer.data_received(b"root\n")
        self.assertEqual(self.console.heard(), b"root\n")

    def test_two_losses(self) -> None:
        """A user who has seen output of the present boot may still send what was typed before that."""
        viewer, _ = self.attach_marks()
        viewer.away()
        self.crash()
        self.restart()
        self.console.says(b"login: ")
        self.back(viewer, 0)
        viewer.away()
        self.back(viewer, 7)
        viewer.data_received(b"rm x\n")
        viewer.answered()
        viewer.data_received(b"root\n")
        self.assertEqual(self.console.heard(), b"root\n")

    def test_back_in_between(self) -> None:
        """A user who comes back before the next boot has typed for the one before until the answer."""
        viewer, _ = self.attach_marks()
        viewer.away()
        self.crash()
        self.back(viewer, 0)
        self.restart()
        viewer.data_received(b"x")
        viewer.answered()
        viewer.data_received(b"y")
        self.assertEqual(self.console.heard(), b"y")

    def earlier(self, *, is_new_boot: bool) -> tuple[SharedConsole, MemoryConsole, Viewer]:
        """A console in another process, and a viewer of the earlier one."""
        self.console.says(b"# ")
        console = MemoryConsole()
        shared = SharedConsole(console, self.clock, journal=self.shared.journal)
        shared.is_new_boot = is_new_boot
        viewer = shared.viewer()
        viewer.oldest = Position(shared.journal.epoch, 0)
        return shared, console, viewer

    def test_earlier_process(self) -> None:
        """A machine that starts with the process is another boot for sessions of the one before."""
        for is_open in (False, True):
            shared, console, viewer = self.earlier(is_new_boot=True)
            end = shared.journal.end
            if is_open:
                self.successResultOf(shared.open())
            again = self.back(viewer, end)
            self.assertIsInstance(again.sent[0], At)
            viewer.data_received(b"x")
            if not is_open:
                self.successResultOf(shared.open())
            self.assertIn(LINE_AGAIN, again.notices)
            viewer.data_received(b"y")
            viewer.answered()
            viewer.data_received(b"z")
            self.assertEqual(console.heard(), b"z")

    def test_earlier_process_while_off(self) -> None:
        """A session of the process before that comes back while the machine is off waits, too."""
        self.console.says(b"# ")
        self.crash()
        viewer = self.shared.viewer()
        viewer.oldest = Position(self.shared.journal.epoch, 0)
        again = self.back(viewer, 2)
        viewer.data_received(b"x")
        viewer.answered()
        self.restart()
        viewer.data_received(b"y")
        viewer.answered()
        viewer.data_received(b"z")
        self.assertEqual(self.console.heard(), b"z")
        texts = [wrapped_notice(notice(each)) for each in again.notices]
        self.assertEqual([each for each in texts if each in (WAITS, AGAIN)], [WAITS, AGAIN])

    def test_adopted(self) -> None:
        """A machine that runs since its first start gets what its users have typed."""
        shared, console, viewer = self.earlier(is_new_boot=False)
        shared.journal.booted("Started")
        again = self.back(viewer, shared.journal.end)
        self.assertTrue(again.input_paused)
        self.successResultOf(shared.open())
        viewer.data_received(b"x")
        self.assertEqual(console.heard(), b"x")
        self.assertNotIn(LINE_AGAIN, again.notices)

    def test_adopted_after_restart(self) -> None:
        """A machine that restarted before the new process gets nothing that was typed before that."""
        self.shared.journal.booted("Started")
        shared, console, viewer = self.earlier(is_new_boot=False)
        shared.journal.booted("Started")
        self.console.says(b"login: ")
        again = self.back(viewer, 2)
        self.assertEqual(again.sent[1:3], [RESTARTED, b"login: "])
        viewer.data_received(b"rm x\n")
        self.successResultOf(shared.open())
        viewer.data_received(b"rm y\n")
        viewer.answered()
        viewer.data_received(b"root\n")
        self.assertEqual(console.heard(), b"root\n")

    def test_adopted_after_output(self) -> None:
        """A user who has seen output of the boot that goes on has typed for that."""
        self.shared.journal.booted("Started")
        self.shared.journal.booted("Started")
        shared, console, viewer = self.earlier(is_new_boot=False)
        self.successResultOf(shared.open())
        again = self.back(viewer, 1)
        viewer.data_received(b"root\n")
        self.assertEqual(console.heard(), b"root\n")
        self.assertNotIn(LINE_AGAIN, again.notices)


class EndsAtOnce(MemoryConsole):
    """A console whose line ends before it counts as open."""

    def connect(self, factory: Any) -> Any:
        opened = super().connect(factory)
        opened.addCallback(lambda line: self.close(LineEnded(CRASH)) or line)
        return opened


class PacedTests(InterruptionCase):
    """A line that is paced."""

    paced = True

    def test_slow_viewer(self) -> None:
        """A viewer who is behind pauses the next line, too, until it has read on."""
        slow = self.attach(room=0)
        self.console.says(bytes(512 << 10))
        self.assertTrue(self.console.transport.paused)
        self.crash()
        self.restart()
        self.assertTrue(self.console.transport.paused)
        slow.take(1 << 20)
        self.assertFalse(self.console.transport.paused)

    def test_unwatched(self) -> None:
        """A limit of the last line's rate does not pause the next one."""
        self.console.says(bytes(8 << 20))
        self.assertTrue(self.console.transport.paused)
        self.console.close(ConnectionDone())
        self.restart()
        self.assertFalse(self.console.transport.paused)
