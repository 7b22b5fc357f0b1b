"""
Tests for every revision of the machine runtime interface, with a real client and server.
"""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from twisted.internet import reactor
from twisted.internet.defer import succeed
from twisted.internet.threads import deferToThread

from tests.chain import PATIENCE_SECONDS
from tests.iri.test_client import RPCCase
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import console_pb2, onmetal01_pb2, onmetal_pb2, spheric_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.revisions import REVISIONS
from twisted_exec.iri.server import IRIServer


class RevisionCase(RPCCase):
    """A server and a client of the same revision."""

    async def both(self, revision: str) -> IRIClient:
        self.runtime.calls.clear()
        server = IRIServer(self.runtime, self.target, reactor, revision=revision)
        server.startService()
        client = self.connect(revision=revision)
        self.addCleanup(lambda: server.stopService() if server.running else None)
        self._server = server
        return client


class EveryRevisionTests(RevisionCase):
    """The same calls and messages in every revision."""

    async def test_every_method(self) -> None:
        """Every method of a revision can be called; any other fails with 501."""
        for name, one in REVISIONS.items():
            client = await self.both(name)
            for attribute, inside in REVISIONS["ironcore"].calls.items():
                answer = getattr(client, attribute)(inside.request())
                if attribute in one.calls:
                    self.assertIsInstance(await answer, inside.response)
                else:
                    self.assertEqual((await self.refusal(answer)).code, 501, attribute)
            called = [attribute for attribute, _, _ in self.runtime.calls]
            self.assertEqual(sorted(called), sorted(one.calls), name)
            await self._server.stopService()

    async def test_machine(self) -> None:
        """A machine survives creating and listing in every revision."""
        wanted = pb.Machine(
            spec=pb.MachineSpec(
                power=pb.POWER_OFF,
                ignition_data=b"\xff\x00",
                volumes=[
                    pb.Volume(
                        name="data", device="odb", local_disk=pb.LocalDisk(size_bytes=1 << 30)
                    )
                ],
                network_interfaces=[
                    pb.NetworkInterface(name="eth", network_id="n", ips=["10.0.0.1"])
                ],
            ),
        )
        setattr(wanted.spec, "class", "c")
        wanted.metadata.labels["a"] = "b"
        made = pb.Machine()
        made.CopyFrom(wanted)
        made.status.state = pb.MACHINE_RUNNING
        self.runtime.answers["create_machine"] = lambda _: pb.CreateMachineResponse(machine=made)
        self.runtime.answers["list_machines"] = lambda _: pb.ListMachinesResponse(machines=[made])
        for name in REVISIONS:
            if name == "onmetal-0.1":
                continue  # its machines do not contain network interfaces
            client = await self.both(name)
            request = pb.CreateMachineRequest(machine=wanted)
            self.assertEqual((await client.create_machine(request)).machine, made, name)
            self.assertEqual(self.runtime.calls[0][1], request, name)
            listed = await client.list_machines(pb.ListMachinesRequest())
            self.assertEqual(list(listed.machines), [made], name)
            await self._server.stopService()

    async def test_facts(self) -> None:
        """Every revision carries the user of Exec, and our Log service."""
        for name in REVISIONS:
            client = await self.both(name)
            await client.exec(pb.ExecRequest(machine_id="m"), user="ann", machine_uid="u")
            await client.log(console_pb2.LogRequest(machine_id="m"), user="ann")
            told = [facts["user"] for _, _, facts in self.runtime.calls]
            self.assertEqual((told, self.runtime.calls[0][1].machine_id), (["ann"] * 2, "m"))
            await self._server.stopService()

    async def test_refused_here(self) -> None:
        """A field that the revision lacks fails with 501 before any call."""
        client = await self.both("onmetal")
        machine = pb.Machine(spec=pb.MachineSpec(guest_config=pb.GuestConfig(hostname="h")))
        found = await self.refusal(client.create_machine(pb.CreateMachineRequest(machine=machine)))
        self.assertEqual(
            (found.code, found.message),
            (
                501,
                "the machine runtime's interface (revision onmetal) cannot tell a guest hostname",
            ),
        )
        self.assertEqual(self.runtime.calls, [])

    async def test_unknown(self) -> None:
        """Client and server both reject an unknown revision at construction."""
        with self.assertRaises(ValueError):
            IRIClient(self.target, reactor, revision="v2")
        with self.assertRaises(ValueError):
            IRIServer(self.runtime, self.target, reactor, revision="v2")

    async def test_side_by_side(self) -> None:
        """Every server also offers spheric's service and our own Log."""
        for name in REVISIONS:
            await self.both(name)
            other = "ironcore" if name == "spheric" else name
            for beside in (other, "spheric"):
                client = self.connect(revision=beside)
                await client.status(pb.StatusRequest())
                await client.log(console_pb2.LogRequest())
            self.assertEqual(len(self.runtime.calls), 4)
            await self._server.stopService()


class ForeignClientTests(RevisionCase):
    """Clients that use only the wire format."""

    async def ask(self, path: str, request: Any, response: Any) -> Any:
        def send() -> Any:
            with grpc.insecure_channel(self.target) as channel:
                call = channel.unary_unary(
                    path,
                    request_serializer=lambda message: message.SerializeToString(),
                    response_deserializer=response.FromString,
                )
                return call(request, timeout=PATIENCE_SECONDS)

        return await deferToThread(send)

    async def test_spheric(self) -> None:
        """A spheric Exec request reaches the runtime in our messages."""
        await self.both("ironcore")
        self.runtime.answers["exec"] = lambda request, **_: succeed(
            pb.ExecResponse(url=f"http://{request.machine_id}")
        )
        answer = await self.ask(
            "/runtime.v1alpha1.RuntimeService/Exec",
            spheric_pb2.ExecRequest(instance_id="i"),
            spheric_pb2.ExecResponse,
        )
        self.assertEqual(answer.url, "http://i")

    async def test_onmetal(self) -> None:
        """
        An onmetal machine reaches the runtime in our messages, on the same path as ironcore's.
        """
        await self.both("onmetal")
        machine = onmetal_pb2.Machine()
        machine.spec.image.image = "img"
        setattr(machine.spec, "class", "c")
        await self.ask(
            "/machine.v1alpha1.MachineRuntime/CreateMachine",
            onmetal_pb2.CreateMachineRequest(machine=machine),
            onmetal_pb2.CreateMachineResponse,
        )
        ((_, request, _),) = self.runtime.calls
        self.assertEqual(getattr(request.machine.spec, "class"), "c")
        self.assertEqual(request.machine.spec.volumes[0].local_disk.image.image, "img")

    async def test_onmetal_01(self) -> None:
        """onmetal v0.1 lists volume and network interface objects; our lists are empty."""
        await self.both("onmetal-0.1")
        for method in ("ListVolumes", "ListNetworkInterfaces"):
            answer = await self.ask(
                f"/machine.v1alpha1.MachineRuntime/{method}",
                onmetal01_pb2.ListObjectsRequest(),
                onmetal01_pb2.ListObjectsResponse,
            )
            self.assertEqual(answer.SerializeToString(), b"")
        self.assertEqual(self.runtime.calls, [])


class LyingRuntimeTests(RevisionCase):
    """Invalid answers of a runtime."""

    def speak(self, method: str, raw: bytes) -> None:
        """Serve a foreign runtime that answers one method with fixed bytes."""
        handler = grpc.unary_unary_rpc_method_handler(lambda request, context: raw)
        server = grpc.server(ThreadPoolExecutor(1))
        server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(
                    "machine.v1alpha1.MachineRuntime", {method: handler}
                )
            ]
        )
        os.chmod(self.directory, 0o700)
        server.add_insecure_port(self.target)
        server.start()
        self.addCleanup(lambda: deferToThread(server.stop(None).wait))

    async def test_undecodable(self) -> None:
        """An undecodable answer is a 502 whose message suggests a different revision."""
        self.speak("ListMachines", b"\xff\xff\xff")
        found = await self.refusal(self.connect().list_machines(pb.ListMachinesRequest()))
        self.assertEqual(
            (found.code, found.message),
            (
                502,
                "the machine runtime's answer to /machine.v1alpha1.MachineRuntime/ListMachines "
                "cannot be read: does it speak another revision of the interface than ironcore?",
            ),
        )

    async def test_unknown_state(self) -> None:
        """An unknown machine state becomes pending, with a StateKnown=False condition."""
        lying = pb.Machine(status=pb.MachineStatus(state=9))  # type: ignore[arg-type]
        sound = pb.Machine(status=pb.MachineStatus(state=pb.MACHINE_RUNNING))
        answer = pb.ListMachinesResponse(machines=[lying, sound])
        self.speak("ListMachines", answer.SerializeToString())
        found = await self.connect().list_machines(pb.ListMachinesRequest())
        self.assertEqual(found.machines[0].status.state, pb.MACHINE_PENDING)
        (condition,) = found.machines[0].status.machine_conditions
        self.assertEqual((condition.type, condition.status), ("StateKnown", "False"))
        self.assertIn("state 9", condition.message)
        self.assertEqual(found.machines[1], sound)

    async def test_giant_list(self) -> None:
        """A list of more than 20000 machines is a 502."""
        one = pb.ListMachinesResponse(machines=[pb.Machine()]).SerializeToString()
        self.speak("ListMachines", one * 100_000)
        found = await self.refusal(self.connect().list_machines(pb.ListMachinesRequest()))
        self.assertEqual(
            (found.code, found.message),
            (502, "the machine runtime lists 100000 machines, more than 20000"),
        )

    async def test_giant_message(self) -> None:
        """An answer of more than 16 MiB is a 502 and is not read."""
        self.speak("Exec", pb.ExecResponse(url="x" * (17 << 20)).SerializeToString())
        found = await self.refusal(self.connect().exec(pb.ExecRequest(machine_id="m")))
        self.assertEqual(found.code, 502)
        self.assertIn("larger than max", found.message)


class ReconnectTests(RevisionCase):
    """Reconnecting to a restarted runtime."""

    async def test_used_at_once(self) -> None:
        """
        A killed runtime leaves its socket; after any number of failed calls, the first call to its
        successor works.
        """
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(self.path)
        client = self.connect()
        for _ in range(5):
            self.assertEqual((await self.refusal(client.version(pb.VersionRequest()))).code, 503)
        self.serve()
        await client.version(pb.VersionRequest())

    async def test_deadlines(self) -> None:
        """Each method has its own deadline, unless the client sets one: 5 s to a minute."""
        asked: list[float] = []
        client = self.connect(timeout_seconds=None)
        for attribute in ("version", "exec", "list_machines", "create_machine"):
            asked.append(client._deadline(attribute))
        self.assertEqual(asked, [5.0, 60.0, 10.0, 30.0])
        self.assertEqual(self.connect(timeout_seconds=0.3)._deadline("exec"), 0.3)
