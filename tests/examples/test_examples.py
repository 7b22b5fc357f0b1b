"""
The programs in ``docs/examples``, started as their docstrings describe.
"""

from __future__ import annotations

import json
import runpy
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import connectProtocol
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from tests.flows.programs import Program, script, start
from tests.kube.console_cases import ConsolesCase
from tests.kube.test_console_endpoint import Collector
from tests.ports import reserved_port
from tests.tiers import PROGRAMS
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.console_endpoint import ConsoleEndpoint
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.streaming.interfaces import IAttachmentTransport
from twisted_exec.testing.console import RecordingAttachment

reactor: Any = _reactor

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


class ExamplesCase(TestCase):
    """``self.directory`` is private and short enough for UNIX sockets."""

    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="twisted-exec-test-")
        self.addCleanup(shutil.rmtree, self.directory, True)

    def run_example(self, *argv: str, **environment: str) -> Program:
        program = start([sys.executable, *argv], env=environment, cwd=self.directory)
        self.addCleanup(program.stop)
        return program


class EchoRuntimeTests(ExamplesCase):
    """``echo_runtime.py``"""

    starts = PROGRAMS

    async def test_serves_machines(self) -> None:
        """The program creates machines over the machine runtime interface and returns console URLs."""
        target = f"unix://{self.directory}/sockets/iri.sock"
        program = self.run_example(
            str(EXAMPLES / "echo_runtime.py"), target, f"{self.directory}/state"
        )
        await program.until(rb"machine runtime at unix:///")
        client = IRIClient(target, reactor)
        client.startService()
        self.addCleanup(client.stopService)
        spec = pb.MachineSpec(power=pb.POWER_ON)
        setattr(spec, "class", "echo")
        created = await client.create_machine(
            pb.CreateMachineRequest(machine=pb.Machine(spec=spec))
        )
        machine_id = created.machine.metadata.id
        answer = await client.exec(pb.ExecRequest(machine_id=machine_id))
        self.assertRegex(answer.url, r"\Ahttp\+unix://.*/exec/")
        self.assertEqual(await program.stop(signal.SIGINT), 0)
        self.assertNotIn(b"Traceback", program.output)


class ExpectTests(ConsolesCase):
    """``expect_console.py``"""

    starts = PROGRAMS

    async def test_talks_to_a_machine(self) -> None:
        """The program presses Ctrl-C until the prompt appears, types a command and prints the answer."""
        self.consoles.machines["default/vm"] = Firmware
        program = start(
            [
                sys.executable,
                str(EXAMPLES / "expect_console.py"),
                f"console:vm:kubeconfig={self.kubeconfig()}",
                "=> ",
                "echo q$arch",
            ]
        )
        self.addCleanup(program.stop)
        self.assertEqual(await program.ended, 0, program.output)
        self.assertEqual(program.stdout, b"qx86\n")

    async def test_leaves(self) -> None:
        """
        The program ends when its session has ended, also after a failure: the console would keep one that is only lost
        for a minute.
        """
        main = runpy.run_path(str(EXAMPLES / "expect_console.py"))["main"]
        endpoint = f"console:vm:kubeconfig={self.kubeconfig()}"
        for commands in ((), ("not UTF-8: \udcff",)):
            firmware = Firmware()
            self.consoles.machines["default/vm"] = lambda machine=firmware: machine  # type: ignore[misc]
            talk = Deferred.fromCoroutine(main(reactor, endpoint, "=> ", *commands))
            await talk.addErrback(lambda failure: failure.trap(UnicodeEncodeError))
            self.assertEqual(firmware.detached_with, ["client closed"])


class Firmware(RecordingAttachment):
    """Firmware that shows an old prompt while it boots, drops a key, and answers each Ctrl-C twice."""

    line = b""
    keys = 0

    def attached(self, transport: IAttachmentTransport) -> None:
        super().attached(transport)
        transport.write(b"=> echo old\r\nold\r\n=> reset\r\n")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        for key in data:
            self.keys += 1
            if self.keys > 1:
                self.press(bytes([key]))

    def press(self, key: bytes) -> None:
        if key == b"\x03":
            self.line = b""
            self.transport.write(b"<INTERRUPT>\r\n=> " * 2)
        elif key == b"\r":
            answer = b"qx86\r\n" if self.line == b"echo q$arch" else b""
            self.transport.write(b"\r\n" + answer + b"=> ")
            self.line = b""
        else:
            self.transport.write(key)
            self.line += key


class OneApplicationTests(ExamplesCase):
    """``one_application.py``, ``echo_machine.yaml`` and ``beside_server.py``"""

    starts = PROGRAMS

    async def test_whole_chain(self) -> None:
        """
        A user reaches a machine through all three services, and each writes an audit record; a
        controller beside them labels it.
        """
        program = self.run_example(
            script("twistd"),
            "--pidfile=",
            "-ny",
            str(EXAMPLES / "beside_server.py"),
            LAB_STATE=f"{self.directory}/state",
            LAB_PORT=str(reserved_port(self)),
        )
        await program.until(rb"ready: https://")
        config = load(f"{self.directory}/state/admin.kubeconfig")
        client = KubeClient(config, reactor)
        self.addCleanup(client.close)
        with open(EXAMPLES / "echo_machine.yaml") as file:
            machine_class, machine = yaml.safe_load_all(file)
        await client.create(IRONCORE.workload_class, machine_class)
        await client.create(IRONCORE.workload, machine, "default")
        await self.until_running(client, "echo")
        selected = {"label_selector": "lab.example.org/class=echo"}
        while not (await client.list(IRONCORE.workload, "default", **selected))["items"]:
            await deferLater(reactor, 0.1)

        endpoint = ConsoleEndpoint(config, "default", "echo", reactor)
        console = await connectProtocol(endpoint, Collector())
        await console.until(b"default/echo echoes\r\n")
        console.transport.write(b"hello")
        await console.until(b"hello")
        console.transport.loseConnection()
        await console.over
        self.assertEqual(await program.stop(signal.SIGINT), -signal.SIGINT)
        self.assertEqual(self.audited(), sorted(2 * ["apiserver", "poollet", "runtime"]))

    async def until_running(self, client: KubeClient, name: str) -> None:
        while True:
            machine = await client.get(IRONCORE.workload, name, "default")
            if machine.get("status", {}).get("state") == "Running":
                return
            await deferLater(reactor, 0.1)

    def audited(self) -> list[str]:
        with open(f"{self.directory}/state/audit.jsonl") as file:
            records = [json.loads(line) for line in file]
            return sorted(each["hop"] for each in records if each["event"] != "request")
