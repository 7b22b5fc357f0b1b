"""
Tests for :mod:`twisted_exec.storage.etcd.store`.
"""

from __future__ import annotations

from tests import needs
from tests.contracts.storage import StorageContract
from tests.storage.etcds import EtcdCase, any_prefix, shared
from twisted_exec.storage.interfaces import IStorage


class EtcdStorageTests(StorageContract, EtcdCase):
    """The contract, in etcd."""

    skip = needs.etcd()
    program = "etcd"

    async def make_storage(self) -> IStorage:
        return await self.open(shared(self.program).target(any_prefix()))


class TwoServersTests(StorageContract, EtcdCase):
    """The contract, while another server has the same store open."""

    skip = needs.etcd()

    async def make_storage(self) -> IStorage:
        target = shared().target(any_prefix())
        await self.open(target)
        return await self.open(target)
