"""
Tests for :mod:`twisted_exec.storage.memory`.
"""

from twisted.trial.unittest import TestCase

from tests.contracts.storage import StorageContract
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.storage.memory import MemoryStorage


class MemoryStorageTests(StorageContract, TestCase):
    """The contract, in memory."""

    async def make_storage(self) -> IStorage:
        return MemoryStorage(self.remembered, self.remembered_bytes, self.limits)
