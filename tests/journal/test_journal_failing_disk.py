"""
Tests for :mod:`twisted_exec.journal.journal` on a disk that is full or read-only.
"""

from __future__ import annotations

import errno
import itertools
import os

from tests.journal.support import (
    SECOND,
    FailingLayer,
    JournalTestCase,
    contents,
    retry,
)
from twisted_exec.journal.interfaces import missing_bytes
from twisted_exec.journal.journal import Journal


class FullDiskTests(JournalTestCase):
    """A disk that is full or read-only: the line continues, and writing resumes."""

    def check_start(self, error: int, output: list[bytes]) -> tuple[Journal, int]:
        """Start on a disk that fails; return the journal and the bytes that are lost."""
        before = self.journal()
        before.booted("Started")
        before.append(b"before\n" * 50_000)
        before.open_files().roll()
        self.disk.seal_all()
        before.append(b"newest\n")
        whole = contents(before)
        layer = FailingLayer()
        layer.error, layer.takes_changes = error, True
        journal = self.journal(layer, run=2)
        self.assertEqual((contents(journal), journal.epoch), (whole, before.epoch))
        self.assertEqual([each.number for each in journal.boots()], [1])
        begin = journal.end
        journal.booted("Started")
        for each in output:
            journal.append(each)
        self.assertTrue(self.disk.failures)
        self.assertIsNone(retry(journal))
        journal.rest()
        self.assertEqual(contents(journal)[: len(whole)], whole)
        layer.error = 0
        lost = retry(journal)
        journal.append(b"after\n")
        self.assertEqual([each.number for each in journal.boots()], [1, 2])
        again = self.journal(run=3)
        self.assertEqual(contents(again), contents(journal))
        self.assertEqual((again.end, again.epoch), (journal.end, before.epoch))
        printed = b"".join(output) + b"after\n"
        self.assertEqual(contents(again), whole + printed[lost or 0 :])
        self.assertEqual(again.end - begin, len(printed))
        self.assertEqual(lost, again.next_available(begin) - begin)
        return again, lost or 0

    def test_full_at_the_start(self) -> None:
        """A start on a full disk shows what was printed before; all is written later."""
        journal, lost = self.check_start(errno.ENOSPC, [b"during\n"])
        self.assertEqual((lost, missing_bytes(journal, 0, journal.end)), (0, 0))

    def test_full_for_long(self) -> None:
        """What memory had to drop becomes a gap with its size."""
        journal, lost = self.check_start(
            errno.ENOSPC, [b"%03d" % each * 300 for each in range(999)]
        )
        self.assertGreater(lost, 500_000)
        self.assertEqual(missing_bytes(journal, 0, journal.end), lost)

    def test_read_only_at_the_start(self) -> None:
        """The same with a read-only disk, after a gap of unknown size: nothing notes the offsets."""
        self.now = 1_800_000_000 * SECOND
        journal, lost = self.check_start(errno.EROFS, [b"%03d" % each * 300 for each in range(999)])
        self.assertGreater(lost, 500_000)
        self.assertIsNone(missing_bytes(journal, 0, journal.end))

    def test_no_offset_twice(self) -> None:
        """Runs that end while the disk fails leave their offsets to nobody."""
        self.now = 1_800_000_000 * SECOND
        for error in (errno.ENOSPC, errno.EROFS):
            self.path = self.mktemp()
            self.journal().append(b"first\n")
            used = [(0, 6)]
            for run in range(2, 6):
                self.now += 90 * SECOND
                layer = FailingLayer()
                layer.error, layer.takes_changes = error if run < 5 else 0, True
                journal = self.journal(layer, run=run)
                begin = journal.end
                journal.append(b"run %d" % run * 10_000)
                used.append((begin, journal.end))
            ordered = sorted(used)
            for (_, end), (begin, _) in itertools.pairwise(ordered):
                self.assertLessEqual(end, begin)

    def test_read_only_and_quiet(self) -> None:
        """A quiet journal is read from a disk that became read-only."""
        layer = FailingLayer()
        journal = self.journal(layer)
        journal.append(b"line\n" * 20_000)
        journal.rest()
        layer.error = errno.EROFS
        self.assertEqual((journal.failure, len(contents(journal))), ("", 100_000))
        self.assertEqual(journal.last_lines(2), 99_990)
        self.assertRaises(OSError, journal.drop, 0)
        self.assertEqual(len(contents(journal)), 100_000)

    def test_unreadable_and_quiet(self) -> None:
        """A reader of a disk that is gone gets a gap at once."""
        layer = FailingLayer()
        journal = self.journal(layer)
        journal.append(b"line\n" * 20_000)
        journal.rest()
        layer.unreadable = errno.EIO
        self.assertEqual((journal.read(0, 9), journal.next_available(0)), (b"", 100_000))
        self.assertEqual(missing_bytes(journal, 0, 100_000), 100_000)
        journal.rest()
        layer.unreadable = 0
        self.assertEqual(len(contents(journal)), 100_000)

    def test_short(self) -> None:
        """What memory still has is written later; nothing is missing."""
        layer = FailingLayer()
        journal = self.journal(layer)
        journal.append(b"before\n")
        layer.error = errno.ENOSPC
        journal.booted("Started")
        journal.append(b"during\n")
        self.assertEqual(self.disk.failures, ["No space left on device"])
        self.assertIsNone(retry(journal))
        self.assertEqual(contents(journal), b"before\nduring\n")
        layer.error = 0
        self.assertEqual(retry(journal), 0)
        journal.append(b"after\n")
        again = self.journal(run=2)
        self.assertEqual(contents(again), b"before\nduring\nafter\n")
        self.assertEqual([each.offset for each in again.boots()], [7])

    def test_long(self) -> None:
        """What memory had to drop becomes a gap with its size."""
        layer = FailingLayer()
        journal = self.journal(layer)
        journal.append(b"before\n")
        layer.error = errno.EROFS
        for number in range(1000):
            self.now += SECOND
            journal.append(b"%04d" % number * 250)
        self.assertEqual(journal.read(0, 99), b"before\n")
        at = journal.next_available(7)
        self.assertEqual(missing_bytes(journal, 0, at), at - 7)
        self.assertEqual(journal.last_lines(9), 0)
        layer.error = 0
        lost = retry(journal)
        self.assertEqual(lost, at - 7)
        self.assertGreater(journal.end - at, 190_000)
        again = self.journal(run=2)
        self.assertEqual((again.end, again.next_available(7)), (1_000_007, at))
        self.assertEqual(missing_bytes(again, 0, again.end), lost)
        self.assertEqual(contents(again)[-1000:], b"0999" * 250)
        self.assertEqual(again.time_at(again.end - 1), journal.time_at(again.end - 1))

    def test_killed(self) -> None:
        """A process that dies meanwhile leaves a gap; offsets that were shown do not repeat."""
        layer = FailingLayer()
        journal = self.journal(layer)
        journal.append(b"before\n")
        layer.error = errno.ENOSPC
        # In place, a full disk can be written.
        layer_pwrite, layer.error = os.pwrite, errno.ENOSPC
        journal.append(b"x" * 1000)
        journal.open_files().place.layer.error = 0
        journal._reserve()
        self.assertTrue(layer_pwrite)
        again = self.journal(run=2)
        self.assertGreaterEqual(again.end, journal.end)
        self.assertIsNone(missing_bytes(again, 0, again.end))

    def test_from_the_start(self) -> None:
        """A journal that could not be created appears on the disk later."""
        layer = FailingLayer()
        layer.error = errno.ENOSPC
        journal = self.journal(layer)
        journal.append(b"early\n")
        epoch = journal.epoch
        layer.error = 0
        self.assertEqual(retry(journal), 0)
        journal.append(b"late\n")
        again = self.journal(run=2)
        self.assertEqual((contents(again), again.epoch), (b"early\nlate\n", epoch))
