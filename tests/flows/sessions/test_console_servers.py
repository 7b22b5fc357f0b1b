"""
Other console servers behind the whole chain, with the files from the how-to: real ser2net and
conserver, reached by ``kubectl console``, including BREAK.
"""

from __future__ import annotations

import os
import tempfile
import tty
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows.deployment import Deployment, machine, machine_class, pause
from tests.flows.programs import Program, script, start, terminal
from tests.runtimes.peers import SHOWN, Conserver, Ser2net, changed
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds

BREAK_ON, BREAK_OFF = b"\xff\xfa\x2c\5\5\xff\xf0", b"\xff\xfa\x2c\5\6\xff\xf0"
TELNET_BREAK = b"\xff\xf3"


class ConsoleServerTests(TestCase):
    """One runtime with lines of two console servers."""

    starts = PROGRAMS
    skip = needs.kubectl() or needs.ser2net() or needs.conserver()

    async def setUp(self) -> None:
        self.short = tempfile.mkdtemp()
        self.addCleanup(os.rmdir, self.short)
        self.addCleanup(lambda: [os.unlink(path) for path in Path(self.short).iterdir()])
        self.ser2net, self.conserver = Ser2net(self.short), Conserver(self.short)
        for server in (self.ser2net, self.conserver):
            self.addCleanup(server.stop)
            await server.start()
        self.deployment = Deployment(self.mktemp())
        self.addCleanup(self.deployment.stop)
        (self.deployment.directory / "runtime.yaml").write_text(
            changed(
                SHOWN / "runtime.yaml",
                ("tcp:host=10.0.0.5:port=7001", self.ser2net.endpoint),
                ("conserver.lab", "127.0.0.1"),
                ('"782"', f'"{self.conserver.port}"'),
                ("user: console\n  capabilities", "same_user: true\n  capabilities"),
            )
        )
        await self.deployment.start()
        for name in ("rack", "conserver"):
            await self.deployment.client.create(
                kinds.MACHINECLASSES.resource, machine_class(name, "1Gi")
            )

    def console(self, name: str) -> Program:
        """
        Run ``kubectl console`` in a terminal without local echo, so that all output comes from the
        machine.
        """
        path = f"{Path(script('kubectl-console')).parent}:/usr/bin:/bin"
        argv = ["kubectl", "console", name]
        program = terminal(argv, KUBECONFIG=self.deployment.admin, PATH=path)
        assert program.transport is not None
        tty.setraw(program.transport.fd)
        return program

    async def echoed(self, console: Program, words: bytes) -> None:
        """Type until the words are echoed: keys before the console opens are lost."""
        while words not in console.output:
            console.type(words)
            for _ in range(20):
                await pause()
                if words in console.output:
                    return

    async def leave(self, console: Program) -> None:
        console.type(b"\r~.")
        await console.ended

    async def test_consoles(self) -> None:
        """
        Keys and BREAK reach the devices of both servers; the console stays open through a restart
        of the server, with notices; and a machine without a line lists the free lines, in its condition and to
        users of its console.
        """
        for name, class_name in (("web-1", "rack"), ("mail-1", "conserver")):
            await self.deployment.create_machine(name, class_name)

        console = self.console("web-1")
        await self.echoed(console, b"one.")
        console.type(b"\r~B")
        await self.until(lambda: BREAK_OFF in self.ser2net.device())
        self.assertIn(BREAK_ON, self.ser2net.device())
        await self.echoed(console, b"two.")
        await self.ser2net.stop()
        await console.until(rb"the console line was lost")
        await self.condition("web-1", "LineLost")
        await self.lost()
        await self.ser2net.start()
        await console.until(rb"the console line is back")
        await self.echoed(console, b"three.")
        await self.leave(console)

        console = self.console("mail-1")
        await console.until(rb"help\]")
        await self.echoed(console, b"four.")
        console.type(b"\r~B")
        await self.until(lambda: TELNET_BREAK in self.conserver.far.peer.got)
        await self.until(lambda: "break #0" in self.conserver.log())
        await self.leave(console)

        await self.deployment.client.create(
            kinds.MACHINES.resource, machine("web-9", "rack"), namespace="default"
        )
        message = await self.condition("web-9", "NoLine")
        self.assertIn("free lines are: web-2, vm-7", message)
        console = self.console("web-9")
        await console.until(
            rb"web-9\" cannot start: no line is called \"default/web-9\"; free\s+lines"
        )
        self.assertEqual(await console.ended, 1)

    async def lost(self) -> None:
        """Scripts and ``doctor`` fail with the reason while the line is lost."""
        env = {"KUBECONFIG": self.deployment.admin}
        programs = [start([script("twisted-exec"), "doctor", "web-1"], env=env)]
        for options in ([], ["--linger", "1"]):
            console = start([script("kubectl-console"), "web-1", *options], env=env)
            console.type(b"five.")
            # The time of --linger may be shorter than the way of the reason.
            await console.until(rb"not sent: line \"web-1\"")
            console.transport.closeStdin()  # type: ignore[union-attr]
            programs.append(console)
        doctor, *consoles = programs
        await doctor.until(rb"error +line +LineLost: line \"web-1\"")
        for console in consoles:
            await console.until(rb"the input was not sent: line \"web-1\"")
        self.assertEqual([await program.ended for program in programs], [1, 1, 1])

    async def condition(self, name: str, reason: str) -> str:
        """Wait for a condition with this reason, and return its message."""
        while True:
            found: Any = await self.deployment.client.get(kinds.MACHINES.resource, name, "default")
            for one in found.get("status", {}).get("conditions", ()):
                if one.get("reason") == reason:
                    return str(one["message"])
            await pause()

    async def until(self, condition: Any) -> None:
        while not condition():
            await pause()
