"""
The store in an etcd of a later release than Debian's.
"""

from __future__ import annotations

from tests import needs
from tests.contracts.storage import StorageContract
from tests.flows.outages import test_emptied_etcd
from tests.storage.etcd import test_reflector
from tests.storage.etcds import EtcdCase, any_prefix, shared
from twisted_exec.storage.interfaces import IStorage


class _Newer:
    skip = needs.newer_etcd()
    program = needs.newer_etcd_program() or "etcd"


class ContractTests(_Newer, StorageContract, EtcdCase):
    """The contract."""

    async def make_storage(self) -> IStorage:
        return await self.open(shared(self.program).target(any_prefix()))


class GoneTests(_Newer, test_reflector.GoneTests):
    """etcd is down."""


class MissedTests(_Newer, test_reflector.MissedTests):
    """Changes that a server did not see."""


class FullTests(_Newer, test_reflector.FullTests):
    """etcd has reached its space quota."""


class QuorumTests(_Newer, test_reflector.QuorumTests):
    """A cluster of three."""


class EmptiedTests(_Newer, test_emptied_etcd.EmptiedTests):
    """API servers on an etcd whose keys another program deletes."""
