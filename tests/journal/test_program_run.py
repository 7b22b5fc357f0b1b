"""
Tests for :mod:`twisted_exec.journal.program_run`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.journal.store_case import KEY, OTHER, StoreCase
from tests.journal.support import contents
from twisted_exec.journal.interfaces import missing_bytes


class RunTests(StoreCase):
    """Starts and stops."""

    def test_continues(self) -> None:
        """After a clean stop the journal continues, whatever became of the kernel."""
        store = self.store()
        journal = store.journal(KEY)
        journal.append(b"one\n")
        epoch = journal.epoch
        self.stop(store)
        again = self.store("k2").journal(KEY)
        again.append(b"two\n")
        self.assertEqual((again.epoch, contents(again), again.end), (epoch, b"one\ntwo\n", 8))

    def test_killed(self) -> None:
        """After a kill on the same kernel, nothing is missing."""
        self.store().journal(KEY).append(b"one\n")
        again = self.store().journal(KEY)
        self.assertEqual((contents(again), again.end), (b"one\n", 4))

    def test_power_cut(self) -> None:
        """After a power cut, offsets jump once; journals that begin later do not."""
        store = self.store()
        for key in (KEY, OTHER):
            store.journal(key).append(b"one\n")
        again = self.store("k2")
        journal = again.journal(KEY)
        self.assertEqual((journal.end, missing_bytes(journal, 0, journal.end)), (128 << 20, None))
        self.stop(again)
        third = self.store("k2")
        self.assertEqual(third.journal(KEY).end, 128 << 20)
        self.assertEqual(third.journal(OTHER).end, 128 << 20)
        new = third.journal("1" * 32)
        new.append(b"new")
        self.assertEqual(new.end, 3)

    def test_lost_run(self) -> None:
        """Without its file, a start assumes a power cut."""
        store = self.store()
        store.journal(KEY).append(b"one\n")
        self.stop(store)
        os.unlink(os.path.join(self.path, "run"))
        self.assertEqual(self.store().journal(KEY).end, 128 << 20)

    def test_run_of_newer_release(self) -> None:
        """A clean end is one also if a newer release has noted more about it."""
        store = self.store()
        store.journal(KEY).append(b"one\n")
        self.stop(store)
        path = Path(self.path, "run")
        path.write_text(json.dumps(json.loads(path.read_text()) | {"newer": 1}))
        self.assertEqual(self.store().journal(KEY).end, 4)
