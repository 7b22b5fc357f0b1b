"""
Tests for :mod:`twisted_exec.journal.store`, :mod:`~twisted_exec.journal.writer` and
:mod:`~twisted_exec.journal.directories`.
"""

from __future__ import annotations

import os
from pathlib import Path

from twisted.internet.defer import Deferred

from tests.journal.store_case import DAY, KEY, StoreCase
from tests.journal.support import contents
from twisted_exec.journal.store import FormatError
from twisted_exec.journal.writer import WRITE_SECONDS


class StoreTests(StoreCase):
    """Journals by their keys."""

    def test_newer(self) -> None:
        """Journals of a later release are refused in one line."""
        self.stop(self.store())
        with open(os.path.join(self.path, "format"), "w") as file:
            file.write("2\n")
        with self.assertRaises(FormatError) as raised:
            self.store()
        self.assertIn("has journals of format 2", str(raised.exception))
        self.assertNotIn("\n", str(raised.exception))

    def test_not_open(self) -> None:
        """A store that is not open can be closed: its threads end, and nothing is written."""
        store = self.store()
        self.stop(store)
        before = Path(self.path, "run").read_bytes()
        store.journal(KEY).append(b"late\n")
        self.stop(store)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(Path(self.path, "run").read_bytes(), before)

    def test_keys(self) -> None:
        """A key is never a path."""
        store = self.store()
        for key in ("..", "run", "a/b", "", KEY.upper(), KEY + "\n"):
            with self.assertRaises(ValueError):
                store.journal(key)
            self.assertFalse(store.has(key))
        self.assertFalse(store.has(KEY))
        store.journal(KEY).append(b"x")
        self.assertTrue(store.has(KEY))

    def test_deleted_machines(self) -> None:
        """The names of deleted machines are known as long as their journals are retained."""
        store = self.store()
        store.journal(KEY).append(b"last words\n")
        store.journal("0" * 32).append(b"of another machine\n")
        store.deleted(KEY, {"machine": "vm-1"})
        self.stop(store)
        store = self.store()
        ((journal, facts),) = store.deleted_machines()
        self.assertEqual((journal.read(0, 99), journal.closed), (b"last words\n", True))
        self.assertEqual(facts, {"machine": "vm-1"})
        store.revive(KEY)
        self.assertEqual(list(store.deleted_machines()), [])
        store.journal(KEY).append(b"again\n")
        store.deleted(KEY)
        for content in (b"", b"[", b"[]", b"1"):
            with open(os.path.join(self.path, KEY, "facts"), "wb") as file:
                file.write(content)
            self.assertEqual(list(store.deleted_machines()), [])

    def test_revived(self) -> None:
        """A machine that is created again continues its journal."""
        store = self.store()
        store.journal(KEY).append(b"one\n")
        store.deleted(KEY)
        store.revive(KEY)
        journal = store.journal(KEY)
        self.assertFalse(journal.closed)
        journal.append(b"two\n")
        self.wait(9 * DAY)
        self.assertEqual(contents(journal), b"one\ntwo\n")


class DiskTests(StoreCase):
    """Output on the disk."""

    def test_settled(self) -> None:
        """Output behind what was written at once, out of turn, is written in its turn."""
        store = self.store()
        journal = store.journal(KEY)
        journal.append(b"one\n")
        self.assertTrue(store.writer.settle(journal))
        journal.append(b"two\n")
        self.clock.advance(WRITE_SECONDS)
        self.assertEqual(journal.open_files().end, 8)

    def test_idle(self) -> None:
        """A line that is quiet for a minute has no descriptor, and nothing in memory."""
        store = self.store()
        journal = store.journal(KEY)
        journal.append(b"output\n")
        self.clock.advance(WRITE_SECONDS)
        self.assertTrue(journal.has_descriptor)
        self.wait(70)
        self.assertFalse(journal.is_awake or journal.has_descriptor)
        self.assertEqual(journal.read(0, 99), b"output\n")
        journal.last_lines(1)
        self.assertTrue(journal.is_awake)
        self.wait(70)
        self.assertFalse(journal.is_awake)

    def test_seals(self) -> None:
        """Full segments are sealed a minute later."""
        journal = self.store().journal(KEY)
        for _ in range(40):
            journal.append(b"y\n" * 32_768)
        self.wait(30)
        self.assertEqual([name for name in self.names() if name.endswith("sealed")], [])
        self.wait(40)
        names = self.names()
        self.assertEqual(
            [name for name in names if name.endswith("sealed")],
            [f"{0:016x}.sealed", f"{1 << 20:016x}.sealed"],
        )
        self.assertEqual(contents(journal), b"y\n" * 32_768 * 40)

    def test_seals_later(self) -> None:
        """Segments that an earlier run left full are sealed by the next."""
        journal = self.store(in_thread=lambda function: Deferred()).journal(KEY)
        for _ in range(20):
            journal.append(b"y\n" * 32_768)
        self.assertNotIn(f"{0:016x}.sealed", self.names())
        again = self.store().journal(KEY)
        self.assertEqual(again.end, 20 << 16)
        self.wait(70)
        self.assertIn(f"{0:016x}.sealed", self.names())
