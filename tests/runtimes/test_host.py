"""
Tests for :mod:`twisted_exec.runtimes.host`: a whole runtime, asked by gRPC, looked at by WebSocket.
"""

from __future__ import annotations

import io
import json
import os
from typing import Any

from twisted.internet import reactor

from tests.contracts.machine_runtime import machine
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.target import TargetError
from twisted_exec.observe.audit import AuditUnavailable, JSONLinesAudit
from twisted_exec.observe.metrics import metrics_text
from twisted_exec.runtimes.config import parse
from twisted_exec.runtimes.host import RuntimeHost, Settings
from twisted_exec.runtimes.serving.server import Listening
from twisted_exec.shipping.config import parse as parse_shipping
from twisted_exec.streaming.interfaces import SHUTTING_DOWN, Role, TerminalSize

from .support import SHELL, RuntimeCase, open_console


class HostCase(RuntimeCase):
    """Starts runtimes."""

    def host(self, *classes: dict[str, Any], **options: Any) -> RuntimeHost:
        checks = options.pop("checks", ())
        audit = options.pop("audit", None) or JSONLinesAudit(io.StringIO())
        settings = Settings(
            classes=parse({"classes": list(classes or (SHELL,))}),
            state_directory=os.path.join(self.directory, "state"),
            iri_target=f"unix://{self.directory}/iri/sock",
            **options,
        )
        host = RuntimeHost(settings, audit, reactor, checks=checks)
        self.addCleanup(lambda: host.stopService() if host.running else None)
        return host

    async def ready(self, *classes: dict[str, Any], **options: Any) -> RuntimeHost:
        host = self.host(*classes, **options)
        ready = host.when_ready()
        host.startService()
        await ready
        self.mark = host.runtime._state.id
        return host

    async def failure(self, host: RuntimeHost) -> Exception:
        ready = host.when_ready()
        host.startService()
        try:
            await ready
        except Exception as error:
            return error
        self.fail("it started")


class WholeTests(HostCase):
    """From asking for a machine to its exit code."""

    async def test_shell(self) -> None:
        """Create by gRPC, exec, open the URL, type, resize, exit."""
        host = await self.ready()
        client = IRIClient(host.iri.target, reactor)  # type: ignore[arg-type]
        self.addCleanup(client.stopService)
        request = pb.CreateMachineRequest(machine=machine("x", "shell"))
        id = (await client.create_machine(request)).machine.metadata.id
        await self.until(self.alive)
        answer = await client.exec(pb.ExecRequest(machine_id=id), user="ann", session="s")
        user = await open_console(answer.url, X_Twisted_Exec_User="ann")
        user.stream.resize(TerminalSize(100, 40))
        user.stream.write(b"stty size; exit 7\n")
        await self.until(lambda: user.gone)
        self.assertIn(b"40 100", user.got)
        assert user.ending is not None
        self.assertEqual(user.ending.exit_code, 7)

    async def test_acts(self) -> None:
        """A take-over and discarded input are Events of the machine, and audit records with both users."""
        records = io.StringIO()
        host = await self.ready(audit=JSONLinesAudit(records))
        client = IRIClient(host.iri.target, reactor)  # type: ignore[arg-type]
        self.addCleanup(client.stopService)
        request = pb.CreateMachineRequest(machine=machine("x", "shell"))
        id = (await client.create_machine(request)).machine.metadata.id
        await self.until(self.alive)
        users = []
        for name in ("ann", "bob"):
            answer = await client.exec(pb.ExecRequest(machine_id=id), user=name, session=name)
            users.append(await open_console(answer.url, X_Twisted_Exec_User=name))
        bob = users[1]
        bob.stream.write(b"x")
        await self.until(lambda: b"not sent" in bob.got)
        bob.stream.wish(Role.WRITER)
        await self.until(lambda: b"taken over" in bob.got)
        events = (await client.list_events(pb.ListEventsRequest())).events
        found = {each.spec.reason: each.spec.message for each in events}
        self.assertIn("bob has taken over", found["ConsoleTakenOver"])
        self.assertIn("from ann", found["ConsoleTakenOver"])
        self.assertIn("input of bob did not reach", found["ConsoleInputDenied"])
        lines = [json.loads(line) for line in records.getvalue().splitlines()]
        acts = [each for each in lines if each["event"] not in ("start", "end")]
        self.assertEqual(
            [(each["event"], each["user"], each["other_user"]) for each in acts],
            [("input_denied", "bob", "ann"), ("takeover", "bob", "ann")],
        )
        self.assertEqual({each["session"] for each in acts}, {"bob"})
        answer = await client.exec(pb.ExecRequest(machine_id=id), user="eve", session="eve")
        headers = {"X_Twisted_Exec_User": "eve", "X_Twisted_Exec_Terms": "right=drive"}
        eve = await open_console(answer.url, **headers)
        users.append(eve)
        eve.stream.wish(Role.WRITER)
        await self.until(lambda: b"may not take over" in eve.got)
        events = (await client.list_events(pb.ListEventsRequest())).events
        self.assertIn("ConsoleTakeoverDenied", {each.spec.reason for each in events})
        last = json.loads(records.getvalue().splitlines()[-1])
        self.assertEqual(
            (last["event"], last["user"], last["other_user"]), ("takeover_denied", "eve", "bob")
        )
        for user in users:
            user.stream.abort()

    async def test_stop(self) -> None:
        """Stopping tells the users, ends the machines, and removes the sockets."""
        host = await self.ready()
        client = IRIClient(host.iri.target, reactor)  # type: ignore[arg-type]
        self.addCleanup(client.stopService)
        request = pb.CreateMachineRequest(machine=machine("x", "shell"))
        id = (await client.create_machine(request)).machine.metadata.id
        user = await open_console((await client.exec(pb.ExecRequest(machine_id=id))).url)
        await host.stopService()
        await self.until(lambda: user.gone)
        assert user.ending is not None
        self.assertEqual(user.ending.reason, SHUTTING_DOWN)
        self.assertEqual(self.alive(), [])
        self.assertEqual(os.listdir(os.path.join(self.directory, "iri")), [])
        self.assertFalse(os.path.exists(host.runtime.directory))

    async def test_again(self) -> None:
        """After a stop the same place can be used at once."""
        await (await self.ready()).stopService()
        await self.ready()

    async def test_readiness(self) -> None:
        """Each probe passes, and each can fail."""
        host = await self.ready()
        self.assertEqual(
            dict(await host.streams.health.check()), {"state": None, "classes": None, "iri": None}
        )
        os.unlink(f"{self.directory}/iri/sock")
        os.rename(f"{self.directory}/state", f"{self.directory}/moved")
        host.runtime._offered.clear()
        problems = dict(await host.streams.health.check())
        self.assertEqual([name for name, problem in problems.items() if problem], list(problems))

    async def test_nothing_before_start(self) -> None:
        """Making it opens nothing: no file, no thread, no socket."""
        before = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        self.host()
        self.assertEqual(os.listdir(self.directory), [])
        after = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        self.assertEqual(after, before)

    async def test_ready_later(self) -> None:
        """``when_ready`` fires at once after the start."""
        host = await self.ready()
        await host.when_ready()


class FailureTests(HostCase):
    """Failures of a start."""

    async def test_check(self) -> None:
        """A check that fails is the reason."""
        audit = JSONLinesAudit("/nonexistent/audit.log")
        error = await self.failure(self.host(checks=[audit.check]))
        self.assertIsInstance(error, AuditUnavailable)

    async def test_second(self) -> None:
        """A second one with the same state directory is refused; the first is not harmed."""
        first = await self.ready()
        error = await self.failure(self.host())
        self.assertIn("another runtime uses the state directory", str(error))
        self.assertIsNone(dict(await first.streams.health.check())["iri"])

    async def test_consoles_in_the_clear(self) -> None:
        """Consoles on all addresses need a certificate."""
        error = await self.failure(self.host(streaming=Listening("tcp:0")))
        self.assertIsInstance(error, TargetError)

    async def test_iri_in_use(self) -> None:
        """A target in use is named, and a stop undoes the partial start."""
        first = await self.ready()
        other = self.host()
        other.runtime._state.path = os.path.join(self.directory, "other")
        error = await self.failure(other)
        self.assertIn("is in use by another process", str(error))
        await other.stopService()
        self.assertIsNone(dict(await first.streams.health.check())["iri"])


class ShippingTests(HostCase):
    """Console lines that leave the runtime."""

    async def test_files(self) -> None:
        """The lines of a machine arrive with its name, and the metrics say how far."""
        directory = os.path.join(self.directory, "consoles")
        document = {"sinks": {"files": {"kind": "files", "directory": directory}}}
        host = await self.ready(shipping=parse_shipping(document))
        client = IRIClient(host.iri.target, reactor)  # type: ignore[arg-type]
        self.addCleanup(client.stopService)
        request = pb.CreateMachineRequest(machine=machine("x", "shell"))
        id = (await client.create_machine(request)).machine.metadata.id
        answer = await client.exec(pb.ExecRequest(machine_id=id), user="ann", session="s")
        user = await open_console(answer.url, X_Twisted_Exec_User="ann")
        user.stream.write(b"echo panic-$((6*7))\n")
        await self.until(lambda: b"panic-42" in self.shipped(directory))
        self.assertEqual(self.shipped(directory).count(b"panic-42"), 1)
        (name,) = os.listdir(directory)
        self.assertRegex(name, r"^default_x_.*\.log$")
        metrics = metrics_text(host.streams.registry).decode()
        self.assertIn('twisted_exec_shipping_lag_bytes{sink="files"}', metrics)

    async def test_deleted(self) -> None:
        """The last lines of a deleted machine are sent after a restart, if they were not before."""
        directory = os.path.join(self.directory, "consoles")
        document = {"sinks": {"files": {"kind": "files", "directory": directory}}}
        host = await self.ready()
        client = IRIClient(host.iri.target, reactor)  # type: ignore[arg-type]
        self.addCleanup(client.stopService)
        request = pb.CreateMachineRequest(machine=machine("x", "shell"))
        id = (await client.create_machine(request)).machine.metadata.id
        journal = host.runtime._supervisors[id].journal
        await self.until(lambda: journal.end)
        journal.append(b"last words\n")
        await client.delete_machine(pb.DeleteMachineRequest(machine_id=id))
        await host.stopService()
        self.assertEqual(self.shipped(directory), b"")

        await self.ready(shipping=parse_shipping(document))
        await self.until(lambda: b"last words" in self.shipped(directory))
        (name,) = os.listdir(directory)
        self.assertRegex(name, r"^default_x_.*\.log$")

    def shipped(self, directory: str) -> bytes:
        if not os.path.isdir(directory):
            return b""
        parts = []
        for name in os.listdir(directory):
            with open(os.path.join(directory, name), "rb") as file:
                parts.append(file.read())
        return b"".join(parts)
