"""Tests for :mod:`twisted_exec.cli.fleet.task`: the program in a process and on a terminal."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred

from tests.cli.console.test_program_process import COMMAND, ConsoleProcess, TerminalCase
from tests.cli.fleet.support import FleetCase
from tests.tiers import PROGRAMS
from twisted_exec.testing.console import EchoAttachment

reactor: Any = _reactor


class ProgramTests(FleetCase, TerminalCase):
    """``kubectl console -l SELECTOR``."""

    starts = PROGRAMS

    def start(self, *arguments: str, **more: Any) -> ConsoleProcess:
        """Start ``kubectl console ARGUMENTS``."""
        process = ConsoleProcess()
        command = [sys.executable, "-c", COMMAND, *arguments]
        environment = {**os.environ, "KUBECONFIG": self.kubeconfig(), **more.pop("env", {})}
        reactor.spawnProcess(process, command[0], command, env=environment, **more)
        self.addCleanup(self._kill, process)
        return process

    async def test_tiles(self) -> None:
        """A user marks a machine, confirms the number, types also before the console is open, and leaves."""
        self.fleet.add("default/a", "default/b")
        attachment = EchoAttachment()
        self.fleet.machines["default/a"] = lambda: attachment
        process = self.start_on_terminal("--all", "--tiled")
        await process.until(rb"(?s)screen of a.*screen of b|screen of b.*screen of a")
        process.type(b" t")
        await process.until(rb"type to 1 machine\? y or n \| a")
        process.type(b"yls\x1b[A\r")
        await process.until(rb"TYPING to 1 machine; ")
        process.type(b"q\x03")
        while attachment.received != b"ls\x1b[A\rq\x03":
            await self._settle()
        process.type(b"\x1dq")
        await self.ends_so(process, 0)

    async def test_silent_server(self) -> None:
        """A user reads for how long the server has not answered; the line goes when it does."""
        self.fleet.add("default/a")
        self.fleet.journals["default/a"].append(b"one\n")
        answering: Deferred[None] = Deferred()
        dispatch = self.fleet.dispatch

        async def late(request: Any) -> None:
            await answering
            await dispatch(request)

        self.patch(self.fleet, "dispatch", late)
        process = self.start_on_terminal("--all", env={"TERM": "xterm"})
        await process.until(rb"asking http://127\.0\.0\.1:\d+ for the machines, \d s")
        answering.callback(None)
        await process.until(rb"a \| one")
        self.assertIn(b"s\r\x1b[K", process.stdout)
        process.type(b"\x03")
        await self.ends_so(process, 0)

    async def test_interrupted_lines(self) -> None:
        """After Ctrl-C the shell's prompt begins on a line of its own."""
        self.fleet.add("default/a")
        self.fleet.journals["default/a"].append(b"one\n")
        process = self.start_on_terminal("--all")
        await process.until(rb"a \| one")
        process.type(b"\x03")
        await process.until(rb"\^C\r\n")
        await self.ends_so(process, 0)

    async def test_pipe(self) -> None:
        """Lines go to a pipe, and messages to standard error."""
        self.fleet.add("default/a")
        self.fleet.journals["default/a"].append(b"one\n")
        self.fleet.frames = False
        process = self.start("--all")
        await process.until(rb"a \| one\n")
        process.signal(signal.SIGINT)
        self.assertEqual(await process.ended, 0)
        self.assertEqual(process.stdout, b"a | one\n")
        self.assertIn(b"following 1 of 1 machines", process.stderr)
