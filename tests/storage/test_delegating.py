"""
Tests for :mod:`twisted_exec.storage.delegating`.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from tests.contracts.storage import MACHINES, StorageContract, machine
from twisted_exec.api.status import MethodNotAllowed
from twisted_exec.storage.delegating import DelegatingStorage, ReadOnlyStorage
from twisted_exec.storage.history import key_of
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.storage.memory import MemoryStorage


class Broken(MemoryStorage):
    """A store whose probe fails."""

    exclusive = False

    async def _fail(self) -> object:
        raise OSError("gone")

    def probe(self) -> Deferred[object]:
        """Fails."""
        return Deferred.fromCoroutine(self._fail())


class DelegatingStorageTests(TestCase):
    """Tests for :class:`DelegatingStorage`."""

    async def test_below(self) -> None:
        """Version, readiness and health are those of the wrapped store."""
        below = MemoryStorage()
        below.startService()
        self.addCleanup(below.stopService)
        storage = DelegatingStorage(below)
        await storage.when_ready()
        before = storage.version()
        await below.create(MACHINES, machine("a"))
        self.assertEqual((storage.version(), await storage.current()), (before + 1, before + 1))
        self.assertTrue(storage.exclusive)
        await storage.probe()

    async def test_broken(self) -> None:
        """Problems of the wrapped store are reported too."""
        storage = DelegatingStorage(Broken())
        self.assertFalse(storage.exclusive)
        await self.assertFailure(storage.probe(), OSError)


class Double(DelegatingStorage):
    """Delegates every call to a wrapped store, which it owns."""

    def startService(self) -> None:
        """Start both."""
        super().startService()
        self._storage.startService()

    def stopService(self) -> object:
        """Stop both."""
        super().stopService()
        return self._storage.stopService()


class DelegatingContractTests(StorageContract, TestCase):
    """The contract, through a wrapper that changes nothing."""

    async def make_storage(self) -> IStorage:
        storage: IStorage = Double(
            MemoryStorage(self.remembered, self.remembered_bytes, self.limits)
        )
        return storage


class ReadOnlyStorageTests(TestCase):
    """Tests for :class:`ReadOnlyStorage`."""

    async def test_writes(self) -> None:
        """Every write is refused with 405; reads are served."""
        wrapped = MemoryStorage()
        wrapped.startService()
        self.addCleanup(wrapped.stopService)
        stored = await wrapped.create(MACHINES, machine("a"))
        storage = ReadOnlyStorage(wrapped)
        for write in (storage.create, storage.update, storage.delete):
            refused = await self.assertFailure(write(MACHINES, stored), MethodNotAllowed)
            self.assertEqual(refused.message, "machines are read-only here")
        self.assertEqual(await storage.get(MACHINES, *key_of(stored)), stored)
