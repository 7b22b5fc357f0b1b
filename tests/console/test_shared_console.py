"""
Tests for :mod:`twisted_exec.console.shared_console` and :mod:`twisted_exec.console.viewer`.
"""

from __future__ import annotations

import gc
import itertools
from typing import Any
from weakref import WeakSet

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionRefusedError, ProcessDone, ProcessTerminated
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.console.line import LineEnded
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.console.viewer import Viewer
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    LINE_LOST,
    MACHINE_DELETED,
    Break,
    Ending,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.server import NO_BREAK
from twisted_exec.wire.notices import encode_gap
from twisted_exec.wire.notices import encode_notice as notice

from .doubles import (
    BreakableConsole,
    MemoryConsole,
    MemoryStream,
    SharedConsoleCase,
)

KIB = 1 << 10
DELETED = Ending(MACHINE_DELETED, 'machine "default/x" was deleted')


class TrafficTests(SharedConsoleCase):
    """Input and output."""

    def test_output(self) -> None:
        """All viewers see the output."""
        ann, bob = self.attach(), self.attach()
        self.console.says(b"=> ")
        self.assertEqual((ann.since(), bob.since()), (b"=> ", b"=> "))

    def test_notices(self) -> None:
        """A notice of the line is shown to the viewers; the journal has only the machine's output."""
        ann = self.attach()
        self.console.says(b"=> ")
        self.console.line.notice_received(notice("lost"))
        self.console.says(b"boot\r\n")
        self.assertEqual(ann.since(), b"=> " + notice("lost") + b"boot\r\n")
        self.assertEqual(self.shared.journal.read(0, 99), b"=> boot\r\n")
        self.assertEqual(self.attach().since(), b"=> boot\r\n")

    def test_events(self) -> None:
        """The journal records sizes, viewers, and who of them may type."""
        ann = self.attach()
        ann.viewer.window_changed(TerminalSize(80, 24))
        self.attach()
        ann.viewer.detached("gone")
        events = [
            (each.kind, each.data.get("role", "")) for each in self.shared.journal.events(0, 0)
        ]
        self.assertEqual(
            events[:4],
            [("join", "observer"), ("role", "writer"), ("size", ""), ("join", "observer")],
        )
        self.assertIn(("leave", ""), events)

    def test_input(self) -> None:
        """All sessions of the writing user may type."""
        first, other = self.attach(), self.attach()
        first.viewer.data_received(b"ver")
        other.viewer.data_received(b"sion\r")
        self.assertEqual(self.console.heard(), b"version\r")

    def test_32_scrollback(self) -> None:
        """A later viewer reads the earlier output first."""
        self.console.says(b"U-Boot 2023.01\r\n")
        self.console.says(b"=> ")
        late = self.attach()
        self.console.says(b"x")
        self.assertEqual(late.since(), b"U-Boot 2023.01\r\n=> x")

    def test_scrollback_is_bounded(self) -> None:
        """The scrollback is the last 256 KiB, exactly."""
        whole = bytes(itertools.islice(itertools.cycle(range(251)), 1_000_000))
        for at in range(0, len(whole), 4096):
            self.console.says(whole[at : at + 4096])
        self.assertEqual(self.attach().since(), whole[-256 * KIB :])

    def test_line_outlives_viewers(self) -> None:
        """The line stays open and its output is stored without viewers."""
        self.attach().drop()
        self.console.says(b"while you were away")
        self.assertFalse(self.console.closed)
        self.assertEqual(self.attach().since(), b"while you were away")

    def test_audit_counts(self) -> None:
        """A viewer counts the input that the machine got."""
        ann = self.attach()
        ann.viewer.data_received(b"abc")
        self.assertEqual(ann.viewer.bytes_to_machine, 3)
        self.assertEqual(ann.viewer.user, "ann")

    def test_resize(self) -> None:
        """The latest size of anyone is applied."""
        ann, bob = self.attach(), self.attach()
        ann.viewer.window_changed(TerminalSize(80, 24))
        bob.viewer.window_changed(TerminalSize(132, 50))
        self.assertEqual(self.console.sizes, [TerminalSize(80, 24), TerminalSize(132, 50)])

    def test_line_takes_no_more(self) -> None:
        """
        While the line accepts no input, all viewers' input is paused, including that of new
        viewers.
        """
        ann = self.attach()
        producer = self.console.transport.producer
        producer.pauseProducing()
        bob = self.attach()
        self.assertEqual((ann.input_paused, bob.input_paused), (True, True))
        producer.resumeProducing()
        self.assertEqual((ann.input_paused, bob.input_paused), (False, False))


class BreakTests(SynchronousTestCase):
    """BREAK on a line, and on one that has none."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.console = BreakableConsole()
        self.shared = SharedConsole(self.console, self.clock)

    def attach(self) -> MemoryStream:
        return MemoryStream(self.shared.viewer())

    def test_sent(self) -> None:
        """BREAK reaches the line; all input waits until it is over."""
        self.successResultOf(self.shared.open())
        ann, bob = self.attach(), self.attach()
        ann.viewer.wished(Break(300))
        self.assertEqual(self.console.breaks, [300])
        self.assertEqual((ann.input_paused, bob.input_paused), (True, True))
        self.clock.advance(0.29)
        late = self.attach()
        self.assertTrue(late.input_paused)
        self.clock.advance(0.02)
        self.assertEqual([each.input_paused for each in (ann, bob, late)], [False] * 3)
        self.assertEqual(ann.since(), b"")

    def test_one_at_a_time(self) -> None:
        """A second request during a BREAK is ignored; after it, it is another BREAK."""
        self.successResultOf(self.shared.open())
        ann = self.attach()
        for _ in range(100):
            ann.viewer.wished(Break(5000))
        self.assertEqual(self.console.breaks, [5000])
        self.clock.advance(5)
        ann.viewer.wished(Break(1))
        self.assertEqual(self.console.breaks, [5000, 1])

    def test_line_takes_no_more(self) -> None:
        """A line that is stuck stays so when its BREAK is over, and the other way round."""
        self.successResultOf(self.shared.open())
        ann = self.attach()
        line = self.console.transport.producer
        ann.viewer.wished(Break(100))
        line.pauseProducing()
        self.clock.advance(1)
        self.assertTrue(ann.input_paused)
        line.resumeProducing()
        self.assertFalse(ann.input_paused)
        ann.viewer.wished(Break(100))
        line.resumeProducing()
        self.assertTrue(ann.input_paused)

    def test_not_open(self) -> None:
        """A line that is not open, or is no more, sends none; nothing is left to do."""
        ann = self.attach()
        ann.viewer.wished(Break())
        self.successResultOf(self.shared.open())
        ann.viewer.wished(Break())
        self.shared.end(DELETED)
        ann.viewer.wished(Break())
        self.assertEqual(self.console.breaks, [250])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_has_none(self) -> None:
        """If the line has no BREAK, only the user who requested it gets a notice."""
        shared = SharedConsole(MemoryConsole(), self.clock)
        self.successResultOf(shared.open())
        ann, bob = MemoryStream(shared.viewer()), MemoryStream(shared.viewer(), room=0)
        ann.viewer.wished(Break())
        self.assertEqual((ann.since(), bob.since()), (NO_BREAK.output, b""))
        for _ in range(1000):
            bob.viewer.wished(Break())
        bob.take(1000)
        self.assertEqual(bob.since(), NO_BREAK.output)


class UnpacedTests(SharedConsoleCase):
    """A machine's serial line is never paused."""

    def test_never_paused(self) -> None:
        """The line is not paused, even for a viewer that reads nothing."""
        self.attach(room=0)
        for _ in range(100):
            self.console.says(bytes(64 * KIB))
            self.assertFalse(self.console.transport.paused)

    def test_gap(self) -> None:
        """A viewer too far behind gets the number of missed bytes, and continues with current output."""
        slow = self.attach(room=1)
        self.console.says(b"a")
        for _ in range(17):
            self.console.says(bytes(64 * KIB))
        self.console.says(b"now")
        slow.take(1 << 30)
        self.assertEqual(slow.since(), b"a" + encode_gap(17 * 64 * KIB) + b"now")

    def test_gap_mark(self) -> None:
        """The notice of a gap has a line of its own."""
        self.assertEqual(encode_gap(7), b"\r\n[twisted-exec: 7 bytes skipped]\r\n")

    def test_gaps_add_up(self) -> None:
        """However often a viewer falls behind before it reads again, it gets one mark."""
        slow = self.attach(room=0)
        for _ in range(170):
            self.console.says(bytes(64 * KIB))
        slow.take(1 << 30)
        got = slow.since()
        self.assertEqual(got.count(b"skipped"), 1)
        skipped = int(got.split(b": ")[1].split(b" ")[0])
        self.assertEqual(skipped + len(got) - len(encode_gap(skipped)), 170 * 64 * KIB)

    def test_mebibyte_behind_is_not_too_far(self) -> None:
        """Up to 1 MiB nothing is lost."""
        slow = self.attach(room=0)
        for _ in range(16):
            self.console.says(bytes(64 * KIB))
        slow.take(1 << 30)
        self.assertEqual(len(slow.since()), 1 << 20)

    def test_nobody_waits(self) -> None:
        """A viewer that reads nothing delays no other."""
        self.attach(room=0)
        quick = self.attach()
        for _ in range(100):
            self.console.says(bytes(64 * KIB))
            self.assertEqual(len(quick.since()), 64 * KIB)

    def test_memory(self) -> None:
        """Stored output is bounded, however slow the viewers are, and small without viewers."""
        streams = [self.attach(room=0) for _ in range(3)]
        for _ in range(200):
            self.console.says(bytes(60 * KIB))
            retained = self.shared.journal.end - self.shared.journal.start
            self.assertLess(retained, 1300 * KIB)
        for stream in streams:
            stream.drop()
        self.console.says(b"x")
        retained = self.shared.journal.end - self.shared.journal.start
        self.assertLess(retained, 400 * KIB)


class OpeningTests(SynchronousTestCase):
    """Before the line is open, and when it cannot be opened."""

    def setUp(self) -> None:
        self.console = MemoryConsole(later=True)
        self.shared = SharedConsole(self.console, Clock())
        assert self.console.opening is not None
        self.connecting = self.console.opening

    def test_input_waits(self) -> None:
        """Input before the line is open waits in the stream."""
        early = MemoryStream(self.shared.viewer())
        self.assertTrue(early.input_paused)
        opened = self.shared.open()
        self.assertTrue(early.input_paused)
        self.connecting.callback(None)
        self.successResultOf(opened)
        self.assertFalse(early.input_paused)

    def test_size_is_told_at_once(self) -> None:
        """A size that comes before the line is open reaches the console."""
        MemoryStream(self.shared.viewer()).viewer.window_changed(TerminalSize(80, 24))
        self.assertEqual(self.console.sizes, [TerminalSize(80, 24)])

    def test_fails(self) -> None:
        """Waiting viewers get the reason; the caller gets the failure."""
        early = MemoryStream(self.shared.viewer())
        opened = self.shared.open()
        self.connecting.errback(ConnectionRefusedError())
        self.failureResultOf(opened, ConnectionRefusedError)
        assert early.ending is not None
        self.assertEqual(early.ending.reason, LINE_LOST)
        self.assertIn("the console cannot be opened", early.ending.message)

    def test_fails_with_an_answer(self) -> None:
        """The message of an API error is shown unchanged."""
        early = MemoryStream(self.shared.viewer())
        opened = self.shared.open()
        self.connecting.errback(ServiceUnavailable("no QEMU here"))
        self.failureResultOf(opened, ServiceUnavailable)
        assert early.ending is not None
        self.assertEqual(early.ending.message, "the console cannot be opened: no QEMU here")

    def test_raises(self) -> None:
        """An application's console that raises has failed, as one that returns a failure."""

        class RaisingConsole(MemoryConsole):
            def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
                raise ServiceUnavailable("the file is not there yet")

        shared = SharedConsole(RaisingConsole(), Clock())
        early = MemoryStream(shared.viewer())
        self.failureResultOf(shared.open(), ServiceUnavailable)
        assert early.ending is not None
        self.assertIn("the file is not there yet", early.ending.message)

    def test_ended_while_opening(self) -> None:
        """A machine that is deleted meanwhile: connecting is given up."""
        early = MemoryStream(self.shared.viewer())
        opened = self.shared.open()
        self.shared.end(DELETED)
        self.failureResultOf(opened, CancelledError)
        self.assertEqual(early.ending, DELETED)

    def test_ended_before(self) -> None:
        """A console that is over is not opened."""
        self.shared.end(DELETED)
        self.failureResultOf(self.shared.open(), LineEnded)
        self.assertIsNone(self.console.line)


class EndingTests(SharedConsoleCase):
    """Endings of a shared console."""

    def test_process_done(self) -> None:
        """A process that ended well is a console that ended well."""
        ann = self.attach()
        self.console.close(ProcessDone(0))
        assert ann.ending is not None
        self.assertEqual((ann.ending.reason, ann.ending.exit_code), (COMPLETED, 0))
        self.assertTrue(ann.ending.is_success)

    def test_process_failed(self) -> None:
        """The ending has the exit code."""
        ann = self.attach()
        self.console.close(ProcessTerminated(exitCode=7))
        assert ann.ending is not None
        self.assertEqual(ann.ending, Ending(COMPLETED, "the process ended with exit code 7", 7))

    def test_process_killed(self) -> None:
        """A signal becomes an exit code as in shells."""
        ann = self.attach()
        self.console.close(ProcessTerminated(signal=9))
        assert ann.ending is not None
        self.assertEqual(ann.ending.exit_code, 137)

    def test_line_lost(self) -> None:
        """Any other end of the line is a loss."""
        ann = self.attach()
        self.console.close()
        assert ann.ending is not None
        self.assertEqual(ann.ending.reason, LINE_LOST)

    def test_line_explains(self) -> None:
        """A console that knows why its line ended is believed."""
        ann = self.attach()
        self.console.close(LineEnded(DELETED))
        self.assertEqual(ann.ending, DELETED)

    def test_everyone_is_told(self) -> None:
        """Every viewer gets the reason; the line is closed; who waited knows."""
        ann, bob = self.attach(), self.attach()
        over = self.shared.when_line_over()
        self.shared.end(DELETED)
        self.shared.end(Ending(LINE_LOST))
        self.assertEqual((ann.ending, bob.ending), (DELETED, DELETED))
        self.assertTrue(self.console.closed)
        self.assertEqual(self.successResultOf(over), DELETED)
        self.assertEqual(self.successResultOf(self.shared.when_line_over()), DELETED)
        self.assertEqual(self.shared.viewers, ())

    def test_tail(self) -> None:
        """The last output comes before the status, also for a slow viewer."""
        slow = self.attach(room=0)
        self.console.says(b"last words")
        self.console.close(ProcessDone(0))
        self.assertIsNone(slow.ending)
        slow.take(100)
        self.assertEqual(slow.since(), b"last words")
        self.assertIsNotNone(slow.ending)

    def test_stalled(self) -> None:
        """A client that reads nothing for ten seconds is ended without the rest of the output."""
        slow = self.attach(room=0)
        self.console.says(bytes(100))
        self.console.close(ProcessDone(0))
        self.clock.advance(6)
        slow.take(10)
        self.clock.advance(6)
        self.assertIsNone(slow.ending if slow.since() == b"" else None)
        self.clock.advance(10)
        self.assertIsNotNone(slow.ending)
        slow.drop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_too_late(self) -> None:
        """A viewer after the end gets the last output and the reason."""
        self.console.says(b"panic")
        self.console.close(ProcessTerminated(exitCode=1))
        late = self.attach()
        self.assertEqual(late.since(), b"panic")
        assert late.ending is not None
        self.assertEqual(late.ending.exit_code, 1)

    def test_typed_too_late(self) -> None:
        """Input after the end goes nowhere."""
        ann = self.attach()
        self.console.close()
        ann.viewer.data_received(b"x")
        self.assertEqual(self.console.heard(), b"")

    def test_next_line_goes_on(self) -> None:
        """A new console of the same machine continues the journal."""
        self.console.says(b"first ")
        self.console.close(ProcessDone(0))
        console = MemoryConsole()
        again = SharedConsole(console, self.clock, journal=self.shared.journal)
        self.successResultOf(again.open())
        console.says(b"second")
        self.assertEqual(self.attach(again).since(), b"first second")

    def test_next_line_has_the_size(self) -> None:
        """A new line starts with the size that the last one had."""
        self.attach().viewer.window_changed(TerminalSize(132, 50))
        console = MemoryConsole()
        SharedConsole(console, self.clock, size=self.shared.size)
        self.assertEqual(console.sizes, [TerminalSize(132, 50)])


class ManyTests(SynchronousTestCase):
    """Consoles and viewers in numbers."""

    def test_every_order_of_death(self) -> None:
        """Whatever ends first, nothing stays behind."""
        clock = Clock()
        alive: WeakSet[Viewer] = WeakSet()
        consoles: WeakSet[SharedConsole] = WeakSet()
        orders = itertools.cycle(itertools.permutations("vVle"))
        for order in itertools.islice(orders, 1000):
            console = MemoryConsole(paced=True)
            shared = SharedConsole(console, clock)
            self.successResultOf(shared.open())
            first, second = (MemoryStream(shared.viewer(), room=0) for _ in range(2))
            alive.update((first.viewer, second.viewer))
            consoles.add(shared)
            console.says(bytes(600 * KIB))
            first.viewer.input_ended()
            for step in order:
                if step == "v":
                    first.drop()
                elif step == "V":
                    second.drop()
                elif step == "l":
                    console.close()
                else:
                    shared.end(DELETED)
            self.assertEqual(shared.viewers, ())
        self.assertEqual(clock.getDelayedCalls(), [])
        del console, shared, first, second
        gc.collect()
        self.assertEqual((len(alive), len(consoles)), (0, 0))
