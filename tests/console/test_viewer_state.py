"""
Tests for :mod:`twisted_exec.console.viewer`, and for consoles that are suspended.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.console.notices import LINE_AGAIN
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.console.shared_console_limits import ConsoleLimits
from twisted_exec.console.viewer import Viewer
from twisted_exec.journal.journal import Journal
from twisted_exec.runtimes.viewer_export import export_viewer, restore_viewer
from twisted_exec.streaming.interfaces import (
    CONSOLE_IN_USE,
    LINE_LOST,
    Ending,
    Position,
    Role,
    TerminalSize,
)
from twisted_exec.testing.console import MarkStream
from twisted_exec.wire.marks import Notice, not_sent
from twisted_exec.wire.session_terms import Right, Terms
from twisted_exec.wire.stream_options import CONSOLE, StreamOptions

from .doubles import MemoryConsole, MemoryStream


class HandedCase(SynchronousTestCase):
    """A console with a line, and its successor on the same journal."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.line = MemoryConsole(paced=True)
        self.journal = Journal()
        self.shared = SharedConsole(self.line, self.clock, journal=self.journal)
        self.successResultOf(self.shared.open())

    def attach(self, **options: Any) -> tuple[Viewer, MarkStream]:
        viewer, stream = self.shared.viewer(), MarkStream(**options)
        viewer.attached(stream)
        return viewer, stream

    def hand_over(self, *viewers: Viewer) -> list[Viewer]:
        """Suspend the console, and continue these viewers in another one."""
        self.shared.suspend()
        values = json.loads(json.dumps([export_viewer(each) for each in viewers]))
        self.line = MemoryConsole(paced=True)
        self.next = SharedConsole(self.line, self.clock, journal=self.journal)
        self.successResultOf(self.next.open())
        restored = [restore_viewer(self.next, each) for each in values]
        assert all(restored)
        return [each for each in restored if each is not None]

    def back(self, viewer: Viewer, offset: int, **options: Any) -> MarkStream:
        """A stream of a user who has output up to an offset."""
        stream = MarkStream(**options)
        viewer.resumed(stream, Position(self.journal.epoch, offset))
        return stream


class RestoredTests(HandedCase):
    """Viewers in the process that continues."""

    def test_roles(self) -> None:
        """Each user has the former role, and reads nothing about the change."""
        ann, ann_stream = self.attach(user="ann")
        bob, bob_stream = self.attach(user="bob", session="b")
        self.line.says(b"login: ")
        ann, bob = self.hand_over(ann, bob)
        self.assertEqual((ann.role, bob.role), (Role.WRITER, Role.OBSERVER))
        bob_stream = self.back(bob, 7, user="bob", session="b")
        ann_stream = self.back(ann, 7)
        self.line.says(b"root")
        self.assertEqual((ann_stream.output, bob_stream.output), (b"root", b"root"))
        self.assertEqual(ann_stream.notices, [])
        self.assertEqual(bob_stream.notices, [])
        ann.data_received(b"x")
        bob.data_received(b"y")
        self.assertEqual(self.line.heard(), b"x")

    def test_interruption(self) -> None:
        """A session that waits for the machine's next start does so in the other process, too."""
        limits = ConsoleLimits(restart_seconds=60)
        shared = SharedConsole(self.line, self.clock, journal=self.journal, limits=limits)
        self.successResultOf(shared.open())
        for is_open in (False, True):
            viewer, stream = shared.viewer(), MarkStream(options=CONSOLE)
            viewer.attached(stream)
            shared.interrupt(Ending(LINE_LOST, "the emulator ended"))
            shared.suspend()
            values = json.loads(json.dumps(export_viewer(viewer)))
            shared.unsuspend()
            console = MemoryConsole()
            successor = SharedConsole(console, self.clock, journal=self.journal, limits=limits)
            if is_open:
                self.successResultOf(successor.open())
            restored = restore_viewer(successor, values)
            assert restored is not None
            again = self.back(restored, 0, options=CONSOLE)
            if not is_open:
                restored.data_received(b"x")
                self.assertIn("what you type is not sent: the emulator ended", again.notices)
                self.successResultOf(successor.open())
            self.assertEqual(again.notices[-1], LINE_AGAIN)
            restored.data_received(b"y")
            restored.answered()
            restored.data_received(b"z")
            self.assertEqual(console.heard(), b"z")
            successor.end(Ending(LINE_LOST, "x"))
            shared.use(self.line)
            self.successResultOf(shared.open())

    def test_behind(self) -> None:
        """Input that was typed for an earlier boot reaches no later one in the other process either."""
        viewer, _ = self.attach(options=CONSOLE)
        viewer.away()
        viewer.input.restarted(0)
        (restored,) = self.hand_over(viewer)
        self.back(restored, 0, options=CONSOLE)
        restored.data_received(b"x")
        restored.answered()
        restored.data_received(b"y")
        self.assertEqual(self.line.heard(), b"y")

    def test_suspended_interruption(self) -> None:
        """A hand-over that fails lets sessions wait for the whole time again."""
        limits = ConsoleLimits(restart_seconds=60)
        shared = SharedConsole(self.line, self.clock, journal=self.journal, limits=limits)
        self.successResultOf(shared.open())
        viewer, stream = shared.viewer(), MarkStream(options=CONSOLE)
        viewer.attached(stream)
        shared.interrupt(Ending(LINE_LOST, "the emulator ended"))
        self.clock.advance(30)
        shared.suspend()
        self.clock.advance(60)
        shared.unsuspend()
        self.clock.advance(59)
        self.assertIsNone(stream.ending)
        self.clock.advance(1)
        self.assertEqual(stream.ending, Ending(LINE_LOST, "the emulator ended"))

    def test_floor_of_absent_user(self) -> None:
        """A user who does not come back soon counts as away; others read that, and can take over."""
        ann, _ = self.attach(user="ann")
        bob, _ = self.attach(user="bob", session="b")
        ann, bob = self.hand_over(ann, bob)
        stream = self.back(bob, 0, user="bob", session="b")
        self.assertFalse(ann.is_away)
        self.clock.advance(10)
        self.assertTrue(ann.is_away)
        (text,) = stream.notices
        self.assertIn("ann's connection is lost", text)
        bob.wished(Role.WRITER)
        self.assertEqual(bob.role, Role.WRITER)

    def test_away_before(self) -> None:
        """A user who was away before is away, and nobody reads that again."""
        ann, _ = self.attach(user="ann")
        bob, _ = self.attach(user="bob", session="b")
        ann.away()
        ann, bob = self.hand_over(ann, bob)
        self.assertTrue(ann.is_away)

    def test_people(self) -> None:
        """A policy that requires two people is satisfied while their streams change."""
        terms = Terms(people=2)
        ann, _ = self.attach(user="ann", terms=terms)
        bob, _ = self.attach(user="bob", session="b", terms=terms)
        ann, bob = self.hand_over(ann, bob)
        stream = self.back(ann, 0, terms=terms)
        ann.data_received(b"reboot\r")
        self.assertEqual(self.line.heard(), b"reboot\r")
        self.assertEqual(stream.notices, [])

    def test_pending_notices(self) -> None:
        """Notices that a user has not got yet come with the next stream."""
        ann, stream = self.attach(user="ann", capacity=1)
        self.line.says(b"12")
        self.line.says(b"34")
        bob, _ = self.attach(user="bob", session="b")
        bob.wished(Role.WRITER)
        ann, _ = self.hand_over(ann, bob)
        stream = self.back(ann, len(stream.output))
        self.assertEqual(stream.output, b"34")
        self.assertTrue(any("bob has taken over" in text for text in stream.notices))
        self.assertIsInstance(stream.sent[-1], Notice)

    def test_input_that_was_discarded(self) -> None:
        """A script whose input was discarded still fails when its input ends."""
        self.attach(user="ann")
        bob, _ = self.attach(user="bob", session="b")
        bob.data_received(b"halt\r")
        (bob,) = self.hand_over(bob)
        stream = self.back(bob, 0, user="bob", session="b")
        bob.input_ended()
        assert stream.ending is not None
        self.assertEqual(stream.ending.reason, CONSOLE_IN_USE)

    def test_input_that_has_ended(self) -> None:
        """A script whose input has ended ends when the machine is quiet."""
        ann, _ = self.attach(user="ann")
        ann.input_ended()
        (ann,) = self.hand_over(ann)
        stream = self.back(ann, 0)
        self.clock.advance(2)
        assert stream.ending is not None

    def test_terms_and_size(self) -> None:
        """Terms, options and the size of the terminal are the same."""
        terms = Terms(Right.OBSERVE, idle_seconds=60)
        options = StreamOptions(read_only=True)
        bob, _ = self.attach(user="bob", terms=terms, options=options)
        ann, _ = self.attach(user="ann", session="a")
        ann.window_changed(TerminalSize(100, 30))
        bob, ann = self.hand_over(bob, ann)
        self.assertEqual(bob.terms, terms)
        self.assertFalse(bob.may_write)
        self.back(bob, 0, user="bob", options=options, terms=terms)
        self.back(ann, 0, user="ann")
        ann.wished(Role.OBSERVER)
        ann.wished(Role.WRITER)
        self.assertEqual(self.line.sizes, [TerminalSize(100, 30)])

    def test_kinds(self) -> None:
        """Notices that wait keep what they say to programs."""
        ann, _ = self.attach(capacity=0)
        told = not_sent("the line is lost"), Notice("x" * 600), Notice("hello")
        for each in told:
            ann.tell(each)
        self.shared.suspend()
        values = export_viewer(ann)
        assert values is not None
        self.assertEqual(values["notices"][2], ["\r\n[twisted-exec: hello]\r\n", 0])
        (restored,) = self.hand_over(ann)
        self.assertEqual(tuple(restored.output.state.notices), told)

    def test_other_journal(self) -> None:
        """A viewer does not continue at another journal."""
        ann, _ = self.attach()
        self.shared.suspend()
        values = export_viewer(ann)
        assert values is not None
        other = SharedConsole(MemoryConsole(), self.clock)
        self.assertIsNone(restore_viewer(other, values))

    def test_ending(self) -> None:
        """A session that is ending does not go on elsewhere."""
        ann, _ = self.attach(capacity=0)
        self.line.says(b"bye")
        self.line.close()
        self.assertIsNone(export_viewer(ann))
        self.assertIsNone(export_viewer(self.shared.viewer()))


class SuspendedTests(HandedCase):
    """A console that lets go of its line, and goes on."""

    def test_goes_on(self) -> None:
        """Output, input and notices wait, and nobody notices the pause."""
        ann, stream = self.attach()
        self.line.says(b"one ")
        self.shared.suspend()
        self.assertTrue(stream.input_paused)
        self.line.says(b"lost to this process")
        self.line.close()
        self.assertIsNone(self.shared.ending)
        line = MemoryConsole(paced=True)
        self.shared.unsuspend(line)
        self.shared.unsent = b"ls"
        self.successResultOf(self.shared.open())
        self.assertFalse(stream.input_paused)
        line.says(b"two")
        ann.data_received(b"\r")
        self.assertEqual(stream.output, b"one two")
        self.assertEqual(stream.notices, [])
        self.assertEqual(line.heard(), b"ls\r")

    def test_size(self) -> None:
        """The line gets the size that changed meanwhile."""
        ann, _ = self.attach()
        self.shared.suspend()
        ann.window_changed(TerminalSize(100, 30))
        self.assertEqual(self.line.sizes, [])
        line = MemoryConsole()
        self.shared.unsuspend(line)
        self.assertEqual(line.sizes, [TerminalSize(100, 30)])

    def test_journal_is_left_alone(self) -> None:
        """A session that ends meanwhile is recorded afterwards, because another process may write."""
        ann, _ = self.attach(session="first")
        self.attach(session="second", user="bob")
        self.shared.suspend()
        before = len(list(self.journal.events(0, 1)))
        ann.detached("client closed")
        self.assertEqual(len(list(self.journal.events(0, 1))), before)
        self.shared.unsuspend(MemoryConsole())
        self.assertEqual(len(list(self.journal.events(0, 1))), before + 1)

    def test_ordinary_stream(self) -> None:
        """An ordinary stream goes on, too."""
        stream = MemoryStream(self.shared.viewer())
        self.line.says(b"one")
        self.shared.suspend()
        self.shared.unsuspend()
        self.assertEqual(stream.got, b"one")

    def test_before_the_line_is_open(self) -> None:
        """A console whose machine has not started can be suspended, too."""
        shared = SharedConsole(self.line, self.clock)
        stream = MemoryStream(shared.viewer())
        shared.suspend()
        shared.unsuspend()
        self.successResultOf(shared.open())
        self.line.says(b"boot")
        self.assertEqual(stream.got, b"boot")
