"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.power`, with a small BMC."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from tests.runtimes.bmc.server import HOST, USER
from tests.runtimes.lines.redfish.support import BMCCase, reactor
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.runtimes.lines.redfish.bmc import BMC
from twisted_exec.runtimes.lines.redfish.client import Trust
from twisted_exec.runtimes.lines.redfish.options import RedfishLine
from twisted_exec.runtimes.lines.redfish.power import RedfishPower
from twisted_exec.runtimes.lines.redfish.power_watch import PowerWatch

RESET = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"


class PowerCase(BMCCase):
    """The power of one server."""

    def power(self, **options: Any) -> RedfishPower:
        line = RedfishLine(
            HOST, Trust(pin=bytes.fromhex(self.bmc.pin)), self.bmc.port, "", USER, self.password
        )
        bmc = BMC(line, "", reactor)
        facts = self.facts()
        claim = bmc.claim("m", line, facts)
        self.addCleanup(lambda: Deferred.fromCoroutine(bmc.release()))
        chosen = {"off_seconds": 600, "force": False, "look_seconds": 0.01, **options}
        return RedfishPower(lambda: claim, facts, reactor, **chosen)


class OnTests(PowerCase):
    """A user has switched the machine on."""

    async def test_on(self) -> None:
        """A server that is off is switched on, with a mark in the journal."""
        self.bmc.set_power("Off")
        await self.power().on()
        self.assertEqual((self.bmc.resets, self.bmc.power), (["On"], "On"))
        self.assertEqual((self.reasons(), self.boots), (["PoweredOn"], ["m"]))

    async def test_already_on(self) -> None:
        """A server that is on is not switched."""
        await self.power().on()
        self.assertEqual((self.bmc.resets, self.boots), ([], []))

    async def test_other_value(self) -> None:
        """Only values that the BMC has are used."""
        action = self.bmc.documents[self.bmc.system]["Actions"]["#ComputerSystem.Reset"]
        action["ResetType@Redfish.AllowableValues"] = ["ForceOn", "ForceOff"]
        self.bmc.set_power("Off")
        await self.power().on()
        self.assertEqual(self.bmc.resets, ["ForceOn"])

    async def test_cannot(self) -> None:
        """A BMC that cannot switch the server, or fails to, is the reason that the machine does not start."""
        self.bmc.set_power("Off")
        self.bmc.faults.codes = {f"POST {RESET}": 500}
        with self.assertRaises(CannotStart) as caught:
            await self.power().on()
        self.assertEqual(caught.exception.condition, "PowerFailed")

    async def test_not_permitted(self) -> None:
        """A user of the BMC who may not switch is one of another role."""
        self.bmc.set_power("Off")
        self.bmc.faults.codes = {f"POST {RESET}": 403}
        with self.assertRaises(CannotStart) as caught:
            await self.power().on()
        self.assertIn("give its user the role Operator there", caught.exception.message)

    async def test_no_reset(self) -> None:
        """So is a server without a switch."""
        self.bmc.set_power("Off")
        del self.bmc.documents[self.bmc.system]["Actions"]
        with self.assertRaises(CannotStart) as caught:
            await self.power().on()
        self.assertIn("has no reset action; remove power: true for it", caught.exception.message)


class OffTests(PowerCase):
    """A user has switched the machine off."""

    async def test_graceful(self) -> None:
        """The server is asked to shut down, and no more if it does."""
        power = self.power()
        await power.on()
        await power.off()
        self.assertEqual((self.bmc.resets, self.bmc.power), (["GracefulShutdown"], "Off"))
        self.assertEqual((self.reasons(), self.shutdowns), ([], ["m"]))  # Events of the runtime

    async def test_stays_on(self) -> None:
        """A server that does not shut down stays on, which is a failure."""
        self.bmc.faults.ignores_graceful = True
        with self.assertRaises(ServiceUnavailable) as caught:
            await self.power(off_seconds=0.05).off()
        self.assertEqual((self.bmc.resets, self.bmc.power), (["GracefulShutdown"], "On"))
        self.assertIn("s; force_off: true of the class would", caught.exception.message)

    async def test_refused(self) -> None:
        """A BMC that does not take the request has not asked the server."""
        self.bmc.faults.codes = {f"POST {self.bmc.system}/Actions/ComputerSystem.Reset": 503}
        with self.assertRaises(ServiceUnavailable):
            await self.power().off()
        self.assertEqual(self.shutdowns, [])

    async def test_force(self) -> None:
        """Only if the class says so, it is then switched off."""
        self.bmc.faults.ignores_graceful = True
        await self.power(off_seconds=0.05, force=True).off()
        self.assertEqual(self.bmc.resets, ["GracefulShutdown", "ForceOff"])
        self.assertEqual(self.bmc.power, "Off")
        self.assertEqual(self.reasons(), ["SwitchedOff"])

    async def test_already_off(self) -> None:
        """A server that is off is not switched."""
        self.bmc.set_power("Off")
        await self.power().off()
        self.assertEqual((self.bmc.resets, self.shutdowns), ([], []))

    async def test_busy(self) -> None:
        """A BMC that is busy while it switches is asked again."""
        power = self.power()

        def busy(state: str) -> None:
            self.bmc.faults.codes = {f"GET {self.bmc.system}": 503}
            reactor.callLater(0.05, self.bmc.faults.codes.clear)

        self.bmc.power_changed = busy
        await power.off()
        self.assertEqual((self.bmc.power, self.reasons()), ("Off", []))


class WatchTests(BMCCase):
    """The states that a BMC reports."""

    def test_changes(self) -> None:
        """The first state is no change; a server that comes on has booted."""
        watch = PowerWatch(self.facts())
        for state in ("On", "On", "PoweringOff", "Off", "", "Off", "On"):
            watch.note(state)
        self.assertEqual((self.reasons(), len(self.boots)), (["ServerOff", "PoweredOn"], 1))

    def test_switched_off(self) -> None:
        """The end of a power-off is no Event of its own; a later one by hand is."""
        watch = PowerWatch(self.facts())
        watch.note("On")
        watch.switched_off()
        for state in ("PoweringOff", "Off", "On", "Off"):
            watch.note(state)
        self.assertEqual(self.reasons(), ["PoweredOn", "ServerOff"])
        self.assertEqual(self.events[-1][0], "Warning")

    def test_undecided(self) -> None:
        """A server that is to be off and does not decide has no Event with each answer."""
        watch = PowerWatch(self.facts())
        watch.note("On")
        watch.switched_off()
        for state in ("PoweringOff", "On") * 5:
            watch.note(state)
        self.assertEqual((self.reasons(), self.boots), ([], []))
