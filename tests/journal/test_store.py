"""
Tests for :mod:`twisted_exec.journal.store`, :mod:`~twisted_exec.journal.writer`,
:mod:`~twisted_exec.journal.directories` and :mod:`~twisted_exec.journal.program_run`.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests import soak
from tests.journal.support import FailingLayer, close_segments, contents
from tests.retained import instances
from twisted_exec.journal import store as store_module
from twisted_exec.journal.interfaces import missing_bytes
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.retention import Retention, StoreLimits
from twisted_exec.journal.store import FormatError, JournalStore
from twisted_exec.journal.writer import WRITE_SECONDS
from twisted_exec.program.disk_thread import AtOnce, Files
from twisted_exec.program.turns import REST_SECONDS

DAY = 86_400
KEY = "0b3f6c3a-52c1-4b43-9a39-3f4d2a6c8f10"
OTHER = "7" * 32


class Case(SynchronousTestCase):
    """Stores in a directory of the test, whose time is that of a clock."""

    def setUp(self) -> None:
        self.addCleanup(close_segments)
        self.path, self.memory = self.mktemp(), self.mktemp()
        os.mkdir(self.memory)
        self.clock = Clock()
        self.ahead = 1_700_000_000.0
        self.layer = FailingLayer()

    def now(self) -> int:
        return int((self.ahead + self.clock.seconds()) * 1e9)

    def store(
        self,
        kernel: str = "k1",
        path: str = "",
        limits: StoreLimits | None = None,
        in_thread: Callable[[Callable[[], Any]], Deferred[Any]] = maybeDeferred,
        thread: Files | None = None,
    ) -> JournalStore:
        store = JournalStore(
            path or self.path,
            self.clock,
            limits=limits or StoreLimits(total_bytes=1 << 40, free_bytes=0),
            now=self.now,
            in_thread=in_thread,
            thread=thread or AtOnce(),
            memory=self.memory,
            layer=self.layer,
            kernel=kernel,
        )
        store.open()
        return store

    def stop(self, store: JournalStore) -> None:
        self.successResultOf(Deferred.fromCoroutine(store.close()))

    def wait(self, seconds: float) -> None:
        # Retention looks every minute; days in shorter steps would take seconds.
        step = 60 if seconds > DAY else 5
        for _ in range(int(seconds / step)):
            self.clock.advance(step)

    def names(self, key: str = KEY) -> list[str]:
        return sorted(os.listdir(os.path.join(self.path, key)))


class RunTests(Case):
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

    def test_newer(self) -> None:
        """Journals of a later release are refused in one line."""
        self.stop(self.store())
        with open(os.path.join(self.path, "format"), "w") as file:
            file.write("2\n")
        with self.assertRaises(FormatError) as raised:
            self.store()
        self.assertIn("has journals of format 2", str(raised.exception))
        self.assertNotIn("\n", str(raised.exception))

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


class DiskTests(Case):
    """Output on the disk."""

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

    def test_descriptors(self) -> None:
        """Any number of lines takes a limited number of descriptors."""
        self.patch(store_module, "descriptor_limit", lambda: 8 * 20)
        store = self.store()
        for number in range(100):
            store.journal(f"{number:032x}").append(b"x")
        active = [each for each in instances(store, Journal) if each.has_descriptor]
        self.assertLessEqual(len(active), 21)


class FullTests(Case):
    """A disk that is full."""

    def test_recovers(self) -> None:
        """The failure and the recovery are reported, once for each journal."""
        store = self.store()
        reports: list[Any] = []
        store.failed = lambda key, reason: reports.append((key, reason))
        store.recovered = lambda key, lost: reports.append((key, lost))
        journal = store.journal(KEY)
        journal.append(b"before\n")
        self.layer.error = errno.ENOSPC
        for _ in range(12):
            journal.append(b"during\n")
            self.wait(5)
        self.assertEqual(store.failing, 1)
        self.layer.error = 0
        self.wait(30)
        self.assertEqual(store.failing, 0)
        self.assertEqual(reports, [(KEY, "No space left on device"), (KEY, 0)])
        journal.append(b"after\n")
        self.assertEqual(
            contents(self.store().journal(KEY)), b"before\n" + b"during\n" * 12 + b"after\n"
        )

    def test_starts(self) -> None:
        """A start on a full disk succeeds; the journals reach the disk later."""
        self.stop(self.store())
        self.layer.error = errno.ENOSPC
        store = self.store()
        journal = store.journal(KEY)
        journal.append(b"early\n")
        self.layer.error = 0
        self.wait(30)
        self.assertEqual(store.failing, 0)
        self.assertEqual(contents(self.store().journal(KEY)), b"early\n")

    def test_starts_again(self) -> None:
        """So does one whose journals exist: they can be read, and get what was printed meanwhile."""
        for error, missing in ((errno.ENOSPC, 0), (errno.EROFS, None)):
            self.path, self.layer = self.mktemp(), FailingLayer()
            store = self.store()
            for key in (KEY, OTHER):
                store.journal(key).append(b"before\n")
            self.stop(store)
            self.layer.error, self.layer.takes_changes = error, True
            os.chmod(os.path.join(self.path, OTHER), 0o777)
            store = self.store()
            other, journal = store.journal(OTHER), store.journal(KEY)
            self.assertEqual((contents(other), contents(journal)), (b"", b"before\n"))
            journal.append(b"during\n")
            self.assertEqual(store.failing, 2)
            self.layer.error = 0
            self.wait(30)
            self.assertEqual((store.failing, store.lost_bytes), (1, 0))
            again = self.store().journal(KEY)
            self.assertEqual(contents(again), b"before\nduring\n")
            self.assertEqual(missing_bytes(again, 0, again.end), missing)

    def test_opened_again(self) -> None:
        """A store that is opened again on a full disk loses no output if it is killed."""
        store = self.store()
        store.journal(KEY).append(b"before\n")
        self.stop(store)
        self.layer.error = errno.ENOSPC
        store.open()
        store.journal(KEY).append(b"during\n")
        self.layer.error = 0
        self.assertEqual(contents(self.store().journal(KEY)), b"before\nduring\n")

    def test_quiet_at_the_start(self) -> None:
        """A quiet journal can be read from a read-only disk."""
        store = self.store()
        store.journal(KEY).append(b"before\n")
        self.stop(store)
        self.layer.error = errno.EROFS
        journal = self.store().journal(KEY)
        self.wait(120)
        self.assertEqual(contents(journal), b"before\n")

    def many(self, count: int) -> JournalStore:
        """Return a store whose journals fail; each call of the disk takes 0.1 ms from now on."""
        store = self.store()
        journals = [store.journal(f"{number:032x}") for number in range(count)]
        self.layer.error = errno.ENOSPC
        for journal in journals:
            journal.append(b"early\n")
        self.assertEqual(store.failing, count)
        self.layer.error = 0
        self.layer.called = lambda: setattr(self.clock, "rightNow", self.clock.rightNow + 1e-4)
        return store

    def test_many(self) -> None:
        """Many journals return to the disk in many turns of the reactor, a few in each."""
        store = self.many(soak.figure(self))
        failing = [store.failing]
        while store.failing:
            before = self.clock.seconds()
            self.clock.advance(min(each.getTime() for each in self.clock.calls) - before)
            failing.append(store.failing)
        steps = [before - after for before, after in itertools.pairwise(failing)]
        self.assertLess(max(steps), 20)

    def test_stopped_meanwhile(self) -> None:
        """A store that is closed meanwhile ends at the next turn."""
        store = self.many(100)
        self.clock.advance(1)
        self.assertLess(0, store.failing)
        closing = Deferred.fromCoroutine(store.close())
        self.clock.advance(REST_SECONDS)
        self.successResultOf(closing)
        self.assertLess(0, store.failing)


class RetentionTests(Case):
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
