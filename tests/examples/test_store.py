"""
The store of ``docs/howto/write-a-store.rst``.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from tests.contracts.storage import MACHINES, StorageContract, changed, machine
from tests.examples.test_examples import EXAMPLES
from twisted_exec.api.status import Expired, InsufficientStorage, ServiceUnavailable
from twisted_exec.storage.interfaces import IStorage


class MemoryLog:
    """A log in memory; writing takes a turn of the reactor."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.problem: OSError | None = None

    def lines(self) -> Sequence[str]:
        return [line for line in self.written if line]

    def append(self, line: str) -> Deferred[None]:
        return deferLater(reactor, 0, self._append, line)

    def _append(self, line: str) -> None:
        if self.problem is not None:
            raise self.problem
        self.written.append(line)


class LogStorageTests(StorageContract, TestCase):
    """``log_store.py`` over a log in memory."""

    def setUp(self) -> None:
        self.patch(sys, "path", [str(EXAMPLES), *sys.path])
        self.addCleanup(sys.modules.pop, "log_store", None)
        self.log = MemoryLog()

    async def make_storage(self) -> Any:
        from log_store import LogStorage

        storage = LogStorage(
            self.log,
            remembered=self.remembered,
            remembered_bytes=self.remembered_bytes,
            limits=self.limits,
        )
        storage.startService()
        self.addCleanup(storage.stopService)
        await storage.when_ready()
        return storage

    async def test_interface(self) -> None:
        """The store has all methods."""
        storage = await self.make_storage()
        self.assertTrue(verifyObject(IStorage, storage))

    async def test_restart(self) -> None:
        """Objects and versions continue after a restart; older watches must list again."""
        before = await self.make_storage()
        kept = await before.create(MACHINES, machine("a"))
        gone = await before.delete(MACHINES, await before.create(MACHINES, machine("b")))
        write = before.update(MACHINES, changed(kept, power="Off"))
        await before.stopService()
        kept = await write
        with self.assertRaises(ServiceUnavailable):
            await before.create(MACHINES, machine("c"))
        after = await self.make_storage()
        self.assertEqual(list((await after.list(MACHINES)).items), [kept])
        created = await after.create(MACHINES, machine("b"))
        self.assertGreater(
            int(created["metadata"]["resourceVersion"]), int(gone["metadata"]["resourceVersion"])
        )
        with self.assertRaises(Expired):
            after.watch(MACHINES, 1, lambda event: None)

    async def test_no_disk(self) -> None:
        """A full disk is 507, another problem 503; nobody sees the change, and later ones work."""
        storage = await self.make_storage()
        events: list[object] = []
        storage.watch(MACHINES, None, events.append)
        for code, refusal in (
            (errno.ENOSPC, InsufficientStorage),
            (errno.EROFS, ServiceUnavailable),
        ):
            self.log.problem = OSError(code, "no")
            with self.assertRaises(refusal):
                await storage.create(MACHINES, machine("a"))
            with self.assertRaises(OSError):
                await storage.probe()
        self.assertEqual((events, storage.version()), ([], 0))
        self.log.problem = None
        await storage.create(MACHINES, machine("a"))
        self.assertEqual(len(events), 1)
