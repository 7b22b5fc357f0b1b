"""
Tests for :mod:`twisted_exec.runtimes.host`: a whole runtime, asked by gRPC, looked at by WebSocket.
"""

from __future__ import annotations

import io
import json
import os
import threading
from dataclasses import replace
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.logger import LogLevel, capturedLogs, formatEvent
from zope.interface.verify import verifyObject

from tests import needs
from tests.contracts.machine_runtime import machine
from tests.runtimes.qemus import COUNTER, boot_rom
from tests.runtimes.support import errors_of
from tests.tiers import PROGRAMS
from twisted_exec.api.status import APIError
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.interfaces import (
    IConsoleAlerts,
    IConsoleRecordings,
    IMachineLogs,
    IMachineRuntime,
)
from twisted_exec.iri.protos import console_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.target import TargetError
from twisted_exec.journal import writer
from twisted_exec.program.audit_file import AuditUnavailable, JSONLinesAudit
from twisted_exec.program.disk_thread import Unanswered
from twisted_exec.program.metrics import metrics_text
from twisted_exec.runtimes.config import parse
from twisted_exec.runtimes.host import RuntimeHost
from twisted_exec.runtimes.processes import ProcessFamily
from twisted_exec.runtimes.serving.options import Listening
from twisted_exec.runtimes.settings import Settings
from twisted_exec.shipping.config import parse as parse_shipping
from twisted_exec.streaming.interfaces import RESUMED, SHUTTING_DOWN, Role, TerminalSize
from twisted_exec.wire.marks import Ack, At, Notice
from twisted_exec.wire.resize import Message
from twisted_exec.wire.resume import MARKS, Position, Resume

from .support import SHELL, RuntimeCase, User, open_console, runtime_id


class HostCase(RuntimeCase):
    """Starts runtimes."""

    def host(self, *classes: dict[str, Any], state: str = "state", **options: Any) -> RuntimeHost:
        checks = options.pop("checks", ())
        audit = options.pop("audit", None) or JSONLinesAudit(io.StringIO())
        settings = Settings(
            classes=parse({"classes": list(classes or (SHELL,))}),
            state_directory=os.path.join(self.directory, state),
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
        self.mark = runtime_id(self.directory)
        return host

    async def failure(self, host: RuntimeHost) -> Exception:
        ready = host.when_ready()
        host.startService()
        try:
            await ready
        except Exception as error:
            return error
        self.fail("it started")


class StalledDiskTests(HostCase):
    """The disk of the state directory does not answer."""

    async def test_ready(self) -> None:
        """The runtime is not ready, and says why at once."""
        self.patch(writer, "STALL_SECONDS", 0.0)
        host = await self.ready()
        frozen = threading.Event()
        self.addCleanup(frozen.set)
        thread = host.runtime.journals.thread
        self.patch(thread, "_wait_seconds", 0.01)
        with self.assertRaises(Unanswered) as late:
            thread.call(lambda: frozen.wait(600))
        await self.until(lambda: host.runtime.journals.stalled)
        is_ready, listing = await host.streams.health.ready(with_reasons=True)
        self.assertFalse(is_ready)
        self.assertIn("the disk does not answer", listing)
        frozen.set()
        assert late.exception.answer is not None
        await late.exception.answer
        self.assertEqual(host.runtime.journals.stalled, "")


class EmbeddedTests(HostCase):
    """A runtime without gRPC, in the process of its poollet."""

    async def test_interfaces(self) -> None:
        """The host provides the interfaces of its runtime, with all methods."""
        host = await self.ready()
        for each in (IMachineRuntime, IMachineLogs, IConsoleAlerts, IConsoleRecordings):
            verifyObject(each, host)
        answer = await host.list_recordings(
            console_pb2.ListRecordingsRequest(owner="pool-a", wait_seconds=0)
        )
        self.assertEqual(list(answer.recordings), [])


class WholeTests(HostCase):
    """From asking for a machine to its exit code."""

    starts = PROGRAMS

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
        """
        A take-over and discarded input are Events of the machine, and audit records with both users.

        The log does not warn of them, because users cause them.
        """
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
        with capturedLogs() as logged:
            bob.stream.write(b"x")
            await self.until(lambda: b"not sent" in bob.got)
            bob.stream.wish(Role.WRITER)
            await self.until(lambda: b"taken over" in bob.got)
        levels = {each["log_level"] for each in logged if "bob" in (formatEvent(each) or "")}
        self.assertEqual(levels, {LogLevel.info})
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
        await self.until(lambda: "takeover_denied" in records.getvalue())
        await self.until(lambda: b"may not take over" in eve.got)
        events = (await client.list_events(pb.ListEventsRequest())).events
        self.assertIn("ConsoleTakeoverDenied", {each.spec.reason for each in events})
        last = json.loads(records.getvalue().splitlines()[-1])
        self.assertEqual(
            (last["event"], last["user"], last["other_user"]), ("takeover_denied", "eve", "bob")
        )
        eve.stream.say(Message("it hangs"))
        await self.until(lambda: "it hangs" in records.getvalue())
        last = json.loads(records.getvalue().splitlines()[-1])
        self.assertEqual(
            (last["event"], last["user"], last["message"], last["session"]),
            ("message", "eve", "it hangs", "eve"),
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
            errors_of(await host.streams.health.check()),
            {"state": None, "classes": None, "iri": None},
        )
        os.unlink(f"{self.directory}/iri/sock")
        os.rename(f"{self.directory}/state", f"{self.directory}/moved")
        host.runtime._offered.clear()
        problems = errors_of(await host.streams.health.check())
        self.assertEqual([name for name, problem in problems.items() if problem], list(problems))

    async def test_nothing_before_start(self) -> None:
        """Making it opens nothing: no file, no thread, no socket."""
        before = {*os.listdir("/proc/self/fd"), *os.listdir("/proc/self/task")}
        self.host()
        self.assertEqual(os.listdir(self.directory), [])
        after = {*os.listdir("/proc/self/fd"), *os.listdir("/proc/self/task")}
        self.assertEqual(after - before, set())  # what other tests have left may end meanwhile

    async def test_ready_later(self) -> None:
        """``when_ready`` fires at once after the start."""
        host = await self.ready()
        await host.when_ready()


class ResumeCase(HostCase):
    """A console whose connection is lost."""

    async def start(self, *classes: dict[str, Any], **options: Any) -> None:
        """Start a runtime, and a client of it; sessions wait longer than any test takes."""
        options.setdefault("resume_seconds", 3600)
        self.records = io.StringIO()
        audit = JSONLinesAudit(self.records)
        self.machines = await self.ready(*classes, audit=audit, **options)
        self.client = IRIClient(self.machines.iri.target, reactor)  # type: ignore[arg-type]
        self.addCleanup(self.client.stopService)

    async def create(self, class_name: str = "shell", **options: Any) -> None:
        """Start a machine, and a runtime for it if there is none yet."""
        if class_name == "shell":
            await self.start(**options)
        request = pb.CreateMachineRequest(machine=machine("x", class_name))
        self.machine_id = (await self.client.create_machine(request)).machine.metadata.id
        await self.until(self.alive)

    async def open(self, session: str, resume: str = MARKS, user: str = "ann") -> User:
        request = pb.ExecRequest(machine_id=self.machine_id)
        answer = await self.client.exec(request, user=user, session=session)
        console = await open_console(answer.url, resume=resume, X_Twisted_Exec_User=user)
        self.addCleanup(lambda: console.stream.abort())
        return console

    def position(self, user: User) -> Position:
        """Return the position of a user who has seen no gap."""
        (at,) = [each for each in user.marks if isinstance(each, At)]
        return replace(at.position, offset=at.position.offset + len(user.got))

    def resume(self, user: User, session: str) -> str:
        """Return the request to resume a session."""
        return Resume(user.stream.resumable.key, session, self.position(user)).text()

    async def until_seen(self, *parts: bytes | bytearray) -> None:
        """
        Wait until users have seen, one after the other, each byte that the machine has printed.

        :param parts: growing, except those of connections that were lost.
        """
        await self.until(lambda: self.printed() == b"".join(parts))

    def printed(self) -> bytes:
        journal = self.machines.runtime.machines.supervisors[self.machine_id].journal
        pieces, at = [], 0
        while piece := journal.read(at, journal.end - at) if at < journal.end else b"":
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)


class ResumeTests(ResumeCase):
    """Users who come back."""

    starts = PROGRAMS
    exact = True

    async def test_back(self) -> None:
        """Output goes on at the exact byte; input is counted over all connections."""
        await self.create()
        user = await self.open("s1")
        user.stream.write(b"stty -echo; echo one$((1))\n")
        await self.until(lambda: b"one1" in user.got)
        user.stream.write(b"sleep 0.3; seq 2000\n")
        await self.until(lambda: self.machines.streams.sessions.with_id("s1"))
        user.stream.abort()
        await self.until(lambda: not len(self.machines.streams.sessions))
        await self.until(lambda: b"2000\r\n" in self.printed())
        back = await self.open("s2", self.resume(user, "s1"))
        await self.until(lambda: b"2000\r\n" in back.got)
        await self.until_seen(user.got, back.got)
        self.assertIn(back.marks[0], (Ack(27), Ack(27 + 20)))
        back.stream.write(b"exit 7\n")
        await self.until(lambda: back.gone)
        assert back.ending is not None
        self.assertEqual(back.ending.exit_code, 7)
        await self.until(lambda: not len(self.machines.streams.sessions))
        starts = [json.loads(line) for line in self.records.getvalue().splitlines()]
        self.assertEqual([each.get("resumes", "") for each in starts[2:]], ["s1", "s1"])

    async def test_ended_meanwhile(self) -> None:
        """The user comes back for the rest of the output and the status of a machine that is off."""
        await self.create()
        user = await self.open("s1")
        go = os.path.join(self.directory, "go")
        waits = f"while [ ! -e {go} ]; do sleep 0.05; done"
        user.stream.write(f"{waits}; echo last words; exit 3\n".encode())
        await self.until(lambda: b"exit 3" in user.got)
        user.stream.abort()
        await self.until(lambda: not len(self.machines.streams.sessions))
        with open(go, "w"):
            await self.until(lambda: not self.alive())
        back = await self.open("s2", self.resume(user, "s1"))
        await self.until(lambda: back.gone)
        assert back.ending is not None
        self.assertEqual(back.ending.exit_code, 3)
        seen = bytes(user.got + back.got)
        self.assertTrue(seen.endswith(b"last words\r\n"), seen)
        self.assertEqual(self.printed()[: len(seen)], seen)  # the next command may print already

    async def test_newest_wins(self) -> None:
        """Of two connections the older ends with the reason."""
        await self.create()
        user = await self.open("s1")
        user.stream.write(b"echo one$((1))\n")
        await self.until(lambda: b"one1" in user.got)
        seen = bytes(user.got)  # the prompt may still come to either connection
        back = await self.open("s2", self.resume(user, "s1"))
        await self.until(lambda: user.gone)
        assert user.ending is not None
        self.assertEqual(user.ending.reason, RESUMED)
        back.stream.write(b"echo two$((2))\n")
        await self.until(lambda: b"two2" in back.got)
        await self.until_seen(seen, back.got)

    async def test_role(self) -> None:
        """The user keeps the floor while away; others read it, and may take over."""
        await self.create()
        ann, bob = await self.open("s1"), await self.open("s2", user="bob")
        await self.until(lambda: ann.marks and bob.marks)
        ann.stream.abort()
        await self.until(
            lambda: any(
                "ann's connection is lost" in each.text
                for each in bob.marks
                if isinstance(each, Notice)
            )
        )
        back = await self.open("s3", self.resume(ann, "s1"))
        back.stream.write(b"echo one$((1))\n")
        await self.until(lambda: b"one1" in back.got)

    async def test_refused(self) -> None:
        """A key of somebody else, and a position that the machine has not reached."""
        await self.create()
        user = await self.open("s1")
        await self.until(lambda: len(user.marks) > 1)
        request = Resume(user.stream.resumable.key, "s1", self.position(user))
        beyond = replace(request, position=replace(request.position, offset=1 << 40))
        for bad, name, code in ((request, "bob", 404), (beyond, "ann", 400)):
            with self.assertRaises(APIError) as caught:
                await self.open("s2", bad.text(), user=name)
            self.assertEqual(caught.exception.code, code)
        text = metrics_text(self.machines.streams.registry).decode()
        self.assertIn('twisted_exec_resume_requests_total{result="refused"} 1.0', text)
        self.assertNotIn(request.key, self.records.getvalue())

    async def test_stop(self) -> None:
        """A runtime that stops tells clients to come back, and leaves nothing that waits."""
        await self.create(drain_seconds=0.1)
        user, absent = await self.open("s1"), await self.open("s2")
        absent.stream.abort()
        sessions = self.machines.streams.kept_sessions
        await self.until(lambda: sessions.absent)
        await self.machines.stopService()
        await self.until(lambda: user.gone)
        self.assertEqual((user.ending, sessions.absent), (None, 0))
        self.assertIn("exec-runtime is restarting", user.gone)

    async def test_disabled(self) -> None:
        """With ``--resume-seconds 0`` sessions are ordinary ones."""
        await self.create(resume_seconds=0)
        user = await self.open("s1")
        user.stream.write(b"echo one$((1))\n")
        await self.until(lambda: b"one1" in user.got)
        self.assertEqual((user.stream.resumable, user.marks), (None, []))


class RestartTests(ResumeCase):
    """Users of a machine that outlives its runtime."""

    starts = PROGRAMS
    exact = True
    skip = needs.qemu()

    async def end_all(self) -> None:
        """End the machine of a test that failed."""
        await ProcessFamily(self.table, lambda mark: mark.startswith(f"{self.mark}/")).end()

    async def test_back(self) -> None:
        """
        Output goes on at the exact byte at the next runtime, also what the machine printed meanwhile;
        the count of the input is unknown.
        """
        firmware = os.path.join(self.directory, "counter.rom")
        with open(firmware, "wb") as file:
            file.write(boot_rom(COUNTER))
        vm = {"name": "vm", "driver": "qemu", "firmware": firmware}
        vm["capabilities"] = {"cpu": 1, "memory": "16Mi"}  # type: ignore[assignment]
        await self.start(vm, keep_machines=True)
        self.addCleanup(lambda: Deferred.fromCoroutine(self.end_all()))
        await self.create("vm")
        user = await self.open("s1")
        await self.until(lambda: len(user.got) > 1000)
        user.stream.write(b"abc")
        user.stream.abort()
        await self.until(lambda: self.machines.streams.kept_sessions.absent)
        await self.machines.stopService()
        await self.start(vm, keep_machines=True)
        back = await self.open("s2", self.resume(user, "s1"))
        await self.until(lambda: len(back.got) > 1000)
        self.assertEqual(back.marks[0], Ack(None))
        lines = bytes(user.got + back.got).split(b"\n")[:-1]
        self.assertEqual(lines, [b"%08x" % number for number in range(len(lines))])
        text = metrics_text(self.machines.streams.registry).decode()
        self.assertIn('twisted_exec_resume_requests_total{result="restarted"} 1.0', text)
        # The earlier key was used; the session goes on with the newer one.
        back.stream.abort()
        await self.until(lambda: self.machines.streams.kept_sessions.absent)
        with self.assertRaises(APIError):
            await self.open("s3", self.resume(user, "s1"))
        again = await self.open("s3", self.resume(back, "s2"))
        await self.until(lambda: again.got)
        self.assertEqual(again.marks[0], Ack(0))


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
        self.assertIsNone(errors_of(await first.streams.health.check())["iri"])

    async def test_consoles_in_the_clear(self) -> None:
        """Consoles on all addresses need a certificate."""
        error = await self.failure(self.host(streaming=Listening("tcp:0")))
        self.assertIsInstance(error, TargetError)

    async def test_iri_in_use(self) -> None:
        """A target in use is named, and a stop undoes the partial start."""
        first = await self.ready()
        other = self.host(state="other")
        error = await self.failure(other)
        self.assertIn("is in use by another process", str(error))
        await other.stopService()
        self.assertIsNone(errors_of(await first.streams.health.check())["iri"])


class ShippingTests(HostCase):
    """Console lines that leave the runtime."""

    starts = PROGRAMS

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
        journal = host.runtime.machines.supervisors[id].journal
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
