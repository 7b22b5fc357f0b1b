"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.bmc`, with small BMCs."""

from __future__ import annotations

from dataclasses import replace

from tests.runtimes.bmc.server import HOST, SESSIONS, USER
from tests.runtimes.lines.redfish.support import BMCCase, reactor
from twisted_exec.runtimes.interfaces import CannotStart, MachineFacts
from twisted_exec.runtimes.lines.redfish import sessions
from twisted_exec.runtimes.lines.redfish.bmc import BMCs
from twisted_exec.runtimes.lines.redfish.client import Trust
from twisted_exec.runtimes.lines.redfish.options import RedfishLine


class ReleaseTests(BMCCase):
    """Machines that leave BMCs."""

    def line(self) -> RedfishLine:
        pin = Trust(pin=bytes.fromhex(self.bmc.pin))
        return RedfishLine(HOST, pin, self.bmc.port, "", USER, self.password)

    async def test_two_left(self) -> None:
        """A machine that has left two BMCs is released when both have answered."""
        facts, line, bmcs = self.facts("m"), self.line(), BMCs(reactor)
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

    async def test_forgotten(self) -> None:
        """A BMC that nobody has any more is kept while its logins must wait, and not for ever."""
        facts, line, bmcs = self.facts("m"), self.line(), BMCs(reactor)
        self.bmc.password = "another"
        self.patch(sessions, "_LONGEST_PAUSE_SECONDS", 0.5)
        bmc, claim = bmcs.claim("m", line, facts)
        with self.assertRaises(CannotStart):
            await claim.get(self.bmc.system)
        await self.release(bmcs, facts)
        self.assertIs(bmcs.claim("m", line, facts)[0], bmc)
        await self.release(bmcs, facts)
        await self.until(lambda: not bmc.sessions.is_waiting)
        bmcs.claim("n", replace(line, host="127.0.0.2"), self.facts("n"))
        await self.release(bmcs, self.facts("n"))
        self.assertIsNot(bmcs.claim("m", line, facts)[0], bmc)
        await self.release(bmcs, facts)

    async def release(self, bmcs: BMCs, facts: MachineFacts) -> None:
        releasing = bmcs.release(facts)
        if releasing is not None:
            await releasing
