"""
Tests for :mod:`twisted_exec.console.viewer`: retained output in memory and on disk.
"""

from __future__ import annotations

from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.console.shared_console_limits import ConsoleLimits
from twisted_exec.journal.journal import Journal
from twisted_exec.streaming.interfaces import Position
from twisted_exec.testing.console import MarkStream
from twisted_exec.wire.marks import At

from ..journal.support import ManualDisk, close_segments
from .doubles import MemoryConsole
from .viewer_case import DELETED, KIB, ViewerCase


class MemoryTests(ViewerCase):
    """Output for users who are away, in a journal without a disk."""

    def retained(self) -> int:
        return int(self.shared.journal.end - self.shared.journal.start)

    def test_no_skipping(self) -> None:
        """While a user is away, nothing within 1 MiB is lost."""
        viewer, _ = self.attach()
        self.console.says(b"a" * 100)
        viewer.away()
        for _ in range(16):
            self.console.says(bytes(63 * KIB))
        again = self.resume(viewer, 50)
        self.assertEqual(again.positions, [50])
        self.assertEqual(len(again.output), 50 + 16 * 63 * KIB)

    def test_bytes_on_the_way(self) -> None:
        """A scrollback's length of what was written before the loss is there for the resume."""
        viewer, _ = self.attach()
        for _ in range(16):
            self.console.says(bytes(64 * KIB))
        viewer.away()
        for _ in range(12):
            self.console.says(bytes(64 * KIB))
        begin = (16 - 4) * 64 * KIB
        again = self.resume(viewer, begin)
        self.assertEqual((again.positions, len(again.output)), ([begin], 16 * 64 * KIB))

    def test_bounded(self) -> None:
        """An absent user holds 1 MiB, and then gets the exact position behind the gap."""
        viewer, _ = self.attach()
        self.console.says(b"=> ")
        viewer.away()
        for _ in range(300):
            self.console.says(bytes(16 * KIB))
            self.assertLess(self.retained(), 1100 * KIB)
        again = self.resume(viewer, 3)
        self.assertEqual(again.positions, [self.shared.journal.start])
        self.assertEqual(len(again.output), self.retained())
        self.assertGreaterEqual(len(again.output), KIB * KIB)

    def test_catching_up_is_bounded(self) -> None:
        """So does a user who is back and reads slowly; each gap has its position."""
        viewer, _ = self.attach()
        viewer.away()
        for _ in range(100):
            self.console.says(bytes(16 * KIB))
        again = self.resume(viewer, 0, capacity=1)
        for _ in range(100):
            self.console.says(bytes(16 * KIB))
            self.assertLess(self.retained(), 1100 * KIB)
        again.take()
        self.assertEqual(len(again.positions), 2)
        at = 0
        for each in again.sent:
            if isinstance(each, At):
                at = each.position.offset
            elif isinstance(each, bytes):
                at += len(each)
        self.assertEqual(at, 200 * 16 * KIB)

    def test_lag_again(self) -> None:
        """A user who has read everything since the loss is a slow viewer like any other."""
        viewer, _ = self.attach()
        viewer.away()
        again = self.resume(viewer, 0, capacity=1)
        self.console.says(b"x")
        again.take()
        again.take(0)
        for _ in range(17):
            self.console.says(bytes(64 * KIB))
        again.take()
        self.assertEqual(again.positions, [0, self.shared.journal.end])

    def test_later_machine(self) -> None:
        """The next console of a machine may free what an absent user of the last one lacks."""
        viewer, _ = self.attach()
        self.console.says(b"panic")
        viewer.away()
        self.shared.end(DELETED)
        later = MemoryConsole()
        shared = SharedConsole(later, self.clock, journal=self.shared.journal)
        self.successResultOf(shared.open())
        later.says(b"boot")
        again = self.resume(viewer, 2)
        self.assertEqual((again.output, again.ending), (b"nic", DELETED))
        for _ in range(10):
            later.says(bytes(64 * KIB))
        viewer.away()
        again = self.resume(viewer, 2)
        self.assertEqual((again.positions, again.output, again.ending), ([5], b"", DELETED))


class DiskTests(ViewerCase):
    """Output for users who are away, in a journal on disk."""

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(close_segments)
        self.journal = Journal(disk=ManualDisk(self.mktemp()))
        limits = ConsoleLimits(scrollback_bytes=16 * KIB, lag_bytes=64 * KIB)
        self.console = MemoryConsole()
        self.shared = SharedConsole(self.console, self.clock, journal=self.journal, limits=limits)
        self.successResultOf(self.shared.open())

    def test_everything(self) -> None:
        """Nothing is lost, however long the user was away, and however slowly it is read."""
        viewer, _ = self.attach()
        viewer.away()
        for number in range(100):
            self.console.says(bytes([number]) * 8 * KIB)
        again = self.resume(viewer, 0, capacity=1)
        for number in range(100, 200):
            self.console.says(bytes([number]) * 8 * KIB)
            again.take(12 * KIB)
        again.take()
        self.assertEqual(again.positions, [0])
        expected = b"".join(bytes([number]) * 8 * KIB for number in range(200))
        self.assertEqual(again.output, expected)

    def test_skipped(self) -> None:
        """What a slow user skipped before the loss is there, too, at the true position."""
        viewer, stream = self.attach(capacity=1)
        for _ in range(20):
            self.console.says(bytes(8 * KIB))
        viewer.away()
        self.assertEqual(len(stream.output), 8 * KIB)
        again = self.resume(viewer, 8 * KIB)
        self.assertEqual((again.positions, len(again.output)), ([8 * KIB], 19 * 8 * KIB))

    def test_unknown_gap(self) -> None:
        """After a power cut nobody knows how much is missing."""
        self.console.says(b"before")
        files = self.journal.open_files()
        path = files.place.path if files else ""
        again = Journal(disk=ManualDisk(path, run=2, cut=1))
        shared = SharedConsole(self.console, self.clock, journal=again)
        self.successResultOf(shared.open())
        self.console.says(b"after")
        viewer, stream = shared.viewer(), MarkStream()
        viewer.oldest = Position(again.epoch, 0)
        viewer.resumed(stream, Position(again.epoch, 2))
        first, fore, second, aft, _ = stream.sent
        self.assertEqual((fore, aft), (b"fore", b"after"))
        assert isinstance(first, At) and isinstance(second, At)
        self.assertEqual((first.exact, second.exact), (True, False))
        self.assertEqual(second.position.offset, again.end - 5)
        behind = SharedConsole(self.console, self.clock, journal=again).viewer()
        behind.oldest = Position(again.epoch, 0)
        stream = MarkStream()
        behind.resumed(stream, Position(again.epoch, 100))
        self.assertEqual(stream.sent[0], At(second.position, exact=False))
