"""
Every kubectl with a server that lacks its protocol, through our proxy.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows import kubectls
from tests.flows.programs import resize, terminal
from tests.tiers import PROGRAMS
from twisted_exec.streaming.interfaces import COMPLETED, LINE_LOST, Ending
from twisted_exec.testing.console import EchoAttachment

from .test_streams import Command, Terminal
from .translated import Served, foreign_pods

DATA = b"".join(b"%015d\n" % number for number in range(1 << 16))


class TranslationTests(TestCase):
    """A server that supports SPDY and WebSockets up to version 4, as Go's does."""

    starts = PROGRAMS
    exact = True
    skip = needs.kubectl()
    ends: dict[str, Any] = {}
    asked: dict[str, list[bytes]] = {
        "SPDY/3.1": [b"SPDY/3.1"],
        "websocket": [b"websocket", b"SPDY/3.1"],
    }

    async def setUp(self) -> None:
        self.kubectls = kubectls.found()
        home = self.mktemp()
        with open(home, "w"):
            self.env = {"HOME": home + ".d", "KUBECONFIG": home}
        self.served = Served()
        self.addCleanup(self.served.stop)
        self.attach: Any = EchoAttachment
        self.foreign, self.pods, self.url = await foreign_pods(
            self.served, lambda: self.attach(), **self.ends
        )

    async def run_kubectl(self, name: str, *argv: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """
        Run kubectl; return its exit code, standard output and all output; check the upgrades tried.
        """
        self.foreign.asked.clear()
        server = f"--server={self.url}"
        told = await kubectls.run(self.kubectls[name], server, *argv, env=self.env, stdin=stdin)
        self.assertEqual(self.foreign.asked, self.asked[kubectls.carrier(name)], name)
        return told

    async def test_input(self) -> None:
        """A megabyte of input is echoed completely, and its end ends the session."""
        for name in self.kubectls:
            code, stdout, told = await self.run_kubectl(
                name, "exec", "-i", "p1", "--", "cat", stdin=DATA
            )
            self.assertEqual((code, stdout == DATA.decode()), (0, True), (name, told[-300:]))

    async def test_exit_code(self) -> None:
        """Output arrives completely, followed by the exit code."""
        self.attach = lambda: Command(DATA, Ending(COMPLETED, exit_code=7))
        for name in self.kubectls:
            code, stdout, _ = await self.run_kubectl(name, "exec", "p1", "--", "ls")
            self.assertEqual((code, stdout == DATA.decode()), (7, True), name)

    async def test_failure(self) -> None:
        """For other failures kubectl prints their message."""
        self.attach = lambda: Command(b"out\n", Ending(LINE_LOST, "the line is lost"))
        for name in self.kubectls:
            code, stdout, told = await self.run_kubectl(name, "exec", "p1", "--", "ls")
            self.assertEqual((code, stdout), (1, "out\n"), name)
            self.assertIn("error: the line is lost", told)

    async def test_terminal(self) -> None:
        """Keys, terminal sizes and the exit code pass through."""
        self.attach = Terminal
        for name in self.kubectls:
            argv = [self.kubectls[name], f"--server={self.url}", "attach", "-it", "p1"]
            program = terminal(argv, **self.env)
            self.addCleanup(program.stop)
            await program.until(rb"\[80x24\]")
            resize(program, 100, 30)
            await program.until(rb"\[100x30\]")
            program.type(b"x")
            await program.until(rb"<x>")
            program.type(b"q")
            self.assertEqual(await program.ended, 3, name)


class WebSocketOnlyTests(TranslationTests):
    """A server that supports only WebSockets, in the newest version."""

    ends = {"speaks": ("v5.channel.k8s.io",), "spdy": False}
    asked = {"SPDY/3.1": [b"SPDY/3.1", b"websocket"], "websocket": [b"websocket"]}
