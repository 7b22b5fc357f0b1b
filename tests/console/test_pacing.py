"""
Tests for :mod:`twisted_exec.console.pacing`.
"""

from __future__ import annotations

from tests.journal.support import LateJournal
from twisted_exec.console.pacing import UNWATCHED_BYTES_PER_SECOND
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.streaming.interfaces import MACHINE_DELETED, Ending

from .doubles import MemoryConsole, SharedConsoleCase

KIB = 1 << 10
DELETED = Ending(MACHINE_DELETED, 'machine "default/x" was deleted')


class PacedTests(SharedConsoleCase):
    """A pty waits for its fastest viewer."""

    paced = True

    def flood(self, limit: int = 1000) -> int:
        """Print 16 KiB at a time until the line is paused; the number printed."""
        for count in range(limit):
            if self.console.transport.paused:
                return count
            self.console.says(bytes([count % 256]) * (16 * KIB))
        return limit

    def test_nobody_there(self) -> None:
        """Without viewers the process goes on for ever, at a limited rate."""
        printed = 0
        while self.clock.seconds() < 60:
            printed += self.flood()
            self.clock.advance(0.01)
        self.assertEqual(round(printed * 16 * KIB / 60 / UNWATCHED_BYTES_PER_SECOND, 1), 1.0)

    def test_somebody_comes(self) -> None:
        """The limit ends when a viewer joins, and begins anew when the last one has left."""
        self.assertLess(self.flood(), 1000)
        viewer = self.attach()
        self.assertFalse(self.console.transport.paused)
        self.assertEqual(self.flood(), 1000)
        viewer.drop()
        self.assertLess(self.flood(), 1000)
        self.clock.advance(1)
        self.assertFalse(self.console.transport.paused)

    def test_watched_after_a_limit(self) -> None:
        """The end of the limit does not resume a line that waits for its viewer."""
        self.flood()
        self.attach(room=0)
        self.flood()
        self.clock.advance(60)
        self.assertTrue(self.console.transport.paused)

    def test_end_of_a_limited_line(self) -> None:
        """A console that ends while its line is limited leaves no timer."""
        self.flood()
        self.assertTrue(self.console.transport.paused)
        self.shared.end(DELETED)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_alone_loses_nothing(self) -> None:
        """A sole viewer, however slow, reads every byte."""
        slow = self.attach(room=0)
        printed = 0
        while printed < 400:
            printed += self.flood(10)
            slow.take(24 * KIB)
        while self.shared.journal.end > len(slow.got):
            slow.take(24 * KIB)
        self.assertNotIn(b"skipped", slow.got)
        self.assertEqual(len(slow.got), printed * 16 * KIB)

    def test_bound(self) -> None:
        """The line is paused at 512 KiB and goes on at half of that."""
        slow = self.attach(room=0)
        self.assertEqual(self.flood(), 32)
        slow.take(200 * KIB)
        self.assertTrue(self.console.transport.paused)
        slow.take(100 * KIB)
        self.assertFalse(self.console.transport.paused)

    def test_fastest_decides(self) -> None:
        """A stopped viewer does not pause the line, and loses only its own place."""
        stopped, quick = self.attach(room=0), self.attach()
        self.assertEqual(self.flood(), 1000)
        self.assertEqual(len(quick.since()), 1000 * 16 * KIB)
        stopped.take(1 << 30)
        self.assertIn(b"bytes skipped]", stopped.since())

    def test_skipping_is_not_reading(self) -> None:
        """
        A stopped viewer that was moved to the end does not count as the fastest.

        Else the line would run on, and the one who reads slowly would lose bytes.
        """
        self.attach(room=0)
        slow = self.attach(room=0)
        total = 0
        for _ in range(300):
            total += self.flood(64)
            slow.take(64 * KIB)
        while len(slow.got) < total * 16 * KIB:
            slow.take(64 * KIB)
        self.assertNotIn(b"skipped", slow.got)

    def test_disk_answers_again(self) -> None:
        """
        A viewer that reads while the disk does not answer goes on when it answers.

        Otherwise the line would wait for the viewer, and the viewer for the line, for ever.
        """
        journal, line = LateJournal(), MemoryConsole(paced=True)
        shared = SharedConsole(line, self.clock, journal=journal)
        self.successResultOf(shared.open())
        viewer = self.attach(shared, room=0)
        line.says(bytes(600 * KIB))
        self.assertTrue(line.transport.paused)
        journal.is_late = True
        viewer.take(1 << 30)
        self.assertEqual(viewer.got, b"")
        journal.is_late = False
        journal.became_readable()
        self.assertEqual(len(viewer.got), 600 * KIB)
        self.assertFalse(line.transport.paused)

    def test_last_viewer_leaves(self) -> None:
        """A line that waited for a viewer runs on when the viewer is gone."""
        slow = self.attach(room=0)
        self.flood()
        slow.drop()
        self.assertFalse(self.console.transport.paused)

    def test_fastest_leaves(self) -> None:
        """When the fastest viewer leaves, the next one paces the line and loses nothing more."""
        slow, quick = self.attach(room=0), self.attach()
        self.flood(50)
        quick.drop()
        self.assertTrue(self.console.transport.paused)
        slow.take(1 << 30)
        self.assertEqual(len(slow.got), 50 * 16 * KIB)
        self.assertFalse(self.console.transport.paused)
