"""
What real clients see of a program that stops or is killed: kubectl over SPDY and over a WebSocket, and
``kubectl console``.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows import kubectls
from tests.flows.deployment import Deployment, gone
from tests.flows.programs import Program, script, terminal
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds

MACHINES = kinds.MACHINES.resource


class LostPeerCase(TestCase):
    """A shell behind three programs, to which each client is attached."""

    starts = PROGRAMS
    skip = needs.kubectl()

    async def setUp(self) -> None:
        self.deployment = self.make_deployment()
        self.addCleanup(self.deployment.stop)
        await self.deployment.start()
        await self.deployment.create_machine("sh", "shell")
        self.ours = await self.opened([script("kubectl-console"), "sh"])
        self.stock = {
            name: await self.opened([kubectls.found()[name], "attach", "-it", "sh"])
            for name in kubectls.some()
        }

    def make_deployment(self) -> Deployment:
        return Deployment(self.mktemp())

    async def opened(self, argv: list[str]) -> Program:
        """Open the console in a terminal."""
        env = {"KUBECONFIG": str(Path(self.deployment.admin).resolve()), "HOME": self.mktemp()}
        program = terminal(argv, columns=80, rows=24, **env)
        self.addCleanup(program.stop)
        await program.until(rb"press enter|[$#] ")
        await self.says(program, b"opened")
        return program

    async def says(self, program: Program, word: bytes) -> None:
        """Check both directions."""
        start = len(program.output)
        program.type(b"echo %b''%b\n" % (word[:2], word[2:]))
        await program.until(re.escape(word), start=start)

    async def goes_on(self) -> None:
        """Check that our client's session goes on: keys of an outage are discarded, and its user reads that."""
        await self.ours.asked(b"echo on-$((6*7))\n", rb"on-(42)\r?\n")

    async def ended(self, reason: bytes) -> None:
        """Wait until each kubectl has ended with the reason."""
        for name, program in self.stock.items():
            self.assertEqual(await program.ended, 1, name)
            self.assertIn(b"error: " + reason, program.output, name)


class LostPeerTests(LostPeerCase):
    """Nothing survives the runtime."""

    async def test_api_server_stopped(self) -> None:
        """kubectl shows the reason; so does our client, which goes on when the server is back."""
        await self.deployment.api.stop(signal.SIGTERM)
        await self.ended(b"exec-apiserver is restarting")
        await self.ours.until(rb"exec-apiserver\s+is\s+restarting")
        await self.deployment.start_api()
        await self.goes_on()

    async def test_api_server_killed(self) -> None:
        """
        kubectl ends, without a reason; our client goes on when the server is back.

        Over SPDY, kubectl takes the end of the connection for that of the session, and exits with 0.
        """
        await self.deployment.api.stop(signal.SIGKILL)
        for name, program in self.stock.items():
            code = 0 if kubectls.carrier(name) == "SPDY/3.1" else 1
            self.assertEqual(await program.ended, code, name)
        await self.deployment.start_api()
        await self.goes_on()

    async def test_runtime_stopped(self) -> None:
        """kubectl shows the reason; so does our client, which goes on at the machine, which is made again."""
        await self.deployment.runtime.stop(signal.SIGTERM)
        await self.ended(b"exec-runtime is restarting")
        await self.ours.until(rb"exec-runtime\s+is\s+restarting")
        await self.deployment.start_runtime()
        await self.ours.until(b"the machine has started again")
        await self.goes_on()

    async def test_runtime_killed(self) -> None:
        """kubectl shows the reason; our client goes on at the machine, which is made again."""
        await self.deployment.runtime.stop(signal.SIGKILL)
        await self.deployment.start_runtime()
        await self.ended(b"the connection behind this hop was lost before the session's status")
        await self.ours.until(b"the machine has started again")
        await self.goes_on()

    async def test_keeper_killed(self) -> None:
        """The machines of the keeper start again, and the sessions of all clients wait for that."""
        keeper = await self.ours.asked(b"echo keeper-$PPID\n", rb"keeper-(\d+)\r\n")
        os.kill(int(keeper), signal.SIGKILL)
        for program in (self.ours, *self.stock.values()):
            await program.until(b"the machine has started again")
        await self.goes_on()
        for name, program in self.stock.items():
            await self.says(program, b"again-" + name.encode())


class KeptDeployment(Deployment):
    """A runtime whose machines outlive it."""

    async def start_runtime(self, *options: str) -> None:
        await super().start_runtime("--keep-machines", *options)


class KeptMachineTests(LostPeerCase):
    """The keeper holds the shell."""

    def make_deployment(self) -> Deployment:
        return KeptDeployment(self.mktemp())

    async def test_runtime_killed(self) -> None:
        """kubectl shows the reason; our client goes on at the same shell."""
        await self.lose_runtime(signal.SIGKILL, b"")
        await self.ended(b"the connection behind this hop was lost before the session's status")

    async def test_runtime_stopped(self) -> None:
        """kubectl shows the reason; our client goes on at the same shell."""
        await self.lose_runtime(signal.SIGTERM, rb"exec-runtime\s+is\s+restarting")
        await self.ended(b"exec-runtime is restarting")

    async def lose_runtime(self, number: int, reason: bytes) -> None:
        """
        Fires when our client has the same shell at the next runtime.

        :param reason: what it shows until then.
        """
        self.addCleanup(self.delete)
        shell = await self.ours.asked(b"echo shell-$$\n", rb"shell-(\d+)\r\n")
        await self.deployment.runtime.stop(number)
        await self.ours.until(reason)
        await self.deployment.start_runtime()
        again = await self.ours.asked(b"echo again-$$\n", rb"again-(\d+)\r\n")
        self.assertEqual(again, shell)

    async def delete(self) -> None:
        """Delete the machine, so that the keeper ends with the runtime."""
        await self.deployment.client.delete(MACHINES, "sh", "default")
        await gone(self.deployment.client, MACHINES, "sh", "default")
