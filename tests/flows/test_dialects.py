"""
Every dialect, and several at once.
"""

from __future__ import annotations

from tests.contracts.chain import ChainCase, ChainContract
from twisted_exec.api.dialects import IRONCORE, ONMETAL, SPHERIC, SPHERIC_MACHINES


class IroncoreTests(ChainContract, ChainCase):
    """ironcore: machines."""

    dialect = IRONCORE
    dialects = (IRONCORE,)


class OnmetalTests(ChainContract, ChainCase):
    """onmetal-api: machines."""

    dialect = ONMETAL
    dialects = (ONMETAL,)


class SphericTests(ChainContract, ChainCase):
    """spheric: instances and fleets."""

    dialect = SPHERIC
    dialects = (SPHERIC,)


class SphericMachinesTests(ChainContract, ChainCase):
    """spheric as its document says: machines in its own group."""

    dialect = SPHERIC_MACHINES
    dialects = (SPHERIC_MACHINES,)
