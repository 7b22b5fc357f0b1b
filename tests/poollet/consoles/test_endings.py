"""Tests for :mod:`twisted_exec.poollet.consoles.endings`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import IRONCORE
from twisted_exec.poollet.consoles.endings import machine_ending, pool_ending
from twisted_exec.streaming.interfaces import MACHINE_DELETED, POOL_DELETED, POWERED_OFF, Ending


class ReasonTests(SynchronousTestCase):
    """Which changes end sessions."""

    def machine(self, power: str = "On", **metadata: Any) -> dict[str, Any]:
        return {"metadata": {"name": "vm", **metadata}, "spec": {"power": power}}

    def reason(self, before: Any, after: Any) -> str | None:
        ending = machine_ending(before, after, IRONCORE)
        return ending.reason if ending is not None else None

    def test_machine(self) -> None:
        """Deleted, being deleted, switched off; not: new, changed, switched on."""
        on, off = self.machine(), self.machine("Off")
        dying = self.machine(deletionTimestamp="now")
        self.assertEqual(self.reason(on, None), MACHINE_DELETED)
        self.assertEqual(self.reason(on, dying), MACHINE_DELETED)
        self.assertEqual(self.reason(on, off), POWERED_OFF)
        for before, after in ((None, on), (on, self.machine(labels={})), (off, on), (off, off)):
            self.assertIsNone(self.reason(before, after))

    def test_pool(self) -> None:
        """Deleted or being deleted."""
        pool: dict[str, Any] = {"metadata": {"name": "p"}}
        dying = {"metadata": {"name": "p", "deletionTimestamp": "now"}}
        for after in (None, dying):
            ending = pool_ending(pool, after, IRONCORE)
            assert ending is not None
            self.assertEqual(ending, Ending(POOL_DELETED, 'machine pool "p" was deleted'))
        self.assertIsNone(pool_ending(None, pool, IRONCORE))
        self.assertIsNone(pool_ending(pool, pool, IRONCORE))
