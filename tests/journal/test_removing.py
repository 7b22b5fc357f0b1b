"""
Tests for :mod:`twisted_exec.journal.removing`.
"""

from __future__ import annotations

import errno
import os
import shutil
from typing import Any

from twisted.logger import capturedLogs, formatEvent

from tests.journal.store_case import DAY, KEY, StoreCase
from tests.journal.support import contents
from twisted_exec.journal.retention import Retention, StoreLimits
from twisted_exec.journal.store import JournalStore
from twisted_exec.journal.writer import WRITE_SECONDS

_AN_HOUR = StoreLimits(total_bytes=1 << 40, free_bytes=0, deleted_days=1 / 24)


class RetentionTests(StoreCase):
    """What is removed."""

    def fill(self, store: JournalStore, key: str, days: int, retention: Retention) -> Any:
        journal = store.journal(key, retention)
        for day in range(days):
            journal.append(b"%04d" % day * 300_000)
            journal.append(b"\n")
            self.ahead += DAY
        return journal

    def test_age(self) -> None:
        """Output is removed after its days; the clock's own jumps remove nothing for a day."""
        store = self.store()
        journal = self.fill(store, KEY, 10, Retention(5, 0))
        self.wait(120)
        self.assertEqual(journal.start, 0)
        self.wait(DAY + 120)
        self.assertGreater(journal.start, 4_000_000)
        self.assertEqual(journal.read(journal.end - 5, 4), b"0009")

    def test_clock_set_forward(self) -> None:
        """A clock that is years ahead for an hour costs nothing."""
        store = self.store()
        journal = self.fill(store, KEY, 2, Retention(5, 0))
        self.wait(DAY + 120)
        self.ahead += 20 * 365 * DAY
        self.wait(3600)
        self.ahead -= 20 * 365 * DAY
        self.wait(3600)
        self.assertEqual(journal.start, 0)

    def test_size(self) -> None:
        """A journal never grows far beyond its size."""
        store = self.store()
        journal = store.journal(KEY, Retention(0, 1 << 20))
        for number in range(64):
            journal.append(os.urandom(65_536))
            self.clock.advance(WRITE_SECONDS)
            size = sum(os.path.getsize(os.path.join(self.path, KEY, name)) for name in self.names())
            self.assertLess(size, 2_300_000, number)
        self.assertGreater(journal.start, 0)
        self.assertEqual(len(contents(journal)), journal.end - journal.start)

    def test_deleted(self) -> None:
        """The journal of a deleted machine is readable for a week, then gone."""
        store = self.store()
        journal = store.journal(KEY)
        journal.append(b"last words\n")
        store.deleted(KEY)
        self.assertEqual((journal.closed, journal.has_descriptor), (True, False))
        self.wait(6 * DAY)
        self.assertEqual(journal.read(0, 99), b"last words\n")
        self.stop(store)
        store = self.store()
        self.wait(2 * DAY + 120)
        self.assertFalse(store.has(KEY))
        self.assertEqual(os.path.exists(os.path.join(self.path, KEY)), False)

    def test_deleted_while_the_disk_fails(self) -> None:
        """The time of a machine that is deleted while its disk fails begins then, too."""
        for error, takes_names in (
            (errno.ENOSPC, False),
            (errno.ENOSPC, True),
            (errno.EROFS, False),
        ):
            with self.subTest(error=error, takes_names=takes_names):
                store = self.store(limits=_AN_HOUR)
                journal = store.journal(KEY)
                journal.append(b"last words\n")
                self.clock.advance(WRITE_SECONDS)
                self.layer.error, self.layer.takes_names = error, takes_names
                store.deleted(KEY, {"machine": "vm-1"})
                self.wait(1800)
                self.assertEqual(list(store.deleted_machines()), [])
                self.layer.error = 0
                self.wait(1500)
                ((_, facts),) = store.deleted_machines()
                self.assertEqual(facts, {"machine": "vm-1"})
                self.assertEqual(journal.read(0, 99), b"last words\n")
                self.wait(420)
                self.assertFalse(store.has(KEY))
                self.stop(store)

    def test_deleted_while_failing(self) -> None:
        """The journal of a machine that was never on disk is on disk later, and is retained."""
        self.ahead = 1_770_000_000.0
        store = self.store(limits=_AN_HOUR)
        self.layer.unreadable = errno.EACCES
        with capturedLogs() as logged:
            journal = store.journal(KEY)
            journal.append(b"last words\n")
            store.deleted(KEY, {"machine": "vm-1"})
            self.wait(120)
            self.layer.unreadable = 0
            self.wait(120)
        self.assertEqual(
            [formatEvent(each) for each in logged],
            [
                "journals are not on disk at present: Permission denied",
                "all journals are on disk again",
            ],
        )
        ((_, facts),) = store.deleted_machines()
        self.assertEqual(facts, {"machine": "vm-1"})
        self.assertIn(b"last words\n", contents(journal))

    def test_deletion_not_noted(self) -> None:
        """The log has the reason why deletions cannot be noted, once until they are."""
        store = self.store()
        for key in (KEY, "0" * 32):
            store.journal(key).append(b"last words\n")
        for _ in range(2):
            with capturedLogs() as logged:
                self.layer.error = errno.EROFS
                store.deleted(KEY)
                store.deleted("0" * 32)
                self.wait(120)
                self.layer.error = 0
                self.wait(60)
            marks = [each for each in map(formatEvent, logged) if "marked" in each]
            why = os.strerror(errno.EROFS)
            self.assertEqual(marks, [f"deleted machines are not marked on disk at present: {why}"])

    def test_deleted_before_the_stop(self) -> None:
        """A stop notes a deletion that the disk did not take before."""
        store = self.store()
        store.journal(KEY).append(b"last words\n")
        self.layer.error = errno.EROFS
        store.deleted(KEY, {"machine": "vm-1"})
        self.layer.error = 0
        self.stop(store)
        self.assertEqual(len(list(self.store().deleted_machines())), 1)

    def test_revived_while_the_disk_fails(self) -> None:
        """A machine that was deleted and created again while its disk failed exists."""
        for is_new in (False, True):
            with self.subTest(is_new=is_new):
                store = self.store(limits=_AN_HOUR)
                store.journal(KEY).append(b"one\n")
                self.clock.advance(0 if is_new else WRITE_SECONDS)
                self.layer.error = errno.EROFS
                store.deleted(KEY)
                store.revive(KEY)
                self.layer.error = 0
                store.journal(KEY).append(b"two\n")
                self.wait(7200)
                self.assertTrue(store.journal(KEY).read(store.journal(KEY).start, 99))
                self.assertNotIn("deleted", self.names())
                self.stop(store)

    def test_revived_on_a_disk_that_fails(self) -> None:
        """A machine that is created again keeps its journal, also if its mark cannot be removed."""
        store = self.store(limits=_AN_HOUR)
        store.journal(KEY).append(b"one\n")
        store.deleted(KEY)
        self.layer.error = errno.EROFS
        store.revive(KEY)
        self.wait(120)
        self.layer.error = 0
        self.wait(7200)
        self.assertIn(b"one\n", contents(store.journal(KEY)))

    def test_damaged_mark(self) -> None:
        """A mark without its time counts from when the file was written."""
        for content in (b"", b"17", b"-1\n", b"\xff\n"):
            with self.subTest(content=content):
                store = self.store(limits=_AN_HOUR)
                store.journal(KEY).append(b"last words\n")
                store.deleted(KEY)
                path, now = os.path.join(self.path, KEY, "deleted"), self.now()
                with open(path, "wb") as file:
                    file.write(content)
                os.utime(path, ns=(now, now))
                self.wait(3400)
                self.assertTrue(store.has(KEY))
                self.wait(320)
                self.assertFalse(store.has(KEY))
                self.stop(store)

    def test_strange_entries(self) -> None:
        """A link that is named as a segment has no size; a directory does not keep the rest."""
        store = self.store()
        store.journal(KEY).append(b"old\n")
        store.deleted(KEY)
        self.stop(store)
        os.symlink("nowhere", os.path.join(self.path, KEY, f"{99:016x}.open"))
        os.mkdir(os.path.join(self.path, KEY, f"{98:016x}.sealed"))
        store = self.store()
        self.wait(9 * DAY)
        self.assertEqual(self.names(), [f"{98:016x}.sealed"])

    def test_unused(self) -> None:
        """Journals that no machine uses are removed by their age, and completely."""
        store = self.store()
        store.journal(KEY).append(b"old\n")
        self.stop(store)
        past = self.now() - 40 * DAY * 10**9
        for name in self.names():
            os.utime(os.path.join(self.path, KEY, name), ns=(past, past))
        store = self.store()
        self.wait(120)
        self.assertFalse(store.has(KEY))

    def test_quiet(self) -> None:
        """Of a machine that has been quiet for long nothing is left, and its journal continues."""
        store = self.store()
        journal = store.journal(KEY, Retention(5, 0))
        journal.booted("Started")
        journal.append(b"old\n")
        epoch = journal.epoch
        self.wait(120)
        past = self.now() - 6 * DAY * 10**9
        for name in self.names():
            os.utime(os.path.join(self.path, KEY, name), ns=(past, past))
        self.wait(120)
        self.assertEqual((journal.start, journal.end), (4, 4))
        self.assertEqual(journal.boots()[-1].number, 1)
        journal.booted("Started")
        journal.append(b"new\n")
        self.assertEqual((journal.read(4, 9), journal.epoch), (b"new\n", epoch))
        self.assertEqual([each.number for each in journal.boots()], [1, 2])
        again = self.store().journal(KEY)
        self.assertEqual((again.start, again.end, contents(again)), (4, 8, b"new\n"))

    def test_vanished(self) -> None:
        """A directory that somebody removes breaks nothing."""
        store = self.store()
        journal = store.journal(KEY)
        journal.append(b"one\n")
        self.wait(70)
        shutil.rmtree(os.path.join(self.path, KEY))
        journal.append(b"two\n")
        self.assertEqual(journal.read(4, 9), b"two\n")
        self.wait(120)
        journal.append(b"three\n")
        self.assertEqual(journal.read(8, 9), b"three\n")
