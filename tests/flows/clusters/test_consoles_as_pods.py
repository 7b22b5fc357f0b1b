"""
Machines' consoles as Pods of another cluster: real kubectls through a root and a node server to the
machines' API server, poollet, runtime and shell.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import TestCase

from tests import needs
from tests.audits import AuditList
from tests.chain import NODE_SERVER, reactor
from tests.flows import kubectls
from tests.flows.deployment import Deployment
from tests.flows.programs import Program, terminal
from tests.nodeserver.clusters import ROOT, Cluster
from tests.runtimes.support import pause
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.kinds import NODE_PODS
from twisted_exec.api.kinds.pods.machine_pods import EXPOSED_LABEL
from twisted_exec.api.users import EXPOSED
from twisted_exec.nodeserver.machine_pods import MachinePods

HOWTO = Path(__file__).parents[3] / "docs" / "howto"
MACHINES = kinds.MACHINES.resource


def read(name: str) -> Any:
    """Return a YAML file of the how-to."""
    return yaml.safe_load((HOWTO / name).read_text())


class ConsolesCase(TestCase):
    """Two shells, only one of which is exposed as a Pod of the root."""

    starts = PROGRAMS
    skip = needs.kubectl()

    async def setUp(self) -> None:
        self.deployment = Deployment(self.mktemp())
        self.addCleanup(self.deployment.stop)
        self.root = Cluster(ROOT)
        self.addCleanup(self.root.stop)
        await self.deployment.start()
        await self.root.start()
        kubeconfig = os.path.abspath(self.deployment.kubeconfig("a-root", [EXPOSED]))
        (leaf,) = read("consoles-as-pods.yaml")["leaves"]
        told = {**leaf, "kubeconfig": {"file": kubeconfig}}
        server = await self.root.serve([told], AuditList())
        mirror = MachinePods(
            self.root.client(NODE_SERVER), server.collaborators.leaves, reactor, "tests"
        )
        mirror.startService()
        self.addCleanup(mirror.stopService)
        # A hand-made Pod leads to no console.
        await self.root.add_pod("hidden", leaf["name"], ["console"], ttys=["console"])
        for name in ("shown", "hidden"):
            await self.deployment.create_machine(name, "shell")
        await self.label("true")
        await self.until_shown()
        self.env = {
            "KUBECONFIG": self.root.kubeconfig("admin"),
            "HOME": os.path.abspath(self.mktemp()),
        }

    async def until_shown(self) -> None:
        while True:
            found = await self.root.admin.list(NODE_PODS.resource, "default")
            told = {each["metadata"]["name"]: each.get("status", {}) for each in found["items"]}
            if told.get("shown", {}).get("phase") == "Running":
                return
            await pause()

    async def label(self, value: str) -> None:
        patch = {"metadata": {"labels": {EXPOSED_LABEL: value}}}
        await self.deployment.client.patch(MACHINES, "shown", patch, "default")

    def in_terminal(self, name: str, *words: str) -> Program:
        program = terminal([kubectls.found()[name], *words], **self.env)
        self.addCleanup(program.stop)
        return program

    async def kubectl(self, *words: str) -> tuple[int, str]:
        code, _, told = await kubectls.run(kubectls.found()["kubectl"], *words, env=self.env)
        return code, told

    async def types(self, program: Program, told: str) -> None:
        """Type a command and wait for its output, which differs from its echo."""
        start = len(program.output)
        program.type(f"echo {told[:3]}''{told[3:]}\n".encode())
        await program.until(told.encode(), start=start)


class ConsolesTests(ConsolesCase):
    """What is exposed, and to whom."""

    async def test_consoles(self) -> None:
        """An exposed console can be attached to and read; removing the label ends its session."""
        for number, name in enumerate(kubectls.some()):
            told = f"here-{number}"
            program = self.in_terminal(name, "attach", "-it", "shown")
            await self.types(program, told)
            await program.stop()
            code, log = await self.kubectl("logs", "shown", "--tail=20")
            self.assertEqual((code, told in log), (0, True), log)
        await self.hidden()
        program = self.in_terminal("kubectl", "exec", "-it", "shown", "--", "console")
        await self.types(program, "still-there")
        await self.label("no")
        self.assertEqual(await program.ended, 1)
        # Either the machines' API server or the root, which deletes the Pod, reports it first.
        self.assertRegex(program.output, b"exposed|deleted")
        code, log = await self.kubectl("attach", "shown")
        self.assertEqual(code, 1)

    async def hidden(self) -> None:
        """A machine that is not exposed cannot be reached from the root."""
        for words in (("attach", "hidden"), ("logs", "hidden")):
            code, told = await self.kubectl(*words)
            self.assertEqual(code, 1)
            self.assertIn("(NotFound)", told)


class LostProgramTests(ConsolesCase):
    """A program behind the node server stops or is killed, below a kubectl of each protocol."""

    async def attached(self) -> dict[str, Program]:
        programs = {}
        for name in kubectls.some():
            programs[name] = self.in_terminal(name, "attach", "-it", "shown")
            await self.types(programs[name], f"opened-{name}")
        return programs

    async def ended(self, programs: dict[str, Program], reason: str) -> None:
        for name, program in programs.items():
            self.assertEqual(await program.ended, 1, name)
            self.assertIn(b"error: " + reason.encode(), program.output, name)

    async def test_goes_on(self) -> None:
        """Sessions go on through a poollet that is started again."""
        programs = await self.attached()
        for number in (signal.SIGKILL, signal.SIGTERM):
            await self.deployment.poollet.stop(number)
            await self.deployment.start_poollet()
            for name, program in programs.items():
                await self.types(program, f"started-{number}-{name}")

    async def test_api_server(self) -> None:
        """kubectl shows why the API server has stopped, or that its connection was lost."""
        programs = await self.attached()
        await self.deployment.api.stop(signal.SIGTERM)
        await self.ended(programs, "exec-apiserver is restarting")
        await self.deployment.start_api()
        await self.until_opens()
        programs = await self.attached()
        await self.deployment.api.stop(signal.SIGKILL)
        await self.ended(programs, "the connection behind this hop was lost")

    async def test_runtime_stopped(self) -> None:
        """kubectl shows the reason."""
        programs = await self.attached()
        await self.deployment.runtime.stop(signal.SIGTERM)
        await self.ended(programs, "exec-runtime is restarting")

    async def test_runtime_killed(self) -> None:
        """kubectl shows that its stream was lost."""
        programs = await self.attached()
        await self.deployment.runtime.stop(signal.SIGKILL)
        await self.deployment.start_runtime()
        await self.ended(programs, "the connection behind this hop was lost")

    async def until_opens(self) -> None:
        while True:
            code, _ = await self.kubectl("logs", "shown", "--tail=1")
            if not code:
                return
            await pause()
