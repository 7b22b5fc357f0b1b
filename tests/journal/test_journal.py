"""
Tests for :mod:`twisted_exec.journal.journal`.
"""

from __future__ import annotations

import os
from array import array
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests import soak
from tests.contracts.journal import JournalContract
from tests.journal.support import ManualDisk, close_segments
from tests.retained import instances
from twisted_exec.journal import records
from twisted_exec.journal.interfaces import Event, EventKind, IJournal, missing_bytes
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.snapshot import Snapshot
from twisted_exec.program.disk_thread import AtOnce, Unanswered


class DiskJournalTests(JournalContract, SynchronousTestCase):
    """A journal with files, whose memory has only the newest output."""

    def make_journal(self) -> IJournal:
        self.addCleanup(close_segments)
        return self.reopened(self.mktemp())

    def reopened(self, path: str) -> Journal:
        self.disk = ManualDisk(path)
        return Journal(lambda: self.now, self.disk)


class UnknownEventTests(SynchronousTestCase):
    """A journal with events of a kind that this release does not know."""

    def written(self, *, sealed: bool) -> str:
        """Return the path of a journal that another release has written."""
        path = self.mktemp()
        patched = (
            self.patch(records, "_RECORD_KINDS", {**records._RECORD_KINDS, "hidden": 11}),
            self.patch(records, "_EVENT_KINDS", {**records._EVENT_KINDS, 11: "hidden"}),
        )
        journal = Journal(disk=(disk := ManualDisk(path)))
        event: Any = "hidden"
        for number in range(40):
            journal.append(b"line" + b"x" * 99_996)
            journal._record(event, ranges=[[number * 100_000, 4]])
            journal.resized(24, 80)
        if sealed:
            disk.seal_all()
        close_segments()
        for each in patched:
            each.restore()
        return path

    def test_ignored(self) -> None:
        """They are ignored, in open and in sealed segments, and nothing else is lost."""
        self.addCleanup(close_segments)
        for sealed in (False, True):
            path = self.written(sealed=sealed)
            names = os.listdir(path)
            self.assertIs(any(name.endswith(".sealed") for name in names), sealed)
            journal = Journal(disk=ManualDisk(path, run=2))
            kinds = [event.kind for event in journal.events(0, 4_000_000)]
            self.assertEqual(kinds, [EventKind.SIZE] * 40)
            for first in (0, 2_000_000, 3_900_000):
                self.assertEqual(journal.read(first, 5), b"linex")
            kinds = [each.kind for each in Snapshot(path).entries() if isinstance(each, Event)]
            self.assertEqual(kinds, [EventKind.SIZE] * 40)


class LateThread(AtOnce):
    """
    The thread of a disk.

    :ivar is_late: the disk does not answer.
    """

    is_late = False

    def call(self, function: Any, *, is_long: bool = False) -> Any:
        if self.is_late:
            raise Unanswered
        return super().call(function, is_long=is_long)


class CursorTests(SynchronousTestCase):
    """Positions of readers in files."""

    def test_late_disk(self) -> None:
        """Whether there is a position is not known while the disk does not answer."""
        self.addCleanup(close_segments)
        disk = ManualDisk(self.mktemp())
        disk.thread = thread = LateThread()
        journal = Journal(disk=disk)
        journal.append(b"login: ")
        journal.cursor("syslog-1").save(3)
        thread.is_late = True
        with self.assertRaises(Unanswered):
            journal.cursor("syslog-1").load()
        thread.is_late = False
        self.assertEqual(journal.cursor("syslog-1").load(), 3)


class CountingLayer:
    """A disk that counts reads."""

    def __init__(self) -> None:
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pread(self, *arguments: Any) -> bytes:
        self.reads += 1
        return os.pread(*arguments)


class ViewersTests(SynchronousTestCase):
    """A machine whose console is opened again and again."""

    def setUp(self) -> None:
        self.addCleanup(close_segments)
        self.path, self.layer = self.mktemp(), CountingLayer()
        journal = self.reopened()
        journal.append(b"login: ")
        for number in range(4000):
            if number == 2000:
                journal.missed()
            journal.joined(f"session-{number}", "ada", "writer")
            journal.left(f"session-{number}", "ada")

    def reopened(self) -> Journal:
        return Journal(lambda: 1, ManualDisk(self.path, self.layer))

    def test_gaps(self) -> None:
        """Whether output is missing is known without a read for each earlier viewer."""
        journal = self.reopened()
        journal.rest()
        for most in (250, 0):
            self.layer.reads = 0
            self.assertIsNone(missing_bytes(journal, journal.end, journal.end))
            self.assertLessEqual(self.layer.reads, most)
        journal.append(b"root")
        self.assertEqual(missing_bytes(journal, journal.end, journal.end), 0)
        journal.missed()
        self.layer.reads = 0
        self.assertIsNone(missing_bytes(journal, journal.end, journal.end))
        self.assertLessEqual(self.layer.reads, 1)


class RestingJournalTests(DiskJournalTests):
    """A journal that frees its memory after each output."""

    def make_journal(self) -> IJournal:
        journal = super().make_journal()
        rest = journal.rest
        journal.watch(rest)
        return journal


class SealedJournalTests(DiskJournalTests):
    """A journal that begins and seals a segment after each 100 outputs."""

    def make_journal(self) -> IJournal:
        journal = super().make_journal()
        self.count = 0

        def roll() -> None:
            self.count += 1
            if self.count % 100 == 0:
                journal.open_files().roll()
                self.disk.seal_all()
                journal.rest()

        journal.watch(roll)
        return journal


class MemoryJournalTests(JournalContract, SynchronousTestCase):
    """A journal without a disk."""

    def make_journal(self) -> IJournal:
        return Journal(lambda: self.now)

    def test_discard(self) -> None:
        """Discarded output takes its events with it; the boot of the oldest byte stays."""
        journal = Journal()
        for _ in range(3):
            journal.booted("Started")
            journal.resized(24, 80)
            journal.append(bytes(70_000))
        journal.discard_before(150_000)
        self.assertEqual(journal.start, 140_000)
        self.assertEqual([each.number for each in journal.boots()], [3])
        self.assertEqual(len(list(journal.events(0, journal.end))), 2)

    def test_bounded(self) -> None:
        """Any number of events takes a bounded memory; the numbers of boots grow on."""
        journal = Journal()
        for _ in range(3000):
            journal.booted("Started")
        self.assertEqual((len(journal.boots()), journal.boots()[-1].number), (1000, 3000))
        self.assertEqual(len(list(journal.events(0, 0))), 1000)


class LineTests(SynchronousTestCase):
    """Starts of lines."""

    @given(
        st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"bc\n", b"x" * 40_000]), max_size=30),
        st.integers(0, 12),
        st.integers(0, 10**6),
    )
    def test_last_lines(self, chunks: list[bytes], count: int, at: int) -> None:
        """Lines are counted as by ``journal``: text after the last newline is a line."""
        journal = Journal()
        for chunk in chunks:
            journal.append(chunk)
        whole = b"".join(chunks)
        lines = whole.split(b"\n")
        ended = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        last = b"".join(ended[len(ended) - count :] if count < len(ended) else ended)
        self.assertEqual(whole[journal.last_lines(count) :], last if count else b"")
        at %= len(whole) + 1
        self.assertEqual(journal.line_start(at), whole.rfind(b"\n", 0, at) + 1)

    def test_many_lines(self) -> None:
        """A huge number of lines is found without a step for each."""
        journal = Journal()
        for _ in range(20):
            journal.append(b"\n" * 60_000)
        self.assertEqual(journal.last_lines(1_100_000), 100_000)
        self.assertEqual(journal.last_lines(10**15), 0)

    def test_last_bytes(self) -> None:
        """The last bytes are counted from the end, or from an earlier place."""
        journal = Journal()
        for letter in b"xyz":
            journal.append(bytes([letter]) * 60_000)
        self.assertEqual([journal.last_bytes(each) for each in (5, 200_000)], [179_995, 0])
        self.assertEqual(journal.last_bytes(5, 70_000), 69_995)
        journal.discard_before(60_000)
        self.assertEqual(journal.last_bytes(200_000), 60_000)

    def test_last_bytes_on_disk(self) -> None:
        """Only bytes that are stored count, in whatever file: what is missing does not."""
        self.addCleanup(close_segments)
        path = self.mktemp()
        journal = Journal(disk=(disk := ManualDisk(path)))
        for _ in range(30):
            journal.append(b"x" * 50_000)
        disk.seal_all()
        again = Journal(disk=ManualDisk(path, run=2, cut=1))  # the power has failed
        begin = again.end
        self.assertEqual(begin, 128 << 20)
        self.assertEqual(again.last_bytes(100), 1_499_900)
        again.append(b"y" * 10)
        for count, offset in ((4, begin + 6), (10, begin), (100, 1_499_910), (1_400_010, 100_000)):
            self.assertEqual(again.last_bytes(count), offset)
        self.assertEqual(again.last_bytes(5, begin + 2), 1_499_997)
        self.assertEqual(again.last_bytes(5, 3_000_000), 1_499_995)
        self.assertEqual(again.last_bytes(10_000_000), 0)

    def test_within_a_gap(self) -> None:
        """The size of a gap is unknown from each place within it; a part of a known gap is known."""
        self.addCleanup(close_segments)
        path = self.mktemp()
        Journal(disk=ManualDisk(path)).append(b"one")
        again = Journal(disk=ManualDisk(path, run=2, cut=1))
        begin = again.end
        again.append(b"two")
        for first in (3, 4, begin - 1):
            self.assertIsNone(missing_bytes(again, first, begin))
        self.assertEqual(missing_bytes(again, begin, begin + 3), 0)
        again.fail(OSError("full"))
        for _ in range(10):
            again.append(b"x" * 60_000)
        behind = again.next_available(begin + 3)
        self.assertGreater(behind, begin + 5)
        self.assertEqual(missing_bytes(again, begin + 5, behind), behind - begin - 5)

    def test_not_kept(self) -> None:
        """Lines whose beginning is gone begin where the journal does."""
        journal = Journal()
        journal.append(b"x" * 60_000)
        journal.append(b"y" * 60_000)
        journal.discard_before(60_000)
        self.assertEqual(journal.last_lines(5), 60_000)
        self.assertEqual(journal.line_start(70_000), 60_000)


MILLISECOND = 1_000_000
SECOND = 1000 * MILLISECOND


class TimeTests(SynchronousTestCase):
    """Times of output."""

    def setUp(self) -> None:
        self.now = 0
        self.journal = Journal(lambda: self.now)

    def at(self, moment: int, data: bytes) -> None:
        self.now = moment
        self.journal.append(data)

    def since(self, moment: int) -> int:
        return self.journal.printed_since(moment)

    def test_lines(self) -> None:
        """Each line has the time of its first byte; simultaneous lines share a mark."""
        self.at(1 * SECOND, b"one\r\ntwo\r\n")
        self.at(2 * SECOND, b"th")
        self.at(5 * SECOND, b"ree\r\nfour\r\n")
        self.at(5 * SECOND + 5 * MILLISECOND, b"five\r\n")
        times = [self.journal.time_at(offset) // SECOND for offset in (0, 5, 10, 17, 23)]
        self.assertEqual(times, [1, 1, 2, 5, 5])

    def test_since(self) -> None:
        """A line counts as printed while any of it was."""
        self.at(10 * SECOND, b"one\r\n")
        self.at(20 * SECOND, b"login: ")
        self.assertEqual(self.since(0), 0)
        self.assertEqual(self.since(10 * SECOND), 0)
        self.assertEqual(self.since(15 * SECOND), 5)
        self.assertEqual(self.since(21 * SECOND), 12)
        self.at(30 * SECOND, b"root\r\n")
        self.assertEqual(self.since(25 * SECOND), 5)
        self.assertEqual(self.since(31 * SECOND), 18)

    def test_within_a_mark(self) -> None:
        """Output slightly later than its mark is found."""
        self.at(10 * SECOND, b"working")
        self.at(10 * SECOND + 500 * MILLISECOND, b".")
        self.assertEqual(self.since(10 * SECOND + 300 * MILLISECOND), 0)
        self.assertEqual(self.since(11 * SECOND), 8)

    def test_nothing(self) -> None:
        """Of an empty journal nothing was printed at any time."""
        self.assertEqual((self.since(0), self.journal.time_at(0)), (0, 0))

    def test_bounded(self) -> None:
        """However a line prints, times weigh less than the bytes, and still tell old from new."""
        lines = soak.figure(self)
        for index in range(lines):
            self.at(index * SECOND, b"\n")
            self.journal.discard_before(self.journal.end - (256 << 10))
        self.assertLessEqual(max(map(len, instances(self.journal, array))), 8192)
        for index in (0, lines // 2, lines - 1):
            off = index - self.journal.time_at(index) // SECOND
            self.assertGreaterEqual(off, 0)
            self.assertLess(off, 200)

    def test_forgets(self) -> None:
        """Times of bytes that are gone go with them; the oldest byte keeps its own."""
        for index in range(100):
            self.at(index * SECOND, b"x" * 9_999 + b"\n")
        self.journal.discard_before(500_000)
        start = self.journal.start
        self.assertEqual(self.journal.time_at(start) // SECOND, start // 10_000)
        self.assertLess(max(map(len, instances(self.journal, array))), 60)
        self.assertEqual(self.since(0), start)
