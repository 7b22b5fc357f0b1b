"""
Tests for :mod:`twisted_exec.runtimes.pty`, with real pseudo-terminals.
"""

from __future__ import annotations

import errno
import hashlib
import os
import pwd
import signal
from collections import defaultdict
from dataclasses import replace
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import gatherResults
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from tests import soak
from tests.contracts.machine_runtime import machine
from tests.tiers import PROGRAMS
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.console.line import ending_of
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.journal.interfaces import EventKind
from twisted_exec.journal.journal import Journal
from twisted_exec.runtimes import pty
from twisted_exec.runtimes.interfaces import (
    IAdoptsMachines,
    IReleasable,
    IRestartPolicy,
    MachineFacts,
)
from twisted_exec.runtimes.processes import Process, read_process
from twisted_exec.runtimes.pty import PtyDriver, PtyOptions, PtyRun
from twisted_exec.streaming.interfaces import COMPLETED, LINE_LOST, Ending, TerminalSize
from twisted_exec.testing.drivers import ConsoleContract, Line, MachineDriverContract
from twisted_exec.wire.session_terms import FULL
from twisted_exec.wire.stream_options import StreamOptions

from .support import SHELL, RuntimeCase

WAIT = "while [ ! -e go ]; do sleep 0.05; done"
"""A part of a script in the directory of the test: wait for :meth:`ReleaseTests.go`."""


def no_terminal() -> tuple[int, int]:
    """``os.openpty`` on a host that has none left."""
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def found(pid: int) -> Process:
    process = read_process(pid)
    assert process is not None
    return process


class PtyCase(RuntimeCase):
    """Runs commands in pseudo-terminals."""

    def driver(self, *command: str, **options: Any) -> PtyDriver:
        if not options.get("user"):
            options.setdefault("same_user", True)
        chosen = PtyOptions(command=command or ("/bin/sh", "-i"), **options)
        return PtyDriver(chosen, reactor, self.table)  # type: ignore[arg-type]

    def run_of(self, driver: PtyDriver, id: str = "m") -> PtyRun:
        run = driver.run(self.facts(id))
        self.addCleanup(run.stop)
        return run

    async def line(self, run: PtyRun) -> Line:
        line: Line = await run.connect(Factory.forProtocol(Line))
        return line

    async def output(self, script: str, **options: Any) -> bytes:
        """All that a script prints."""
        line = await self.line(self.run_of(self.driver("/bin/sh", "-c", script, **options)))
        await line.over()
        return line.got.replace(b"\r\n", b"\n")


class WithKeeper(PtyCase):
    """Mix in before a case: its commands are children of a keeper."""

    def setUp(self) -> None:
        super().setUp()
        self.keeper = self.make_keeper()
        self.journals: defaultdict[str, Journal] = defaultdict(Journal)

    def facts(self, id: str = "m") -> MachineFacts:
        return replace(super().facts(id), keeper=self.keeper, journal=self.journals[id])

    def gaps(self, id: str) -> int:
        """How often the journal of a machine says that output is missing."""
        return len(list(self.journals[id].events(0, 0, EventKind.GAP)))


class ContractTests(MachineDriverContract, ConsoleContract, PtyCase):
    """The contracts of drivers and consoles."""

    starts = PROGRAMS
    provoke = b"echo $((6 * 7))x\r"
    answer = b"42x"

    def make_driver(self) -> PtyDriver:
        return self.driver()

    def make_console(self) -> PtyRun:
        return self.driver().run(self.facts())

    def clean(self, console: PtyRun) -> Any:
        return console.stop()


class KeptContractTests(WithKeeper, ContractTests):
    """The same with a keeper."""


class EnvironmentTests(PtyCase):
    """The environment of a command."""

    starts = PROGRAMS

    async def test_environment(self) -> None:
        """A sane environment, nothing of the runtime's own, and what the class adds."""
        self.patch(os, "environ", {**os.environ, "SECRET": "canary"})
        os.putenv("SECRET", "canary")
        self.addCleanup(os.unsetenv, "SECRET")
        output = await self.output("env", environment={"EXTRA": "a b"})
        expected = dict(line.split("=", 1) for line in output.decode().splitlines())
        account = pwd.getpwuid(os.getuid())
        self.assertEqual(expected["HOME"], account.pw_dir)
        self.assertEqual(expected["USER"], account.pw_name)
        self.assertEqual(expected["TERM"], "xterm-256color")
        self.assertEqual(expected["EXTRA"], "a b")
        self.assertIn("/usr/bin", expected["PATH"])
        self.assertNotIn("canary", output.decode())

    async def test_descriptors(self) -> None:
        """The terminal three times, and no other descriptor of ours."""
        with open("/dev/null") as ours:
            os.set_inheritable(ours.fileno(), True)
            output = await self.output("for fd in /proc/self/fd/*; do readlink $fd; done; true")
        self.assertNotIn(b"/dev/null", output)
        self.assertNotIn(b"socket:", output)
        self.assertEqual(output.count(b"/dev/pts/"), 3)

    async def test_controlling_terminal(self) -> None:
        """The command leads a session with the terminal as its own."""
        output = await self.output("ps -o pid=,sid=,tpgid= -p $$; echo seen >/dev/tty")
        pid, session, group = output.split()[:3]
        self.assertEqual({pid, session, group}, {pid})
        self.assertIn(b"seen", output)

    async def test_directory(self) -> None:
        """It starts where the class says, else at home, else at the root."""
        self.assertEqual(await self.output("pwd", directory="/usr"), b"/usr\n")
        self.assertEqual(await self.output("pwd", directory="/nonexistent"), b"/\n")

    async def test_first_size(self) -> None:
        """A size that was set before the start applies from the beginning."""
        run = self.run_of(self.driver("/bin/sh", "-c", "stty size"))
        run.window_changed(TerminalSize(132, 50))
        line = await self.line(run)
        await line.over()
        self.assertEqual(line.got, b"50 132\r\n")

    async def test_resize(self) -> None:
        """A new size sends SIGWINCH."""
        run = self.run_of(
            self.driver("/bin/sh", "-c", "trap 'stty size; exit' WINCH; echo up; read x; read y")
        )
        line = await self.line(run)
        await line.until(b"up")
        run.window_changed(TerminalSize(100, 30))
        await line.until(b"30 100")


class KeptEnvironmentTests(WithKeeper, EnvironmentTests):
    """The same with a keeper."""


class UserTests(PtyCase):
    """The user of the process."""

    starts = PROGRAMS

    def test_asked_for(self) -> None:
        """The runtime's own user needs ``same_user``."""
        driver = PtyDriver(PtyOptions(["/bin/sh"]), reactor, self.table)  # type: ignore[arg-type]
        self.assertIn("same_user", driver.missing())

    def test_user_without_a_name(self) -> None:
        """In some containers the own user has no entry in the password file."""
        self.patch(os, "geteuid", lambda: 2**30)
        missing = self.driver().missing()
        self.assertEqual(missing, "this host does not know the runtime's own user (uid 1073741824)")

    def test_unknown_user(self) -> None:
        """A user that is not there is named."""
        driver = self.driver(user="no-such-user")
        self.assertEqual(driver.missing(), "there is no user 'no-such-user' on this host")

    async def test_no_such_command(self) -> None:
        """A command that is not there cannot be started, and is named."""
        driver = self.driver("/no/such/program")
        self.assertIn("'/no/such/program'", driver.missing())
        with self.assertRaises(ServiceUnavailable):
            await self.line(self.run_of(driver))

    async def test_own_user_by_name(self) -> None:
        """The runtime's user can also be named."""
        name = pwd.getpwuid(os.getuid()).pw_name
        self.assertEqual((await self.output("id -un", user=name)).decode(), f"{name}\n")

    async def test_other_user(self) -> None:
        """As root a command runs as its user, with its groups and terminal, and can not go back."""
        driver = self.driver(user="nobody")
        if os.getuid() != 0:
            self.assertEqual(driver.missing(), "only root can run machines as 'nobody'")
            return
        output = await self.output(
            "id -u; id -G; stat -c %u $(tty); grep Cap /proc/self/status", user="nobody"
        )
        nobody = pwd.getpwnam("nobody")
        uid, groups, owner = output.split(b"\n")[:3]
        self.assertEqual((int(uid), int(owner)), (nobody.pw_uid, nobody.pw_uid))
        self.assertEqual([int(each) for each in groups.split()], [nobody.pw_gid])
        self.assertIn(b"CapEff:\t0000000000000000", output)


class KeptUserTests(WithKeeper, UserTests):
    """The same with a keeper."""


class EndTests(PtyCase):
    """Endings."""

    starts = PROGRAMS
    exact = True

    async def test_exit_code(self) -> None:
        """The line's end tells the exit code, after all output."""
        line = await self.line(self.run_of(self.driver("/bin/sh", "-c", "echo bye; exit 7")))
        reason = await line.over()
        self.assertIsInstance(reason, ProcessTerminated)
        self.assertEqual((reason.exitCode, line.got), (7, b"bye\r\n"))

    async def test_success(self) -> None:
        """So it does for 0."""
        line = await self.line(self.run_of(self.driver("/bin/true")))
        self.assertIsInstance(await line.over(), ProcessDone)

    async def test_signal(self) -> None:
        """And for a signal."""
        line = await self.line(self.run_of(self.driver("/bin/sh", "-c", "kill -9 $$")))
        self.assertEqual((await line.over()).signal, 9)

    async def test_left_behind(self) -> None:
        """Background processes end with the command and do not delay its end."""
        script = "trap '' HUP; sleep 1000 & setsid sleep 1000 & sleep 0.1; exit 3"
        line = await self.line(self.run_of(self.driver("/bin/sh", "-c", script)))
        self.assertEqual((await line.over()).exitCode, 3)
        self.assertEqual(self.alive(), [])

    async def test_tail_of_paused_line(self) -> None:
        """Unread output at the end of the command is not lost."""
        run = self.run_of(self.driver("/bin/sh", "-c", "read x; echo last words; exit 1"))
        line = await self.line(run)
        line.transport.write(b"\r")
        line.transport.pauseProducing()
        await line.over()
        self.assertIn(b"last words", line.got)

    async def test_stop(self) -> None:
        """Stopping ends everything, stubborn or not, and twice is as good as once."""
        script = "trap '' HUP TERM; echo up; while :; do sleep 1000; done"
        run = self.run_of(self.driver("/bin/sh", "-c", script))
        line = await self.line(run)
        await line.until(b"up")
        await gatherResults([run.stop(), run.stop()])
        self.assertEqual(self.alive(), [])
        self.assertEqual((await line.over()).signal, 9)

    async def test_stop_before_start(self) -> None:
        """A machine that never ran is stopped already."""
        await self.run_of(self.driver()).stop()

    async def test_input_that_nobody_reads(self) -> None:
        """Typed bytes that are stuck in the terminal do not keep it open."""
        run = self.run_of(self.driver("/bin/sh", "-c", "stty raw; echo up; sleep 1000"))
        line = await self.line(run)
        await line.until(b"up")
        line.transport.write(bytes(1 << 20))
        line.transport.loseConnection()
        await run.stop()
        await line.over()

    async def test_leaders_are_told(self) -> None:
        """``started`` is called with the leader immediately, for the records."""
        await self.line(self.run_of(self.driver()))
        (process,) = self.leaders
        self.assertEqual(os.getsid(process.pid), process.pid)


class ChildTests(PtyCase):
    """Commands that are children of this process."""

    starts = PROGRAMS

    async def test_stop_after_a_start_that_failed(self) -> None:
        """Without a free terminal the start fails with the reason, and a stop does nothing."""
        run = self.run_of(self.driver())
        self.patch(os, "openpty", no_terminal)
        with self.assertRaises(ServiceUnavailable) as caught:
            await self.line(run)
        self.assertIn("Too many open files", caught.exception.message)
        run.window_changed(TerminalSize(100, 30))
        await run.stop()

    async def test_without_a_terminal_of_its_own(self) -> None:
        """A command that gives its terminal up is not waited for."""
        self.patch(pty, "_LEAD_SECONDS", 0.01)
        self.patch(pty, "read_process", lambda pid: replace(found(pid), terminal=0))
        run = self.run_of(self.driver())
        await self.line(run)


class KeptEndTests(WithKeeper, EndTests):
    """The same with a keeper."""


class ReleaseTests(WithKeeper):
    """Commands that outlive their runtime."""

    starts = PROGRAMS
    exact = True

    def later(self) -> None:
        """The next runtime begins."""
        self.keeper = self.make_keeper()

    def go(self) -> None:
        """Let a command go on that waits."""
        with open(os.path.join(self.directory, "go"), "w"):
            pass

    def adopt(self, id: str = "m", **options: Any) -> PtyRun:
        """A run of the next runtime."""
        run = self.driver(**options).adopt(self.facts(id), self.leaders[:1])
        self.addCleanup(run.stop)
        return run

    async def test_interfaces(self) -> None:
        """With a keeper a run can be released, and without one it cannot."""
        run = self.driver().run(self.facts())
        verifyObject(IReleasable, run)
        verifyObject(IAdoptsMachines, self.driver())
        without = replace(self.facts(), keeper=None)
        self.assertFalse(IReleasable.providedBy(self.driver().run(without)))

    async def test_goes_on(self) -> None:
        """
        A released command goes on; the next runtime gets what it has printed meanwhile, types to it,
        and hears of its end.
        """
        script = (
            f"stty -echo; echo up; read x; echo >typed; {WAIT}; echo between; echo >printed;"
            "read y; echo got $y; exit 3"
        )
        run = self.run_of(self.driver("/bin/sh", "-c", script, directory=self.directory))
        line = await self.line(run)
        await line.until(b"up\r\n")
        line.transport.write(b"x\r")
        await self.until(lambda: os.path.exists(os.path.join(self.directory, "typed")))
        line.transport.loseConnection()  # as a console does at its end
        line.transport.write(b"late\r")
        run.release()
        await self.keeper.close()
        self.assertTrue(self.alive())
        self.go()
        await self.until(lambda: os.path.exists(os.path.join(self.directory, "printed")))

        self.later()
        adopted = self.adopt()
        line = await self.line(adopted)
        self.assertEqual(self.gaps("m"), 0)
        await line.until(b"between")
        line.transport.write(b"y\r")
        self.assertEqual((await line.over()).exitCode, 3)
        self.assertEqual(line.got, b"between\r\ngot y\r\n")
        await adopted.stop()
        self.assertEqual(await self.keeper.holdings(), {})

    async def test_input_in_flight(self) -> None:
        """Input that the terminal had not accepted reaches the command in the next runtime."""
        total = 60_000
        script = f"stty raw -echo; echo up; {WAIT}; head -c %d | sha256sum"
        options = {"directory": self.directory}
        run = self.run_of(self.driver("/bin/sh", "-c", script % total, **options))
        line = await self.line(run)
        await line.until(b"up")
        data = os.urandom(total)
        line.transport.write(data)
        await self.pause()  # wait: however much the terminal has accepted by then
        line.transport.loseConnection()
        run.release()
        await self.keeper.close()

        self.later()
        line = await self.line(self.adopt())
        self.go()
        await line.until(hashlib.sha256(data).hexdigest().encode())

    async def test_ended_meanwhile(self) -> None:
        """A command that ended while no runtime ran is found with its last words and its status."""
        script = f"echo up; {WAIT}; echo bye; exit 4"
        run = self.run_of(self.driver("/bin/sh", "-c", script, directory=self.directory))
        line = await self.line(run)
        await line.until(b"up")
        run.release()
        await self.keeper.close()
        self.go()
        await self.until(lambda: self.alive() == [])

        self.later()
        line = await self.line(self.adopt())
        self.assertEqual((await line.over()).exitCode, 4)
        self.assertIn(b"bye", line.got)
        await self.until(lambda: self.keeper._connection is not None)
        self.assertEqual(await self.keeper.holdings(), {})

    async def test_size(self) -> None:
        """The size stays until somebody sets another."""
        script = "stty -echo; echo up; read x; stty size; read y; stty size"
        run = self.run_of(self.driver("/bin/sh", "-c", script))
        line = await self.line(run)
        await line.until(b"up")
        run.window_changed(TerminalSize(132, 50))
        run.release()
        await self.keeper.close()

        self.later()
        run = self.adopt()
        line = await self.line(run)
        line.transport.write(b"\r")
        await line.until(b"50 132")
        run.window_changed(TerminalSize(100, 30))
        line.transport.write(b"\r")
        await line.until(b"30 100")

    async def test_not_held(self) -> None:
        """A command whose terminal is lost cannot be adopted; stopping the run ends it."""
        script = "trap '' HUP; echo up; sleep 1000"
        line = await self.line(self.run_of(self.driver("/bin/sh", "-c", script)))
        await line.until(b"up")
        self.keeper.forget("m")
        run = self.adopt()
        with self.assertRaisesRegex(ServiceUnavailable, "nothing is held"):
            await self.line(run)
        await run.stop()
        self.assertEqual(self.alive(), [])

    async def test_lost_output(self) -> None:
        """If the last runtime was killed between a terminal and its journal, output is missing."""
        run = self.run_of(self.driver("/bin/sh", "-c", "echo up; read x"))
        line = await self.line(run)
        await line.until(b"up")
        other = self.run_of(self.driver(), "other")
        await self.line(other)
        for each in (run, other):
            each.release()
        self.keeper.mark.set(b"m")
        await self.keeper.close()

        self.later()
        other = self.adopt("other")
        await self.line(other)
        other.release()
        self.keeper.mark.set(b"other")
        await self.keeper.close()  # this runtime was killed, too, before it had the first terminal

        self.later()
        for name in ("m", "other"):
            run = self.adopt(name)
            await self.line(run)
            self.assertEqual(self.gaps(name), 1)
            self.journals[name].append(b"x")
            run.release()
        await self.keeper.close()
        self.later()
        for name in ("m", "other"):
            await self.line(self.adopt(name))
            self.assertEqual(self.gaps(name), 1)

    async def test_killed_at_the_end(self) -> None:
        """A runtime that is killed while it reads the last words of a command loses them with a note."""
        script = "trap '' HUP; echo up; read x; head -c 3000 /dev/zero | tr '\\0' x; exit 3"
        run = self.run_of(self.driver("/bin/sh", "-c", script))
        line = await self.line(run)
        await line.until(b"up")
        found: list[bytes] = []

        def received(data: bytes) -> None:
            with open(os.path.join(self.directory, "reading"), "rb") as file:
                note = file.read(256)
            found.append(note[1 : 1 + note[0]])

        line.dataReceived = received  # type: ignore[method-assign]
        line.transport.pauseProducing()
        line.transport.write(b"\r")
        await line.over()
        self.assertEqual(set(found), {b"m"})

    async def test_keeper_is_killed(self) -> None:
        """The machine ends with the reason when its keeper does."""
        line = await self.line(self.run_of(self.driver()))
        (process,) = self.leaders
        os.kill(found(process.pid).parent, signal.SIGKILL)
        ending = ending_of(Failure(await line.over()))
        self.assertEqual(ending.reason, LINE_LOST)
        self.assertIn("keeper", ending.message)
        self.assertEqual(self.alive(), [])


class TrafficTests(PtyCase):
    """Much of everything."""

    starts = PROGRAMS

    async def test_much(self) -> None:
        """In raw mode many MiB pass through a session unchanged."""
        blocks = soak.figure(self) * 16
        script = (
            "import hashlib, os, sys, tty; tty.setraw(1); block = os.urandom(65536);"
            "digest = hashlib.sha256();"
            f"[(digest.update(block), sys.stdout.buffer.write(block)) for _ in range({blocks})];"
            "sys.stdout.buffer.flush(); sys.stdout.buffer.write(digest.digest())"
        )
        run = self.run_of(self.driver("python3", "-c", script))
        shared = SharedConsole(run, reactor)  # type: ignore[arg-type]
        stream = HashingStream(shared.viewer())
        await shared.open()
        await shared.when_line_over()
        self.assertEqual(stream.count, blocks << 16)
        self.assertEqual(stream.tail, stream.digest.digest())

    async def test_many(self) -> None:
        """Many at once, ended at once: no process and no descriptor is left."""
        driver = self.driver()
        first = self.run_of(driver)
        await self.line(first)
        await first.stop()  # the reactor and the keeper have opened what they need themselves
        before = _descriptors()
        runs = [self.run_of(driver, f"m{number}") for number in range(soak.figure(self))]
        lines = await gatherResults([run.connect(Factory.forProtocol(Line)) for run in runs])
        for line in lines:
            line.transport.write(b"echo $((6 * 7))x\r")
        await gatherResults([line.until(b"42x") for line in lines])
        await gatherResults([run.stop() for run in runs])
        await gatherResults([line.over() for line in lines])
        self.assertEqual(self.alive(), [])
        self.assertEqual(_descriptors() - before, set())


class KeptTrafficTests(WithKeeper, TrafficTests):
    """The same with a keeper."""


def _descriptors() -> set[str]:
    """The open descriptors of this process, without that of the listing."""
    descriptors = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptors.add(f"{name}: {os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:
            pass
    return descriptors


class HashingStream:
    """A viewer's stream that keeps only a hash: of all but the last 32 bytes."""

    session, user, options, terms = "s", "ann", StreamOptions(), FULL

    def __init__(self, viewer: Any) -> None:
        self.digest = hashlib.sha256()
        self.tail = b""
        self.count = 0
        viewer.attached(self)

    def write(self, data: bytes) -> None:
        data = self.tail + data
        self.digest.update(data[:-32])
        self.count += max(0, len(data) - 32)
        self.tail = data[-32:]

    def end(self, ending: Ending) -> None:
        pass

    def pause_input(self) -> None:
        pass

    def resume_input(self) -> None:
        pass

    def registerProducer(self, producer: object, streaming: bool) -> None:
        pass

    def unregisterProducer(self) -> None:
        pass


class RestartTests(PtyCase):
    """``restart`` of a class."""

    starts = PROGRAMS

    def test_policies(self) -> None:
        """Each policy restarts after the right endings."""
        done, failed = Ending(COMPLETED, "", 0), Ending(COMPLETED, "", 3)
        lost = Ending(LINE_LOST, "")
        for restart, expected in (
            ("always", [True, True, True]),
            ("on-failure", [False, True, True]),
            ("never", [False, False, False]),
        ):
            driver = self.driver(restart=restart)
            verifyObject(IRestartPolicy, driver)
            self.assertEqual([driver.restarts(each) for each in (done, failed, lost)], expected)

    async def test_in_a_runtime(self) -> None:
        """A command that is not to be started again leaves its machine off, which says how it ended."""
        shell = {**SHELL, "command": ["/bin/sh", "-c", "exit 3"], "restart": "never"}
        runtime = await self.make_runtime(shell)
        answer = await runtime.create_machine(
            pb.CreateMachineRequest(machine=machine("x", "shell"))
        )
        record = runtime.machines.records.get(answer.machine.metadata.id)
        await self.until(lambda: record.state == pb.MACHINE_STOPPED)
        (condition,) = record.to_machine().status.machine_conditions
        self.assertEqual(condition.message, "the process ended with exit code 3")
