"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.bmc`, with small BMCs."""

from __future__ import annotations

from dataclasses import replace

from tests.runtimes.bmc.server import HOST, SESSIONS, USER
from tests.runtimes.lines.redfish.support import BMCCase, reactor
from twisted_exec.runtimes.lines.redfish.bmc import BMCs
from twisted_exec.runtimes.lines.redfish.client import Trust
from twisted_exec.runtimes.lines.redfish.options import RedfishLine


class ReleaseTests(BMCCase):
    """Machines that leave BMCs."""

    async def test_two_left(self) -> None:
        """A machine that has left two BMCs is released when both have answered."""
        facts, pin = self.facts("m"), Trust(pin=bytes.fromhex(self.bmc.pin))
        line = RedfishLine(HOST, pin, self.bmc.port, "", USER, self.password)
        bmcs = BMCs(reactor)
        _, claim = bmcs.claim("m", line, facts)
        await claim.get(self.bmc.system)
        self.bmc.faults.hangs = {f"DELETE {SESSIONS}/S1"}
        bmcs.claim("m", replace(line, host="127.0.0.2"), facts)
        await self.until(lambda: self.bmc.waiting)
        releasing = bmcs.release(facts)
        assert releasing is not None
        self.assertNoResult(releasing)
        self.bmc.faults.hangs = set()
        self.bmc.answer()
        await releasing
        self.assertEqual(self.bmc.sessions, {})
        self.assertIsNone(bmcs.release(facts))
