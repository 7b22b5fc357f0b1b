"""
Tests for :mod:`twisted_exec.journal.failing`.
"""

from __future__ import annotations

import errno
import itertools
import os
from typing import Any

from twisted.internet.defer import Deferred

from tests import soak
from tests.journal.store_case import KEY, OTHER, StoreCase
from tests.journal.support import FailingLayer, contents
from twisted_exec.journal.interfaces import missing_bytes
from twisted_exec.journal.store import JournalStore
from twisted_exec.program.turns import REST_SECONDS


class FullTests(StoreCase):
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
