"""
Tests for :mod:`twisted_exec.runtimes.service`, with real ptys.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor

from tests.contracts.machine_runtime import (
    MachineLogsContract,
    MachineRuntimeContract,
    machine,
)
from tests.tiers import PROGRAMS
from twisted_exec.api.status import (
    NotImplementedByBackend,
)
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.server import IRIServer

from .support import RACK, SHELL, RuntimeCase


class ContractTests(MachineLogsContract, MachineRuntimeContract, RuntimeCase):
    """The runtime keeps the interfaces' promises."""

    starts = PROGRAMS
    class_name = "shell"


class RemoteContractTests(MachineLogsContract, MachineRuntimeContract, RuntimeCase):
    """It keeps them just so through gRPC."""

    starts = PROGRAMS
    class_name = "shell"

    async def make_runtime(self, *classes: Any, **options: Any) -> Any:
        runtime = await super().make_runtime(*classes, **options)
        target = f"unix://{self.directory}/iri/sock"
        server = IRIServer(runtime, target, reactor)
        server.startService()
        client = IRIClient(target, reactor)  # type: ignore[arg-type]
        self.addCleanup(server.stopService)
        self.addCleanup(client.stopService)
        return client


class OfferTests(RuntimeCase):
    """The offered classes."""

    async def test_missing(self) -> None:
        """A class that this host cannot run is not offered, the others are."""
        broken = {**SHELL, "name": "broken", "command": ["/no/such/program"]}
        runtime = await self.make_runtime(SHELL, broken)
        self.assertEqual(runtime.offered, ("shell",))
        answer = await runtime.status(pb.StatusRequest())
        (result,) = answer.machine_class_status
        self.assertEqual(result.machine_class.name, "shell")
        self.assertEqual(
            dict(result.machine_class.capabilities.resources), {"cpu": 1, "memory": 64 << 20}
        )
        self.assertEqual(result.quantity, 100)

    async def test_wrong_names(self) -> None:
        """Machines with wrong names do not keep out the machine that a line is for."""
        runtime = await self.make_runtime(RACK)
        for name in ("wbe-1", "web-11", "web-1"):
            template = machine(name, "rack")
            await runtime.create_machine(pb.CreateMachineRequest(machine=template))
        status = await runtime.status(pb.StatusRequest())
        self.assertEqual([each.quantity for each in status.machine_class_status], [1])


class RequestTests(RuntimeCase):
    """Requests for new machines."""

    async def test_hardware(self) -> None:
        """Volumes and network cards are refused, not forgotten."""
        runtime = await self.make_runtime()
        for part in (
            {"volumes": [pb.Volume(name="v")]},
            {"network_interfaces": [pb.NetworkInterface(name="n")]},
        ):
            template = machine("x", "shell")
            template.spec.MergeFrom(pb.MachineSpec(**part))  # type: ignore[arg-type]
            with self.assertRaises(NotImplementedByBackend):
                await runtime.create_machine(pb.CreateMachineRequest(machine=template))
        self.assertEqual(len(runtime.machines.records), 0)

    async def test_secrets_are_not_kept(self) -> None:
        """Ignition data, which may hold secrets, is not given back."""
        runtime = await self.make_runtime()
        request = machine("x", "shell", pb.POWER_OFF)
        request.spec.ignition_data = b"secret"
        answer = await runtime.create_machine(pb.CreateMachineRequest(machine=request))
        self.assertEqual(answer.machine.spec.ignition_data, b"")

    async def test_huge_labels(self) -> None:
        """Metadata of a machine is bounded."""
        runtime = await self.make_runtime()
        template = machine("x", "shell")
        template.metadata.annotations["big"] = "x" * (300 << 10)
        with self.assertRaises(Exception) as caught:
            await runtime.create_machine(pb.CreateMachineRequest(machine=template))
        self.assertEqual(caught.exception.code, 400)  # type: ignore[attr-defined]
