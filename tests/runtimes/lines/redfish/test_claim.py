"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.claim`, with a small BMC."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.runtimes.bmc.server import HOST, SESSIONS, USER
from tests.runtimes.lines.redfish.support import BMCCase, reactor
from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.runtimes.lines.redfish.bmc import BMC
from twisted_exec.runtimes.lines.redfish.claim import LEAST_LOOK_SECONDS, Claim
from twisted_exec.runtimes.lines.redfish.client import Trust
from twisted_exec.runtimes.lines.redfish.options import RedfishLine

RESET = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"


class ClaimTests(BMCCase):
    """One machine after the other claims a BMC."""

    def line(self) -> RedfishLine:
        pin = Trust(pin=bytes.fromhex(self.bmc.pin))
        return RedfishLine(HOST, pin, self.bmc.port, "", USER, self.password)

    async def test_waits_for_login(self) -> None:
        """A switch that waits for a login when its claim ends does not reach the next machine's server."""
        line = self.line()
        bmc = BMC(line, "", reactor)
        self.addCleanup(lambda: Deferred.fromCoroutine(bmc.release()))
        claim = bmc.claim("m", line, self.facts("m"))
        self.bmc.faults.hangs = {f"POST {SESSIONS}"}
        switching = Deferred.fromCoroutine(claim.send("POST", RESET, {"ResetType": "ForceOff"}))
        await self.until(lambda: self.bmc.waiting)
        releasing = Deferred.fromCoroutine(bmc.release())
        following = bmc.claim("n", line, self.facts("n"))
        asking = Deferred.fromCoroutine(following.get(self.bmc.system))
        self.bmc.faults.hangs = set()
        self.bmc.answer()
        await releasing
        await asking
        with self.assertRaises(CannotStart) as caught:
            await switching
        self.assertEqual((caught.exception.condition, self.bmc.resets), ("Closed", []))
        self.assertEqual((self.bmc.logins, len(self.bmc.sessions)), (1, 1))

    async def test_short_session(self) -> None:
        """A BMC whose sessions are said to last a second is not asked for its power twice a second."""
        self.bmc.documents["/redfish/v1/SessionService"]["SessionTimeout"] = 1
        line, clock = self.line(), Clock()
        bmc = BMC(line, "", reactor)
        self.addCleanup(lambda: Deferred.fromCoroutine(bmc.release()))
        claim = Claim(line, self.facts("m"), bmc.sessions, bmc.mark, clock)
        await claim.server()
        asked = len(self.bmc.requests)
        clock.advance(LEAST_LOOK_SECONDS - 1)
        await claim.get(self.bmc.system)
        self.assertEqual(len(self.bmc.requests), asked + 1)
        clock.advance(1)
        await self.until(lambda: len(self.bmc.requests) == asked + 2)
        claim.end()
