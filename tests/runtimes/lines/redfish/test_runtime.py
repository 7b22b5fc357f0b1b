"""Tests of servers behind a small BMC in a whole runtime."""

from __future__ import annotations

import os
from typing import Any

from tests.console.doubles import MemoryStream
from tests.contracts.machine_runtime import machine
from tests.runtimes.bmc.server import PASSWORD, USER
from tests.runtimes.lines.redfish.support import BMCCase
from twisted_exec.api.conditions import CONSOLE_LINE, POWER_SWITCHED
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import Grant
from twisted_exec.runtimes import supervisor
from twisted_exec.runtimes.lines.redfish import claim, client, sessions
from twisted_exec.runtimes.service import MachineRuntime


def unwrapped(output: bytes) -> str:
    """Return output with notices whose lines are joined."""
    return " ".join(output.decode().split())


class OneServerCase(BMCCase):
    """One server."""

    async def start(self, **keys: Any) -> tuple[MachineRuntime, str]:
        runtime, id = await self.create(**keys)
        await self.until(lambda: runtime.machines.records.get(id).state == pb.MACHINE_RUNNING)
        return runtime, id

    def metal(self, **keys: Any) -> dict[str, Any]:
        return {
            "name": "metal",
            "driver": "redfish",
            "capabilities": {"cpu": 1, "memory": "1Gi"},
            "user": USER,
            "password_file": self.password,
            "pin": self.bmc.pin,
            "lines": {"m": {"host": "127.0.0.1", "port": self.bmc.port}},
            **keys,
        }

    async def create(self, **keys: Any) -> tuple[MachineRuntime, str]:
        runtime = await self.make_runtime(self.metal(**keys))
        answer = await runtime.create_machine(
            pb.CreateMachineRequest(machine=machine("m", "metal"))
        )
        return runtime, answer.machine.metadata.id

    async def switch(self, power: int) -> None:
        (record,) = self.made.machines.records
        await self.made.update_machine_power(
            pb.UpdateMachinePowerRequest(machine_id=record.id, power=power)  # type: ignore[arg-type]
        )

    async def until_state(self, state: int, reason: str = "") -> str:
        """Wait for a state and its reason; return the message."""
        (record,) = self.made.machines.records
        reasons = [reason] if reason else []
        await self.until(
            lambda: (record.state, [each.reason for each in record.conditions]) == (state, reasons)
        )
        return record.conditions[0].message if reason else ""

    def events_of_power(self) -> list[str]:
        found = [each.spec.reason for each in self.made.machines.records.events]
        return [each for each in found if each in ("ShuttingDown", "PowerFailed", "PoweredOff")]

    async def condition(self, runtime: MachineRuntime) -> pb.MachineCondition:
        (found,) = (await runtime.list_machines(pb.ListMachinesRequest())).machines
        (condition,) = (
            each for each in found.status.machine_conditions if each.type == CONSOLE_LINE
        )
        return condition


class RuntimeTests(OneServerCase):
    """A whole runtime."""

    async def test_condition(self) -> None:
        """The machine says how its console is reached."""
        runtime, _ = await self.start()
        condition = await self.condition(runtime)
        self.assertEqual((condition.status, condition.reason), ("True", "WebSocket"))

    async def test_state(self) -> None:
        """The session is kept in the state directory of the runtime."""
        runtime, _ = await self.start()
        directory = os.path.join(self.directory, "state", "drivers", "redfish")
        self.assertEqual(os.stat(directory).st_mode & 0o077, 0)
        self.assertEqual(len([each for each in os.listdir(directory) if "session" in each]), 1)
        await runtime.stopService()
        self.assertEqual((os.listdir(directory), self.bmc.sessions), ([], {}))

    async def test_power(self) -> None:
        """A new machine takes its server as it is; then it follows spec.power, but not the deletion."""
        self.bmc.set_power("Off")
        runtime, id = await self.start(power=True)
        self.assertEqual(self.bmc.resets, [])
        self.assertIn("the server is off", (await self.condition(runtime)).message)
        for power, state in ((pb.POWER_OFF, pb.MACHINE_STOPPED), (pb.POWER_ON, pb.MACHINE_RUNNING)):
            await runtime.update_machine_power(
                pb.UpdateMachinePowerRequest(machine_id=id, power=power)
            )
            await self.until(lambda: runtime.machines.records.get(id).state == state)  # noqa: B023
        self.assertEqual(self.bmc.resets, ["On"])
        await runtime.delete_machine(pb.DeleteMachineRequest(machine_id=id))
        self.assertEqual((self.bmc.resets, self.bmc.sessions), (["On"], {}))

    async def test_not_switched(self) -> None:
        """Without a switch, power-off closes the console, says that alone, and leaves the server as it is."""
        for power in (False, True):
            runtime, id = await self.create(power=power)
            (found,) = (await runtime.list_machines(pb.ListMachinesRequest())).machines
            types = [each.type for each in found.status.machine_conditions]
            self.assertEqual(POWER_SWITCHED in types, not power)
            await runtime.delete_machine(pb.DeleteMachineRequest(machine_id=id))
            await runtime.stopService()
        runtime, _ = await self.start()
        await self.switch(pb.POWER_OFF)
        await self.until_state(pb.MACHINE_STOPPED)
        (event,) = [
            each.spec.message
            for each in runtime.machines.records.events
            if each.spec.reason == "ConsoleClosed"
        ]
        left = "the machine itself is left as it is, because its class does not switch the power"
        self.assertEqual(event, f'the console of machine "default/m" was closed; {left}')
        self.assertEqual((self.events_of_power(), self.bmc.power, self.bmc.resets), ([], "On", []))

    async def test_power_off(self) -> None:
        """One power-off is one Event for each change: the server is asked to shut down, and is off."""
        runtime, id = await self.start(power=True)
        before = len((await runtime.list_events(pb.ListEventsRequest())).events)
        await runtime.update_machine_power(
            pb.UpdateMachinePowerRequest(machine_id=id, power=pb.POWER_OFF)
        )
        await self.until(lambda: runtime.machines.records.get(id).state == pb.MACHINE_STOPPED)
        events = (await runtime.list_events(pb.ListEventsRequest())).events
        found = [each.spec.reason for each in events[before:]]
        self.assertEqual((found, self.bmc.power), (["ShuttingDown", "PoweredOff"], "Off"))


class ObservedTests(OneServerCase):
    """A server whose power others have switched: everybody is told, and nothing switches it."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(claim, "LOOK_SECONDS", 0.02)

    async def test_switched_off(self) -> None:
        """The machine is not ready until the server is on again; users who are there, and who come, are told."""
        runtime, id = await self.start(power=True)
        early = MemoryStream(runtime.attach(Grant(id))[1])
        self.bmc.set_power("Off")
        message = await self.until_state(pb.MACHINE_RUNNING, "ServerOff")
        self.assertEqual(
            message,
            "the server is off, though spec.power is On; set spec.power to Off and then to On, as a reset does, "
            "to switch it on",
        )
        late = MemoryStream(runtime.attach(Grant(id))[1])
        for viewer in (early, late):
            self.assertIn(message, unwrapped(viewer.got))
        self.bmc.set_power("On")
        await self.until_state(pb.MACHINE_RUNNING)
        last = MemoryStream(runtime.attach(Grant(id))[1])
        for viewer in (early, late):
            self.assertIn("the server is on again", unwrapped(viewer.got))
        self.assertNotIn("the server is", unwrapped(last.got))
        self.assertEqual(self.bmc.resets, [])

    async def test_new_machine(self) -> None:
        """So it is for a new machine whose server is off, until its user has reset it."""
        self.bmc.set_power("Off")
        await self.start(power=True)
        await self.until_state(pb.MACHINE_RUNNING, "ServerOff")
        await self.switch(pb.POWER_OFF)
        await self.until_state(pb.MACHINE_STOPPED)
        await self.switch(pb.POWER_ON)
        await self.until_state(pb.MACHINE_RUNNING)
        self.assertEqual(self.bmc.resets, ["On"])

    async def test_without_power(self) -> None:
        """Where the class does not switch the power, the message says who can."""
        self.bmc.set_power("Off")
        await self.start()
        message = await self.until_state(pb.MACHINE_RUNNING, "ServerOff")
        self.assertIn("switch it on at its BMC", message)
        self.assertIn("power: true", message)

    async def test_lost_line(self) -> None:
        """A line that is lost comes first; the power is told again when it is back."""
        await self.start(power=True)
        self.bmc.set_power("Off")
        await self.until_state(pb.MACHINE_RUNNING, "ServerOff")
        port = self.bmc.port
        await self.bmc.stop()
        await self.until_state(pb.MACHINE_RUNNING, "LineLost")
        self.bmc.start(port)
        await self.until_state(pb.MACHINE_RUNNING, "ServerOff")


class UnconfirmedTests(OneServerCase):
    """A server that is to be off, while its BMC does not say that it is."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(supervisor, "_FIRST_ASK_SECONDS", 0.01)
        self.patch(supervisor, "_LONGEST_ASK_SECONDS", 0.05)
        for name in ("_FIRST_PAUSE_SECONDS", "_LONGEST_PAUSE_SECONDS", "_LOOK_SECONDS"):
            self.patch(sessions, name, 0.01)

    async def fails(self) -> str:
        """Switch off; return the message as soon as the BMC has failed."""
        await self.switch(pb.POWER_OFF)
        (record,) = self.made.machines.records
        message = await self.until_state(record.state, "PowerFailed")
        self.assertEqual((self.bmc.power, self.bmc.resets), ("On", []))
        self.assertEqual(self.events_of_power(), ["PowerFailed"])  # the server was not asked
        self.assertIn("it may be on; trying again", message)
        return message

    async def goes_off(self) -> None:
        await self.until_state(pb.MACHINE_STOPPED)
        self.assertEqual((self.bmc.power, self.bmc.resets), ("Off", ["GracefulShutdown"]))
        self.assertEqual(self.events_of_power()[-2:], ["ShuttingDown", "PoweredOff"])
        self.assertEqual(self.events_of_power().count("PoweredOff"), 1)

    async def test_away(self) -> None:
        """A BMC that cannot be reached is asked when it is back; sessions stay until then."""
        runtime, id = await self.start(power=True)
        viewer = MemoryStream(runtime.attach(Grant(id))[1])
        await self.bmc.stop()
        message = await self.fails()
        self.assertIn("the server could not be powered off: cannot reach the BMC", message)
        self.assertIsNone(viewer.ending)
        self.bmc.start(self.bmc.port)
        await self.goes_off()

    async def test_frozen(self) -> None:
        """So is one that accepts connections, and does not answer."""
        await self.start(power=True)
        self.patch(client, "REQUEST_SECONDS", 0.05)
        self.bmc.faults.hangs = {"*"}
        await self.fails()
        self.patch(client, "REQUEST_SECONDS", 600.0)
        self.bmc.faults.hangs = set()
        await self.goes_off()

    async def test_login_refused(self) -> None:
        """So is one that refuses the login."""
        await self.start(power=True)
        self.bmc.password = "another"
        self.bmc.expire()
        self.assertIn("login", await self.fails())
        self.bmc.password = PASSWORD
        await self.goes_off()

    async def test_stays_on(self) -> None:
        """A server that is asked again and again has one Event, and the condition says what is going on."""
        await self.start(power=True, shutdown_seconds=0)
        self.bmc.faults.ignores_graceful = True
        await self.switch(pb.POWER_OFF)
        for _ in range(2):
            await self.until_state(pb.MACHINE_RUNNING, "PowerFailed")
            message = await self.until_state(pb.MACHINE_RUNNING, "ShuttingDown")
            self.assertEqual(message, "the guest was asked to shut down")
        self.assertEqual(self.events_of_power(), ["ShuttingDown", "PowerFailed"])

    async def test_opening(self) -> None:
        """A machine whose console is still being opened is asked to shut down, and says off when it is."""
        system = f"GET {self.bmc.system}"
        self.bmc.faults.hangs = {system}
        await self.create(power=True)
        await self.until(lambda: self.bmc.waiting)
        await self.switch(pb.POWER_OFF)
        await self.until_state(pb.MACHINE_PENDING, "ShuttingDown")
        self.bmc.faults.hangs = set()
        self.bmc.answer()
        await self.goes_off()
        self.assertEqual(self.events_of_power(), ["ShuttingDown", "PoweredOff"])

    async def test_console_does_not_open(self) -> None:
        """So is one whose console never opens."""
        self.bmc.console.hangs = True
        await self.create(power=True)
        await self.until(lambda: self.bmc.console.requests)
        await self.switch(pb.POWER_OFF)
        await self.goes_off()

    async def test_never_reached(self) -> None:
        """So is one whose BMC was never reached."""
        port = self.bmc.port
        await self.bmc.stop()
        await self.create(power=True)
        await self.until_state(pb.MACHINE_RUNNING, "BMCFailed")
        await self.fails()
        self.bmc.start(port)
        await self.goes_off()

    async def test_on_again(self) -> None:
        """A user who switches on again drops the request; the console goes on."""
        runtime, id = await self.start(power=True)
        viewer = MemoryStream(runtime.attach(Grant(id))[1])
        self.bmc.faults.codes = {"*": 503}
        await self.fails()
        await self.switch(pb.POWER_ON)
        await self.until_state(pb.MACHINE_RUNNING)
        self.bmc.faults.codes = {}
        viewer.viewer.data_received(b"still here")
        await self.until(lambda: b"still here" in viewer.got)
        self.assertEqual((self.bmc.power, self.bmc.resets), ("On", []))

    async def test_deleted(self) -> None:
        """The deletion of such a machine switches nothing."""
        runtime, id = await self.start(power=True)
        self.bmc.faults.codes = {"*": 503}
        await self.fails()
        self.bmc.faults.codes = {}
        await runtime.delete_machine(pb.DeleteMachineRequest(machine_id=id))
        self.assertEqual((self.bmc.power, self.bmc.resets, self.bmc.sessions), ("On", [], {}))
