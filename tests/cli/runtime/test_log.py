"""
Tests for :mod:`twisted_exec.cli.runtime.log`: the log of a real machine's console.
"""

from __future__ import annotations

import io
import os
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.contracts.machine_runtime import machine
from tests.runtimes.support import SHELL, RuntimeCase, runtime_id
from tests.tiers import PROGRAMS
from twisted_exec.api.logs import LogOptions
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.cli.commands.registry import make_parser
from twisted_exec.cli.runtime.log import asked_of, read_log
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.exec_urls import Dialler
from twisted_exec.program.audit_file import JSONLinesAudit
from twisted_exec.runtimes.config import parse
from twisted_exec.runtimes.host import RuntimeHost
from twisted_exec.runtimes.settings import Settings

PRINTS = SHELL | {"command": ["/bin/sh", "-c", "echo one; echo two; exec sleep 600"]}


class LogTests(RuntimeCase):
    """Tests for :func:`read_log`."""

    starts = PROGRAMS

    async def begin(self) -> None:
        settings = Settings(
            classes=parse({"classes": [PRINTS]}),
            state_directory=os.path.join(self.directory, "state"),
            iri_target=f"unix://{self.directory}/iri/sock",
        )
        host = RuntimeHost(settings, JSONLinesAudit(io.StringIO()), reactor)
        ready = host.when_ready()
        host.startService()
        self.addCleanup(host.stopService)
        await ready
        self.mark = runtime_id(self.directory)
        self.client = IRIClient(host.iri.target, reactor)  # type: ignore[arg-type]
        self.addCleanup(self.client.stopService)
        self.dialler = Dialler(reactor, runtime=str(host.iri.target))
        wanted = pb.CreateMachineRequest(machine=machine("x", "shell"))
        self.machine_id = (await self.client.create_machine(wanted)).machine.metadata.id

    async def read(self, *arguments: str, machine_id: str = "") -> tuple[bytes, bool]:
        """Return what a command line prints, and whether the log was complete."""
        options = make_parser().parse_args(["iri", "log", "ID", *arguments])
        got: list[bytes] = []
        complete = await read_log(
            self.client,
            self.dialler,
            machine_id or self.machine_id,
            asked_of(options),
            got.append,
            reactor,
            login="ann",
        )
        return b"".join(got), complete

    async def test_whole(self) -> None:
        """
        The log is all that the machine has printed, or its last lines, optionally with timestamps.
        """
        await self.begin()
        found: Any = None
        while found != (b"one\r\ntwo\r\n", True):
            found = await self.read()
            await self.pause()
        self.assertEqual(await self.read("--tail", "1"), (b"two\r\n", True))
        stamped, _ = await self.read("--timestamps")
        self.assertRegex(stamped, rb"(?s)^\d{4}-\d\d-\d\dT\S+Z one\r\n\S+Z two\r\n$")

    async def test_follow(self) -> None:
        """``-f`` follows the log until the machine is deleted."""
        await self.begin()
        got: list[bytes] = []
        options = make_parser().parse_args(["iri", "log", "ID", "-f"])

        reading = Deferred.fromCoroutine(
            read_log(
                self.client,
                self.dialler,
                self.machine_id,
                asked_of(options),
                got.append,
                reactor,
                login="ann",
            )
        )
        await self.until(lambda: b"two" in b"".join(got))
        await self.client.delete_machine(pb.DeleteMachineRequest(machine_id=self.machine_id))
        self.assertTrue(await reading)

    async def test_nobody(self) -> None:
        """The log of an unknown machine is not found."""
        await self.begin()
        with self.assertRaises(NotFound):
            await self.read(machine_id="nobody")

    async def test_refused(self) -> None:
        """A refusal by the stream server is an API error with the server's code."""
        await self.begin()
        with self.assertRaises(APIError) as caught:
            await read_log(
                self.client,
                self.dialler,
                self.machine_id,
                LogOptions(tail_lines=-1),
                lambda _: None,
                reactor,
                login="ann",
            )
        self.assertEqual(caught.exception.code, 422)
