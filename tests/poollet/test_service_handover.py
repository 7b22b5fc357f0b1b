"""
Tests for the hand-over of :class:`twisted_exec.poollet.service.Poollet`.
"""

from __future__ import annotations

from tests.chain import until
from tests.poollet.chain import PoolletCase
from tests.poollet.doubles import MACHINES, POOLS, machine
from twisted_exec.program.handover.interfaces import IHandsOver, ServiceState


class HandOverTests(PoolletCase):
    """A poollet that a successor replaces."""

    async def test_freeze(self) -> None:
        """A frozen poollet serves its session and leaves the machines alone until it goes on."""
        await self.start()
        self.assertTrue(IHandsOver.providedBy(self.poollet))
        viewer = await self.view()
        self.assertEqual(await self.poollet.freeze(), ServiceState())
        await self.client.create(MACHINES, machine("other"), "lab")
        viewer.transport.write(b"!")
        await until(lambda: viewer.received == b"hello!")
        self.assertEqual(len(self.runtime.machines), 1)
        await self.poollet.thaw()
        await until(lambda: len(self.runtime.machines) == 2)

    async def test_stopped_while_frozen(self) -> None:
        """A poollet that stops instead signs its pool off."""
        await self.start()
        await self.poollet.freeze()
        await self.poollet.stopService()
        pool = await self.client.get(POOLS, "pool-a")
        self.assertEqual(pool["status"]["state"], "Offline")

    async def test_retire(self) -> None:
        """A replaced poollet serves its session until that ends, and does not sign the pool off."""
        await self.start()
        viewer = await self.view()
        await self.poollet.freeze()
        retiring = self.poollet.retire(600)
        viewer.transport.write(b"!")
        await until(lambda: viewer.received == b"hello!")
        self.assertFalse(retiring.called)
        viewer.transport.loseConnection()
        await retiring
        await self.poollet.stopService()
        pool = await self.client.get(POOLS, "pool-a")
        self.assertEqual(pool["status"]["state"], "Ready")

    async def test_reviewed(self) -> None:
        """The session of a replaced poollet ends when the permission is withdrawn."""
        await self.start()
        await self.view()
        await self.poollet.freeze()
        retiring = self.poollet.retire(600)
        self.allowed.clear()
        self.client.changes += 1
        await retiring
        self.assertEqual(self.audit[-1]["reason"], "AuthorizationWithdrawn")

    async def test_linger(self) -> None:
        """A session that is still open when the time is over ends with the reason."""
        await self.start()
        await self.view()
        await self.poollet.freeze()
        await self.poollet.retire(0)
        self.assertIn(b"reason=ShuttingDown", self.lines.heads[-1])
        self.assertIn(b"replaced", self.lines.heads[-1])
