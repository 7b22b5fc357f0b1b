"""Tests of servers behind a small BMC in a whole runtime."""

from __future__ import annotations

import os
from typing import Any

from tests.contracts.machine_runtime import machine
from tests.runtimes.bmc.server import USER
from tests.runtimes.lines.redfish.support import BMCCase
from twisted_exec.api.conditions import CONSOLE_LINE
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.service import MachineRuntime


class RuntimeTests(BMCCase):
    """One server."""

    async def start(self, **keys: Any) -> tuple[MachineRuntime, str]:
        document = {
            "name": "metal",
            "driver": "redfish",
            "capabilities": {"cpu": 1, "memory": "1Gi"},
            "user": USER,
            "password_file": self.password,
            "pin": self.bmc.pin,
            "lines": {"m": {"host": "127.0.0.1", "port": self.bmc.port}},
            **keys,
        }
        runtime = await self.make_runtime(document)
        answer = await runtime.create_machine(
            pb.CreateMachineRequest(machine=machine("m", "metal"))
        )
        id = answer.machine.metadata.id
        await self.until(lambda: runtime.machines.records.get(id).state == pb.MACHINE_RUNNING)
        return runtime, id

    async def condition(self, runtime: MachineRuntime) -> pb.MachineCondition:
        (found,) = (await runtime.list_machines(pb.ListMachinesRequest())).machines
        (condition,) = (
            each for each in found.status.machine_conditions if each.type == CONSOLE_LINE
        )
        return condition

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
