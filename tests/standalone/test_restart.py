"""
Restarts of ``exec-standalone`` while consoles are open.
"""

from __future__ import annotations

import re
import signal
from typing import Any

from twisted.internet.task import LoopingCall

from tests import needs
from tests.flows import kubectls, programs
from tests.flows.consoles import watch
from tests.ports import reserved_port
from tests.standalone.test_tap_program import StandaloneCase
from tests.tiers import PROGRAMS


class RestartTests(StandaloneCase):
    """A program that a user started is stopped or killed, and started again."""

    starts = PROGRAMS
    exact = True
    skip = needs.kubectl()

    async def test_typing(self) -> None:
        """Our client's session resumes at the same shell; each key that was typed meanwhile arrives once."""
        port = str(reserved_port(self))
        program = await self.kept("--port", port)
        screen = await watch(self.kubeconfig, "demo-shell", resume=True)
        await screen.ask(b"stty -echo; PS1=; echo shell-$$\n", rb"shell-\d+\r\n")
        lines = self.type_lines(screen)
        await screen.until(rb"\n50\r\n")
        await program.stop(signal.SIGTERM)
        await self.kept("--port", port)
        lines.stop()
        await screen.until(rb"\n%d\r\n" % (len(self.typed) - 1))
        shell = re.search(rb"shell-\d+\r\n", screen.output)
        assert shell is not None
        numbers = re.sub(rb"\[twisted-exec: .+?\]", b"", screen.output[shell.end() :]).split()
        self.assertEqual(numbers, self.typed)
        await screen.leave()

    async def test_stopped_or_killed(self) -> None:
        """
        Our client's session goes on at the same shell; kubectl ends with the reason, unless no program is left that
        knows one.
        """
        port = str(reserved_port(self))
        program = await self.kept("--port", port)
        ours = await self.terminal([programs.script("kubectl-console"), "demo-shell"])
        shell = await self.asked(ours, b"shell")
        for number in (signal.SIGKILL, signal.SIGTERM):
            stock = {
                name: await self.terminal([kubectls.found()[name], "attach", "-it", "demo-shell"])
                for name in kubectls.some()
            }
            await program.stop(number)
            for name, each in stock.items():
                is_silent = number == signal.SIGKILL and kubectls.carrier(name) == "SPDY/3.1"
                self.assertEqual(await each.ended, 0 if is_silent else 1, name)
                if number == signal.SIGTERM:
                    self.assertIn(b"error: exec-standalone is restarting", each.output)
            program = await self.kept("--port", port)
            self.assertEqual(await self.asked(ours, b"again-%d" % number), shell)

    async def terminal(self, argv: list[str]) -> programs.Program:
        """Open the console."""
        program = programs.terminal(argv, KUBECONFIG=self.kubeconfig, HOME=self.directory)
        self.addCleanup(program.stop)
        await self.asked(program, b"hello")
        return program

    async def asked(self, program: programs.Program, word: bytes) -> int:
        """Return the process of the shell."""
        await program.until(rb"press enter|[$#] ")
        return int(await program.asked(b"echo %b-$$\n" % word, word + rb"-(\d+)\r\n"))

    def type_lines(self, screen: Any) -> LoopingCall:
        """Type commands that print 0, 1, 2 and so on."""
        self.typed: list[bytes] = []

        def type_line() -> None:
            self.typed.append(b"%d" % len(self.typed))
            screen.type(b"echo %b\n" % self.typed[-1])

        typing = LoopingCall(type_line)
        typing.start(0.02)
        self.addCleanup(lambda: typing.stop() if typing.running else None)
        return typing
