"""
Tests for :mod:`twisted_exec.runtimes.processes`, with real processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from tests.descriptors import no_descriptors
from tests.heard import hear_signals
from tests.tiers import PROGRAMS
from twisted_exec.runtimes.processes import (
    Leader,
    Process,
    ProcessFamily,
    ProcessTable,
    RunRecords,
    _signal,
    leader,
    read_process,
)
from twisted_exec.runtimes.service import MARK
from twisted_exec.runtimes.state import read_or_create_id

from .support import RuntimeCase


def process_of(pid: int) -> Process:
    """A process that was not read from ``/proc``."""
    return Process(pid=pid, start=0, session=0, parent=0, terminal=0)


class FamilyCase(RuntimeCase):
    """Starts shells, and looks after them."""

    def setUp(self) -> None:
        super().setUp()
        self.shells: list[subprocess.Popen[bytes]] = []
        self.addCleanup(self.reap)

    def reap(self) -> None:
        for shell in self.shells:
            shell.kill()
            shell.wait(600)

    def start(self, script: str, *, marked: bool = True) -> Leader:
        """A shell that leads a session, has run its script, and then waits."""
        mark = {MARK: f"{self.mark}/m"} if marked else {}
        shell = subprocess.Popen(
            ["/bin/sh", "-c", f"{script}\necho ready\nread forever"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # "can't access tty"
            env={"PATH": os.environ["PATH"], **mark},
            start_new_session=True,
        )
        self.shells.append(shell)
        assert shell.stdin is not None and shell.stdout is not None
        self.addCleanup(shell.stdin.close)
        self.addCleanup(shell.stdout.close)
        self.assertEqual(shell.stdout.readline(), b"ready\n")
        process = leader(shell.pid)
        assert process is not None
        return process

    def family(self, *leaders: Leader) -> ProcessFamily:
        return ProcessFamily(self.table, lambda mark: mark == f"{self.mark}/m", leaders)


class EndTests(FamilyCase):
    """Tests for :meth:`ProcessFamily.end`."""

    starts = PROGRAMS

    async def test_whole_family(self) -> None:
        """Jobs in groups of their own, and who left the session, are ended with the leader."""
        process = self.start("set -m; sleep 1000 & setsid sleep 1000 & (sleep 1000 &)")
        await self.until(lambda: len(self.alive()) == 4)
        self.assertEqual(await self.family(process).end(), [])
        self.assertEqual(self.alive(), [])

    async def test_stubborn(self) -> None:
        """A process that ignores SIGHUP and SIGTERM is killed."""
        process = self.start("trap '' HUP TERM")
        self.assertEqual(await self.family(process).end(), [])
        self.assertEqual(self.alive(), [])

    async def test_stopped(self) -> None:
        """A stopped process is ended, too."""
        process = self.start("")
        os.kill(process.pid, signal.SIGSTOP)
        self.assertEqual(await self.family(process).end(), [])
        self.assertEqual(self.alive(), [])

    async def test_without_mark(self) -> None:
        """A leader's session is the family's, whatever became of the environment."""
        hear_signals(self)
        process = self.start("sleep 1000 &", marked=False)
        await self.family(process).end()
        self.assertEqual(self.shells[0].wait(600), -signal.SIGHUP)

    async def test_leader_is_gone(self) -> None:
        """Processes that a leader left in its session belong to the machine."""
        command = self.start("trap '' HUP; sleep 1000 &", marked=False)
        self.shells[0].kill()
        self.shells[0].wait(600)
        self.assertEqual(await self.family(command).end(), [])
        table = self.table.scan_now()
        self.assertNotIn(command.session, [process.session for process, _ in table.values()])

    async def test_others_live(self) -> None:
        """Another machine's processes are not touched."""
        mine = self.start("", marked=False)
        other = self.start("", marked=False)
        await self.family(mine).end()
        self.assertIsNotNone(read_process(other.pid))

    async def test_id_used_again(self) -> None:
        """A process that reuses the id of an ended leader does not belong to the machine."""
        other = self.start("", marked=False)
        await self.family(Leader(other.pid, other.start - 1)).end()
        self.assertIsNotNone(read_process(other.pid))

    def test_signal_to_nobody(self) -> None:
        """A signal goes to the process that was seen, not to the next with its id."""
        other = self.start("", marked=False)
        _signal(Process(other.pid, other.start - 1, other.pid, 0, 0), signal.SIGKILL)
        self.assertIsNotNone(read_process(other.pid))


class ReadTests(FamilyCase):
    """Tests for reading ``/proc``."""

    starts = PROGRAMS

    def test_self(self) -> None:
        """This process is found, with its session."""
        process = read_process(os.getpid())
        assert process is not None
        self.assertEqual(process.session, os.getsid(0))

    def test_odd_name(self) -> None:
        """A name with spaces and parentheses does not shift the fields."""
        path = os.path.join(self.directory, "a ) R 1 (b")
        os.symlink("/bin/sleep", path)
        process = subprocess.Popen([path, "1000"], start_new_session=True)
        self.shells.append(process)
        command = read_process(process.pid)
        assert command is not None
        self.assertEqual(command.session, process.pid)

    def test_zombie(self) -> None:
        """The remains of a process are not a process."""
        process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.DEVNULL)
        # wait: the process ends by itself
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        self.assertIsNone(read_process(process.pid))
        process.wait(600)

    def test_no_descriptor_left(self) -> None:
        """
        Without file descriptors a process is not taken for dead: the scan is repeated, and logged
        once.
        """
        clock = Clock()
        table = ProcessTable(clock, MARK)
        with capturedLogs() as events:
            looking = table.scan()
            with no_descriptors():
                clock.pump([1.0] * 3)
                with self.assertRaises(OSError):
                    read_process(os.getpid())
                self.assertFalse(_signal(process_of(os.getpid()), signal.SIGKILL))
            self.assertNoResult(looking)
            clock.advance(1)
            self.assertIn(os.getpid(), self.successResultOf(looking))
        messages = [formatEvent(event) for event in events]
        self.assertEqual(messages, ["cannot scan processes: Too many open files"])

    def test_nobody(self) -> None:
        """No process, no leader."""
        self.assertIsNone(leader(2**22 + 1))


class RecordTests(RuntimeCase):
    """Tests for :class:`RunRecords`."""

    def test_round_trip(self) -> None:
        """A later runtime reads the records until they are cleared."""
        path = os.path.join(self.directory, "runs")
        records = RunRecords(path)
        self.assertEqual(records.open(), {})
        records.add("a", Leader(7, 8))
        records.add("b", Leader(9, 10))
        records.remove("a")
        records.remove("a")
        self.assertEqual(RunRecords(path).open(), {"b": [Leader(9, 10)]})
        records.add("a", Leader(7, 8))
        records.clear({"a"})
        self.assertEqual(RunRecords(path).open(), {"a": [Leader(7, 8)]})
        records.clear()
        self.assertEqual(RunRecords(path).open(), {})

    def test_several(self) -> None:
        """A record has all leaders of a machine that still run, each once."""
        path = os.path.join(self.directory, "runs")
        records = RunRecords(path)
        records.open()
        running = leader(os.getpid())
        assert running is not None
        for each in (running, Leader(os.getpid(), running.start + 1), running, Leader(7, 8)):
            records.add("a", each)
        self.assertEqual(records.open(), {"a": [running, Leader(7, 8)]})

    def test_private(self) -> None:
        """A record is for its owner only, whatever the umask."""
        self.addCleanup(os.umask, os.umask(0))
        path = os.path.join(self.directory, "runs")
        records = RunRecords(path)
        records.open()
        records.add("a", Leader(7, 8))
        self.assertEqual(os.stat(os.path.join(path, "a")).st_mode & 0o777, 0o600)
        name = os.path.join(self.directory, "id")
        self.assertEqual(read_or_create_id(name), read_or_create_id(name))
        self.assertEqual(os.stat(name).st_mode & 0o777, 0o600)

    def test_unreadable(self) -> None:
        """A damaged record, or one of another boot, has no leaders."""
        path = os.path.join(self.directory, "runs")
        records = RunRecords(path)
        records.open()
        for name, text in (("a", '{"boot"'), ("b", '{"boot": "other", "leaders": [[1, 2]]}')):
            with open(os.path.join(path, name), "w") as file:
                file.write(text)
        self.assertEqual(records.open(), {"a": [], "b": []})
