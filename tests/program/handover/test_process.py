"""
Tests for :mod:`twisted_exec.program.handover`, with real processes under twistd.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from tests.flows.deployment import reactor
from tests.flows.programs import Program, script
from tests.tiers import PROGRAMS

_PLUGIN = """
from twisted_exec.program.maker import ProgramMaker
handed = ProgramMaker("exec-handed", "tests.program.handover.program", "", "exec-handed")
"""

SHORT = "--handover-seconds=8"


class Talk(Protocol):
    """A connection to the program."""

    transport: Any

    def __init__(self) -> None:
        self.data = b""
        self.is_lost = False
        self._waiting: list[tuple[bytes, Deferred[None]]] = []

    def dataReceived(self, data: bytes) -> None:
        self.data += data
        self._look()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.is_lost = True
        self._look()

    def _look(self) -> None:
        waiting, self._waiting = self._waiting, []
        for text, found in waiting:
            if text in self.data:
                found.callback(None)
            elif self.is_lost:
                found.errback(AssertionError(f"ended without {text!r}: {self.data!r}"))
            else:
                self._waiting.append((text, found))

    def until(self, text: bytes) -> Deferred[None]:
        """Fire when the program has sent a text."""
        found: Deferred[None] = Deferred()
        self._waiting.append((text, found))
        self._look()
        return found

    async def repeats(self, text: bytes) -> None:
        """Check that the program repeats a text."""
        self.transport.write(text)
        await self.until(text)


class ServiceState(Program):
    """
    A process whose successors have its output.

    :ivar exited: fires with the exit code, while successors still run.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        super().__init__(argv)
        self.exited: Deferred[int] = Deferred()

    def processExited(self, reason: Failure) -> None:
        value: Any = reason.value
        self.exited.callback(value.exitCode if value.signal is None else -value.signal)


class HandOverCase(TestCase):
    """A program in a directory of its own."""

    def setUp(self) -> None:
        # Paths of sockets are short; a test's own directory may not be.
        holder = tempfile.TemporaryDirectory(prefix="handed-")
        self.addCleanup(holder.cleanup)
        self.directory = Path(holder.name)
        plugins = self.directory / "path" / "twisted" / "plugins"
        plugins.mkdir(parents=True)
        (plugins / "handed.py").write_text(_PLUGIN)
        self.plan_path = self.directory / "plan.json"
        self.plan()
        self.pids: set[int] = set()
        self.addCleanup(self.end_all)

    def plan(self, **stages: Any) -> None:
        """Write what the programs that start from now on do."""
        self.plan_path.write_text(json.dumps(stages))

    def end_all(self) -> None:
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def command(self, twistd: tuple[str, ...], *options: str) -> list[str]:
        # The default is short for a machine that runs many tests.
        words = [script("twistd"), *twistd, "exec-handed", "--handover-seconds=600"]
        return [*words, f"--plan={self.plan_path}", *options]

    def environment(self, **more: str) -> dict[str, str]:
        path = os.pathsep.join([str(self.directory / "path"), os.getcwd(), *sys.path])
        return {"PYTHONPATH": path, **more}

    async def start(self, *options: str, pidfile: str = "", **environ: str) -> ServiceState:
        command = self.command(("-n", f"--pidfile={pidfile}"), *options)
        program = self.spawn(command, environ)
        match = await program.until(rb"generation 0 at .*?(?:port=(\d+)\D.*)?\n")
        self.port = int(match[1] or 0)
        return program

    def spawn(
        self, command: Sequence[str], environ: Mapping[str, str], listening: int | None = None
    ) -> ServiceState:
        program = ServiceState(command)
        files: dict[int, Any] = {0: "w", 1: "r", 2: "r"}
        if listening is not None:
            files[3] = listening
        reactor.spawnProcess(
            program,
            command[0],
            command,
            env={**os.environ, **self.environment(), **environ},
            path=str(self.directory),
            childFDs=files,
        )
        self.pids.add(program.pid)
        self.addCleanup(self.end, program)
        return program

    def end(self, program: ServiceState) -> Deferred[int] | None:
        self.end_all()
        return None if program.exit_code is not None else program.ended

    async def connect(self) -> Talk:
        endpoint: Any = HostnameEndpoint(reactor, "127.0.0.1", self.port)
        if not self.port:
            endpoint = UNIXClientEndpoint(reactor, str(self.directory / "socket"))
        talk = await connectProtocol(endpoint, Talk())
        self.addCleanup(talk.transport.abortConnection)
        return talk

    async def handed(self, program: ServiceState, start: int = 0) -> int:
        """Wait until a successor has taken over; return its process id."""
        over = rb"process (\d+) has taken over|no hand-over, .*"
        match = await program.until(over, start=start)
        assert match[1], match[0]
        self.pids.add(int(match[1]))
        return int(match[1])

    async def ends(self, pid: int) -> None:
        """Wait until a process that is no child of this one has ended."""
        while self.runs(pid):
            await deferLater(reactor, 0.02)

    def runs(self, pid: int) -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        return state != "Z"  # the init process of a container reaps when it likes to


class HandOverTests(HandOverCase):
    """Hand-overs that succeed."""

    starts = PROGRAMS
    exact = True

    async def test_sessions_and_state(self) -> None:
        """
        The successor has the port, the state and a descriptor; the session of the old process goes
        on there, which exits with 0 when it is over.
        """
        program = await self.start("--linger=77")
        session = await self.connect()
        await session.until(b"0 \n")
        os.kill(program.pid, signal.SIGUSR2)
        successor = await self.handed(program)
        await program.until(b"lingering 77 s")
        another = await self.connect()
        await another.until(b"1 piped\n")
        await session.repeats(b"hello")
        session.transport.loseConnection()
        self.assertEqual(await program.exited, 0)
        await another.repeats(b"hello")
        os.kill(successor, signal.SIGTERM)
        await self.ends(successor)

    async def test_generations(self) -> None:
        """A successor is replaced as the first process was; old processes linger for their sessions."""
        program = await self.start()
        sessions, pid, at = [], program.pid, 0
        for generation in range(4):
            sessions.append(await self.connect())
            await sessions[-1].until(b"%d " % generation)
            os.kill(pid, signal.SIGUSR2)
            pid = await self.handed(program, at)
            at = len(program.output)
        for session in sessions:
            await session.repeats(b"still")
        os.kill(pid, signal.SIGTERM)
        # The last one stops its predecessors, which serve sessions, one after the other.
        for each in self.pids:
            if each != program.pid:
                await self.ends(each)
        for session in sessions:
            while not session.is_lost:
                await deferLater(reactor, 0.02)
        self.assertEqual(program.output.count(b"stopped with 1 sessions"), 4, program.output)

    async def test_generation_without_sessions(self) -> None:
        """
        A process that ends first, because it has no sessions, does not end its predecessor; the
        newest process does.
        """
        program = await self.start()
        session = await self.connect()
        await session.until(b"0 ")
        os.kill(program.pid, signal.SIGUSR2)
        second = await self.handed(program)
        other = await self.connect()
        await other.until(b"1 ")
        other.transport.loseConnection()
        at = len(program.output)
        os.kill(second, signal.SIGUSR2)
        third = await self.handed(program, at)
        await self.ends(second)
        for _ in range(20):
            await session.repeats(b"still")
            await deferLater(reactor, 0.02)  # wait: that nothing happens is no event
        os.kill(third, signal.SIGTERM)
        self.assertEqual(await program.exited, 0)
        self.assertIn(b"stopped with 1 sessions", program.output)
        await self.ends(third)

    async def test_connections_meanwhile(self) -> None:
        """Connections that arrive during the hand-over wait, and none is refused or lost."""
        program = await self.start()
        os.kill(program.pid, signal.SIGUSR2)
        is_over = Deferred.fromCoroutine(self.handed(program))
        seen = set()
        while not is_over.called or b"1 piped\n" not in seen:
            talk = await self.connect()
            await talk.until(b"\n")
            seen.add(talk.data)
            talk.transport.abortConnection()
            await deferLater(reactor, 0.002)
        self.assertEqual(seen, {b"0 \n", b"1 piped\n"})

    async def test_descriptors(self) -> None:
        """A successor has no descriptor of the old process but those that were handed over."""
        program = await self.start()
        talks = [await self.connect() for _ in range(3)]
        for talk in talks:
            await talk.until(b"\n")
        os.kill(program.pid, signal.SIGUSR2)
        successor = await self.handed(program)
        kinds = list(self.descriptors(successor))
        listening = self.inode(successor)
        self.assertEqual(kinds.count(f"socket:[{listening}]"), 1, kinds)

    def descriptors(self, pid: int) -> Iterator[str]:
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                yield os.readlink(f"/proc/{pid}/fd/{number}")

    def inode(self, pid: int) -> str:
        for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines():
            words = line.split()
            if words[1].endswith(f":{self.port:04X}") and words[3] == "0A":
                return words[9]
        raise AssertionError("nothing listens")

    async def test_process(self) -> None:
        """A successor ignores what the old process ignored, and had its limit of descriptors."""
        command = self.command(("-n", "--pidfile="))
        shell = 'trap "" HUP; ulimit -Sn 512; exec "$@"'
        program = self.spawn(["sh", "-c", shell, "sh", *command], {})
        match = await program.until(rb"limits (\(512, .*\))\n(?s:.*)generation 0 at .*port=(\d+)\D")
        self.port = int(match[2])
        os.kill(program.pid, signal.SIGUSR2)
        successor = await self.handed(program)
        await program.until(re.escape(match[1]), start=match.end())
        os.kill(successor, signal.SIGHUP)
        for _ in range(20):
            await (await self.connect()).until(b"1 piped")
            await deferLater(reactor, 0.01)  # wait: that nothing happens is no event
        self.assertTrue(self.runs(successor))

    async def test_moved_environment(self) -> None:
        """A program behind a symbolic link is replaced by the program to which the link has moved."""
        current = self.directory / "current"
        for name in ("one", "two"):
            binaries = self.directory / name / "bin"
            binaries.mkdir(parents=True)
            (binaries / "python").symlink_to(os.path.realpath(sys.executable))
            path = binaries / "twistd"
            path.write_text(f"#!{binaries}/python\nfrom twisted.scripts.twistd import run\nrun()\n")
            path.chmod(0o755)
        current.symlink_to("one")
        command = [f"{current}/bin/twistd", *self.command(("-n", "--pidfile="))[1:]]
        program = self.spawn(command, {})
        await program.until(rb"generation 0 at")
        current.unlink()
        current.symlink_to("two")
        os.kill(program.pid, signal.SIGUSR2)
        successor = await self.handed(program)
        words = Path(f"/proc/{successor}/cmdline").read_text().split("\0")
        self.assertEqual(words[:2], [f"{self.directory}/two/bin/python", command[0]])

    async def test_pidfile(self) -> None:
        """twistd's pidfile names the successor in the end, and is removed when that one stops."""
        pidfile = self.directory / "handed.pid"
        program = await self.start(pidfile=str(pidfile))
        self.assertEqual(int(pidfile.read_text()), program.pid)
        os.kill(program.pid, signal.SIGUSR2)
        successor = await self.handed(program)
        await program.exited
        while int(pidfile.read_text()) != successor:
            await deferLater(reactor, 0.02)
        os.kill(successor, signal.SIGTERM)
        await self.ends(successor)
        self.assertFalse(pidfile.exists())

    async def test_daemon(self) -> None:
        """A daemon is replaced by a process that logs to the same file and has the pidfile."""
        pidfile, log = self.directory / "handed.pid", self.directory / "handed.log"
        twistd = (f"--pidfile={pidfile}", f"--logfile={log}")
        listening = f"unix:{self.directory}/s:lockfile=0"
        subprocess.run(
            self.command(twistd, f"--listen={listening}"),
            env={**os.environ, **self.environment()},
            cwd=self.directory,
            check=True,
        )
        first = await self.daemon(pidfile, log, 0)
        os.kill(first, signal.SIGUSR2)
        second = await self.daemon(pidfile, log, 1)
        await self.ends(first)
        os.kill(second, signal.SIGUSR2)
        third = await self.daemon(pidfile, log, 2)
        await self.ends(second)
        self.assertEqual(len({first, second, third}), 3)
        with socket.socket(socket.AF_UNIX) as plug:
            plug.connect(f"{self.directory}/s")
            os.kill(third, signal.SIGTERM)
            await self.ends(third)
        self.assertFalse((self.directory / "s").exists())

    async def daemon(self, pidfile: Path, log: Path, generation: int) -> int:
        """Wait for a generation of the daemon; return its process id."""
        while f"generation {generation} at" not in (log.read_text() if log.exists() else ""):
            await deferLater(reactor, 0.02)
        while True:
            pid = int(pidfile.read_text() or 0)
            if pid and pid not in self.pids:
                self.pids.add(pid)
                return pid
            await deferLater(reactor, 0.02)

    async def test_systemd(self) -> None:
        """systemd learns of the reload, of the new main process, and of its end."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            path = f"{self.directory}/notify"
            systemd.bind(path)
            systemd.setblocking(False)
            program = await self.start(NOTIFY_SOCKET=path)
            os.kill(program.pid, signal.SIGUSR2)
            successor = await self.handed(program)
            await program.exited
            os.kill(successor, signal.SIGTERM)
            await self.ends(successor)
            told = []
            with contextlib.suppress(BlockingIOError):
                while True:
                    told.append(systemd.recv(200).decode())
        self.assertRegex(told[1], r"^RELOADING=1\nMONOTONIC_USEC=\d+$")
        del told[1]
        handed = f"READY=1\nMAINPID={successor}"
        self.assertEqual(told, ["READY=1", handed, "READY=1", "STOPPING=1"])

    async def test_activation(self) -> None:
        """A socket that systemd opened is matched by its address, and not closed for systemd."""
        listening = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listening.close)
        port = listening.getsockname()[1]
        command = self.command(("-n", "--pidfile="), f"--listen=tcp:{port}:interface=127.0.0.1")
        wrapped = [
            "sh",
            "-c",
            'export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=x; exec "$@"',
            "sh",
            *command,
        ]
        program = self.spawn(wrapped, {}, listening.fileno())
        await program.until(rb"generation 0 at")
        self.port = port
        await (await self.connect()).until(b"0 ")
        pid = program.pid
        os.kill(pid, signal.SIGUSR2)
        successor = await self.handed(program)
        await (talk := await self.connect()).until(b"1 piped")
        os.kill(successor, signal.SIGTERM)
        await self.ends(successor)
        plug = socket.create_connection(("127.0.0.1", port))
        plug.close()
        self.assertTrue(talk.data)


class FailedTests(HandOverCase):
    """Hand-overs that fail: the old process goes on as before."""

    starts = PROGRAMS

    async def fails(self, why: str, *options: str, **plan: Any) -> ServiceState:
        program = await self.start(*options)
        session = await self.connect()
        await session.until(b"0 ")
        self.plan(**plan)
        waiting: Any = None
        os.kill(program.pid, signal.SIGUSR2)
        if plan.get("ready"):  # it has adopted the port
            waiting = await self.connect()
        match = await program.until(rb"no hand-over, this process goes on: the successor: (.*)\n")
        self.assertRegex(match[1].decode(), why)
        await session.repeats(b"hello")
        another = await self.connect()
        await another.until(b"0 ")
        if waiting is not None:
            await waiting.until(b"0 ")
        self.assertEqual(self.children(program), [])
        self.assertNotIn(b"Traceback", program.output)
        # The next attempt succeeds.
        self.plan()
        at = len(program.output)
        os.kill(program.pid, signal.SIGUSR2)
        await self.handed(program, at)
        await (await self.connect()).until(b"1 piped")
        return program

    def children(self, program: ServiceState) -> list[int]:
        text = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text()
        return [int(each) for each in text.split()]

    async def test_options(self) -> None:
        """The options of the successor are refused."""
        program = await self.fails("the options are wrong", options="fail")
        self.assertNotIn(b"thawed", program.output)

    async def test_make(self) -> None:
        """The successor cannot make its service."""
        await self.fails("make failed", make="fail")

    async def test_dies(self) -> None:
        """The successor ends without a word."""
        for stage in ("make", "inherit", "start", "ready"):
            await self.fails("it ended with exit code 3; the reason", **{stage: "die"})
            self.plan()

    async def test_hangs_early(self) -> None:
        """The successor blocks before its hello: nothing has moved."""
        program = await self.fails("it did not start and did nothing for 8 s", SHORT, make="block")
        self.assertNotIn(b"thawed", program.output)

    async def test_hangs(self) -> None:
        """The successor is never ready, although it has the port."""
        why = r"it did not become ready and did nothing for 8 s \(--handover-seconds\)"
        program = await self.fails(why, SHORT, ready="hang")
        self.assertIn(b"thawed", program.output)

    async def test_slow(self) -> None:
        """A successor that works for longer than the limit takes over."""
        program = await self.start("--handover-seconds=2")
        self.plan(make="work", ready="work")
        os.kill(program.pid, signal.SIGUSR2)
        await self.handed(program)
        await (await self.connect()).until(b"1 piped")

    async def test_state(self) -> None:
        """The successor cannot read the state."""
        await self.fails("inherit failed", inherit="fail")

    async def test_start(self) -> None:
        """The successor cannot start, or fails after it has taken the port."""
        await self.fails("start failed", start="fail")
        self.plan()
        await self.fails("ready failed", ready="fail")
        self.plan()
        path = f"unix:{self.directory}/socket"
        await self.fails("ready failed", f"--listen={path}", ready="fail")

    async def test_older(self) -> None:
        """A successor with an older version of the state is refused before anything moves."""
        self.plan(version=2)
        program = await self.start()
        self.plan(version=1)
        os.kill(program.pid, signal.SIGUSR2)
        match = await program.until(rb"no hand-over, this process goes on: the successor: (.*)\n")
        self.assertIn(b"has version 1 of the state, older than version 2", match[1])
        self.assertNotIn(b"thawed", program.output)

    async def test_freeze_hangs(self) -> None:
        """The old process itself does not get its state together."""
        self.plan(freeze="hang")
        program = await self.start(SHORT)
        self.plan()
        os.kill(program.pid, signal.SIGUSR2)
        match = await program.until(rb"no hand-over, this process goes on: the successor: (.*)\n")
        self.assertIn(b"it did not get the state within 8 s", match[1])
        await (await self.connect()).until(b"0 ")

    async def test_not_possible(self) -> None:
        """A service that cannot be continued says so, and goes on."""
        self.plan(make="none")
        program = await self.start()
        os.kill(program.pid, signal.SIGUSR2)
        await program.until(rb"no hand-over: this program cannot be continued")
        await (await self.connect()).until(b"0 ")
        os.kill(program.pid, signal.SIGTERM)
        await program.exited

    async def test_twice(self) -> None:
        """A second signal during a hand-over, and one to a process that has left, are one line each."""
        program = await self.start()
        session = await self.connect()
        await session.until(b"0 ")
        self.plan(start="wait")
        os.kill(program.pid, signal.SIGUSR2)
        await program.until(b"handing over: starting")
        os.kill(program.pid, signal.SIGUSR2)
        await program.until(b"no hand-over: a hand-over is under way already")
        self.plan()
        await self.handed(program)
        os.kill(program.pid, signal.SIGUSR2)
        await program.until(b"no hand-over: its successor has the program already")
        await session.repeats(b"hello")

    async def test_early(self) -> None:
        """A signal to a program that is not ready yet does not end it."""
        self.plan(start="hang")
        program = self.spawn(self.command(("-n", "--pidfile=")), {})
        await program.until(rb"twistd .* starting up")
        while True:
            os.kill(program.pid, signal.SIGUSR2)
            if b"this program is not ready yet: the hand-over begins when it is" in program.output:
                break
            await deferLater(reactor, 0.02)
        os.kill(program.pid, signal.SIGTERM)
        await program.exited

    async def test_stopped(self) -> None:
        """A program that is stopped during a hand-over takes its successor with it."""
        program = await self.start()
        self.plan(start="hang")
        os.kill(program.pid, signal.SIGUSR2)
        await program.until(b"handing over: starting")
        while not (children := self.children(program)):
            await deferLater(reactor, 0.02)
        os.kill(program.pid, signal.SIGTERM)
        await program.exited
        await self.ends(children[0])
