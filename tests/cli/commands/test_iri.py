"""
Tests for :mod:`twisted_exec.cli.commands.iri`: commands against a real server of the interface.
"""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.flows.programs import Program
from tests.iri.test_client import RPCCase
from tests.iri.test_server_tcp import TCPCase
from tests.tiers import PROGRAMS
from tests.tls.support import client_identity
from twisted_exec.api.dialects import owner_of
from twisted_exec.api.status import NotFound, TooManyRequests
from twisted_exec.cli.commands import iri
from twisted_exec.cli.commands.registry import make_parser
from twisted_exec.cli.runtime.place import place
from twisted_exec.iri.protos import event_pb2
from twisted_exec.iri.protos import machine_pb2 as pb


class CommandTests(RPCCase):
    """Each command, as a user types it."""

    async def run_command(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        options = make_parser().parse_args(["iri", *arguments, "--address", self.target])
        stdout, stderr = io.StringIO(), io.StringIO()
        ask: Any = []
        self.patch(iri, "run", lambda command, _: ask.append(command))
        options.run(options)
        with redirect_stdout(stdout), redirect_stderr(stderr):
            code = await iri.answer(ask[0], options, place(options), reactor)
        return code, stdout.getvalue(), stderr.getvalue()

    def asked(self) -> list[tuple[str, Any]]:
        return [(name, request) for name, request, _ in self.runtime.calls]

    async def test_version(self) -> None:
        """``version`` prints the runtime's name and version."""
        self.runtime.answers["version"] = lambda _: pb.VersionResponse(
            runtime_name="r", runtime_version="1.0.0"
        )
        self.serve()
        self.assertEqual(
            await self.run_command("version"), (0, "NAME   VERSION\nr      1.0.0\n", "")
        )
        code, out, _ = await self.run_command("version", "-o", "json")
        self.assertEqual(
            (code, json.loads(out)), (0, {"runtimeName": "r", "runtimeVersion": "1.0.0"})
        )

    async def test_status(self) -> None:
        """``status`` prints the machine classes."""
        answer = pb.StatusResponse()
        answer.machine_class_status.add(quantity=3).machine_class.name = "c"
        self.runtime.answers["status"] = lambda _: answer
        self.serve()
        for revision in ("ironcore", "spheric"):
            code, out, _ = await self.run_command("status", "-o", "yaml", "--revision", revision)
            self.assertEqual((code, out.split()[-3:]), (0, ["c", "quantity:", "'3'"]))
        code, out, _ = await self.run_command("status")
        self.assertEqual(out.splitlines()[1].split()[0], "c")

    async def test_list(self) -> None:
        """``list -l`` selects machines by labels."""
        machine = pb.Machine()
        machine.metadata.id = "m"
        self.runtime.answers["list_machines"] = lambda _: pb.ListMachinesResponse(
            machines=[machine]
        )
        self.serve()
        code, out, _ = await self.run_command("list", "-l", "a=b", "-l", "c=d=e")
        self.assertEqual((code, out.splitlines()[1].split()[0]), (0, "m"))
        wanted = pb.MachineFilter(label_selector={"a": "b", "c": "d=e"})
        self.assertEqual(self.asked(), [("list_machines", pb.ListMachinesRequest(filter=wanted))])

    async def test_get(self) -> None:
        """
        ``get`` selects the machine even if the runtime does not filter; an unknown id is not found.
        """
        machines = [pb.Machine(), pb.Machine()]
        machines[1].metadata.id = "m"
        self.runtime.answers["list_machines"] = lambda _: pb.ListMachinesResponse(machines=machines)
        self.serve()
        code, out, _ = await self.run_command("get", "m", "-o", "json")
        self.assertEqual((code, json.loads(out)), (0, {"metadata": {"id": "m"}}))
        self.assertEqual(
            await self.run_command("get", "n"), (1, "", 'twisted-exec iri: machine "n" not found\n')
        )

    async def test_events(self) -> None:
        """
        ``events`` lists those of one machine; a revision without events is an error that says so.
        """
        event = event_pb2.Event()
        event.spec.reason = "Started"
        self.runtime.answers["list_events"] = lambda _: pb.ListEventsResponse(events=[event])
        self.serve()
        code, out, _ = await self.run_command("events", "m")
        self.assertEqual(code, 0)
        self.assertIn("Started", out)
        self.assertEqual(self.asked()[0][1].filter.id, "m")
        code, _, err = await self.run_command("events", "--revision", "onmetal")
        self.assertEqual(code, 1)
        self.assertIn("(revision onmetal) cannot tell list_events: it has no such method", err)

    async def test_create(self) -> None:
        """The machine in the file is created, and printed as the runtime returns it."""

        def create(request: pb.CreateMachineRequest) -> pb.CreateMachineResponse:
            made = pb.CreateMachineResponse(machine=request.machine)
            made.machine.metadata.id = "new"
            return made

        self.runtime.answers["create_machine"] = create
        self.serve()
        path = self.mktemp()
        with open(path, "w") as file:
            file.write("metadata: {labels: {a: b}}\nspec: {class: c, power: POWER_OFF}\n")
        code, out, err = await self.run_command("create", "-f", path)
        self.assertEqual((code, err, out.splitlines()[1].split()[0]), (0, "", "new"))
        ((_, request),) = self.asked()
        self.assertEqual(request.machine.metadata.labels, {"a": "b"})
        self.assertEqual(request.machine.spec.power, pb.POWER_OFF)

    async def test_create_named(self) -> None:
        """``--name`` labels the machine as a poollet does, so that it gets the line of that name."""
        self.runtime.answers["create_machine"] = lambda request: pb.CreateMachineResponse(
            machine=request.machine
        )
        self.serve()
        path = self.mktemp()
        with open(path, "w") as file:
            file.write("spec: {class: c}\n")
        code, out, err = await self.run_command("create", "-f", path, "--name", "lab/web-1")
        self.assertEqual((code, err, out.splitlines()[1].split()[1:3]), (0, "", ["lab", "web-1"]))
        ((_, request),) = self.asked()
        owner = owner_of(request.machine.metadata.labels)
        self.assertEqual((owner.namespace, owner.name), ("lab", "web-1"))
        for wrong in ("web-1", "/web-1", "lab/", "lab/WEB", "a/b/c"):
            with self.assertRaises(SystemExit):
                await self.run_command("create", "-f", path, "--name", wrong)

    async def test_create_nonsense(self) -> None:
        """A file without a valid machine is a one-line error, and no request is sent."""
        self.serve()
        path = self.mktemp()
        for content, told in (
            (b"[", "is neither JSON nor YAML"),
            (b"\xff", "is neither JSON nor YAML"),
            (b"x", "holds no machine"),
            (b"spec: {clas: c}", "holds no machine: spec has no field clas, only power, class,"),
            (b"name: a", "the machine has no field name, only metadata, spec, status"),
            (b"spec: {volumes: [{nmae: a}]}", "spec.volumes[0] has no field nmae, only name,"),
            (b"spec: {power: X}", "holds no machine: Invalid enum value X"),
            (b"metadata: {name: a}", "deletedAt; the name of a Machine is given with --name"),
            (b"#" * (5 << 20), "is larger than 4194304 bytes"),
        ):
            with open(path, "wb") as file:
                file.write(content)
            code, out, err = await self.run_command("create", "-f", path)
            self.assertEqual((code, out, len(err.splitlines())), (1, "", 1), err)
            self.assertIn(told, err)
        _, _, err = await self.run_command("create", "-f", "/nonexistent")
        self.assertIn("cannot read /nonexistent: No such file or directory", err)
        self.assertEqual(self.runtime.calls, [])

    async def test_power(self) -> None:
        """``power`` switches a machine on or off."""
        self.serve()
        for word, power in (("on", pb.POWER_ON), ("off", pb.POWER_OFF)):
            code, out, _ = await self.run_command("power", word, "m")
            self.assertEqual((code, out), (0, f"machine m is to be {word}\n"))
            request = pb.UpdateMachinePowerRequest(machine_id="m", power=power)
            self.assertEqual(self.asked()[-1], ("update_machine_power", request))

    async def test_delete(self) -> None:
        """``delete`` deletes the machines that exist and reports the others as not found."""

        def delete(request: pb.DeleteMachineRequest) -> pb.DeleteMachineResponse:
            if request.machine_id == "nobody":
                raise NotFound("machines", "nobody")
            return pb.DeleteMachineResponse()

        self.runtime.answers["delete_machine"] = delete
        self.serve()
        self.assertEqual(
            await self.run_command("delete", "a", "nobody", "b"),
            (1, "machine a deleted\n", 'twisted-exec iri: machine "nobody" not found\n'),
        )

    async def test_nobody_there(self) -> None:
        """If the runtime cannot be reached, the error says why."""
        self.assertEqual(
            await self.run_command("version"),
            (1, "", f"twisted-exec iri: {self.target}: there is no such socket\n"),
        )

    async def test_refused(self) -> None:
        """A refusal is printed with the runtime's message and delay."""

        def refuse(_: object) -> None:
            raise TooManyRequests("full", 7)

        self.runtime.answers["version"] = refuse
        self.serve()
        self.assertEqual(
            await self.run_command("version"),
            (1, "", "twisted-exec iri: full; try again in 7 s\n"),
        )

    async def test_slow(self) -> None:
        """A request fails after ``--request-timeout``."""
        waiting: Deferred[pb.VersionResponse] = Deferred()
        self.runtime.answers["version"] = lambda _: waiting
        self.serve()
        code, _, err = await self.run_command("version", "--request-timeout", "300ms")
        self.assertEqual(code, 1)
        self.assertIn("did not answer in time", err)
        waiting.callback(pb.VersionResponse())

    async def test_certificates(self) -> None:
        """An incomplete set of TLS files is refused, and so is TCP without TLS."""
        code, _, err = await self.run_command("version", "--cert-file", "c")
        self.assertEqual(code, 1)
        self.assertIn("--ca-file, --cert-file and --key-file go together", err)
        self.target = "dns:///localhost:1"
        code, _, err = await self.run_command("version")
        self.assertIn("TCP needs mutual TLS", err)


class MutualTests(TCPCase):
    """A runtime on another host, which takes certificates only."""

    async def test_version(self) -> None:
        """TLS options let the command reach a runtime that requires client certificates."""
        self.runtime.answers["version"] = lambda _: pb.VersionResponse(runtime_name="r")
        target = str(self.serve().target)
        files = self.files("client", client_identity("ann"), "serving")
        given = ["--ca-file", files.ca, "--cert-file", files.certificate, "--key-file", files.key]
        arguments = ["iri", "version", "--address", target, *given]
        options = make_parser().parse_args(arguments)
        stdout = io.StringIO()
        with redirect_stdout(stdout):
            code = await iri.answer(iri._version, options, place(options), reactor)
        self.assertEqual((code, stdout.getvalue()), (0, "NAME   VERSION\nr      <none>\n"))


class ProcessTests(RPCCase):
    """The program as a process."""

    starts = PROGRAMS

    async def test_program(self) -> None:
        """The process finds the runtime by the environment and exits with the command's code."""
        self.runtime.answers["version"] = lambda _: pb.VersionResponse(runtime_name="r")
        server = self.serve()
        command = "import sys; from twisted_exec.cli.main import main; sys.exit(main())"
        environment = os.environ | {"IRI_MACHINE_RUNTIME_ENDPOINT": self.target}
        argv = [sys.executable, "-c", command, "iri", "version"]
        program = Program(argv)
        reactor.spawnProcess(program, argv[0], argv, env=environment)  # type: ignore[attr-defined]
        self.assertEqual(await program.ended, 0)
        self.assertEqual(program.output, b"NAME   VERSION\nr      <none>\n")
        await server.stopService()
        program = Program(argv)
        reactor.spawnProcess(program, argv[0], argv, env=environment)  # type: ignore[attr-defined]
        self.assertEqual(await program.ended, 1)
        self.assertIn(b"there is no such socket", program.output)
