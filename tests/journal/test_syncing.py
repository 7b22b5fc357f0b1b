"""
Tests for :mod:`twisted_exec.journal.syncing`.
"""

from __future__ import annotations

import errno
import os

from tests.journal.store_case import KEY, OTHER, StallCase
from twisted_exec.journal.syncing import SYNC_SECONDS
from twisted_exec.journal.writer import WRITE_SECONDS


class SyncerTests(StallCase):
    """Output that is forced to the disk."""

    def test_synced(self) -> None:
        """After five seconds, a power cut loses nothing."""
        store = self.store()
        journal = store.journal(KEY)
        journal.append(b"synced\n")
        self.wait(5)
        self.assertEqual(journal.open_files().unsynced_bytes, 0)
        journal.append(b"not\n")
        self.clock.advance(WRITE_SECONDS)
        self.assertEqual(journal.open_files().unsynced_bytes, 4)

    def test_directory_fails(self) -> None:
        """A directory that is not forced fails its journal only, and is forced later."""
        broken = self.break_directory()
        store = self.store()
        for key in (KEY, OTHER):
            store.journal(key).append(b"one\n")
        self.clock.pump([WRITE_SECONDS, SYNC_SECONDS])
        self.assertEqual(self.events, [(KEY, os.strerror(errno.EIO))])
        self.assertFalse(store.journal(OTHER).is_dirty)
        self.assertTrue(store.journal(KEY).is_dirty)
        broken.clear()
        self.clock.pump([1] * 10)
        self.assertEqual(self.events[1:], [(KEY, "lost 0")])
        self.assertFalse(store.journal(KEY).is_dirty)
        self.stop(store)
        self.assertTrue(self.is_clean())
