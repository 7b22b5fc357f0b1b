"""
Tests for :mod:`twisted_exec.journal.journal`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.journal import JournalContract
from twisted_exec.journal.interfaces import IJournal
from twisted_exec.journal.journal import Journal


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
