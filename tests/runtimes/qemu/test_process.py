"""
Tests for :mod:`twisted_exec.runtimes.qemu.process`.
"""

from __future__ import annotations

import os
import signal

from twisted.internet import reactor

from tests.runtimes.support import RuntimeCase
from tests.tiers import PROGRAMS
from twisted_exec.runtimes.processes import Leader, read_process
from twisted_exec.runtimes.qemu.process import PATH, ChildProcess, DetachedProcess


class ProcessCase(RuntimeCase):
    """Programs that say what a QEMU says."""

    def setUp(self) -> None:
        super().setUp()
        self.exits = 0
        self.log = os.path.join(self.directory, "qemu.log")
        variable, value = self.facts().marker
        self.environment = {"PATH": PATH, variable: value}

    def exited(self) -> None:
        self.exits += 1

    def kept(self, script: str) -> tuple[DetachedProcess, Leader | None]:
        process = DetachedProcess(self.exited, self.log)
        self.addCleanup(process.close)
        result = process.start(["/bin/sh", "-c", script], self.environment, reactor)
        if result is not None:
            self.addCleanup(self.kill, result)
        return process, result

    def kill(self, leader: Leader) -> None:
        process = read_process(leader.pid)
        if process is not None and process.start == leader.start:
            os.kill(leader.pid, signal.SIGKILL)


class KeptTests(ProcessCase):
    """Tests for :class:`DetachedProcess`."""

    starts = PROGRAMS

    async def test_leads(self) -> None:
        """It leads a session without a terminal, so that nothing hangs it up."""
        _, result = self.kept("exec sleep 1000")
        assert result is not None

        def leads() -> bool:
            process = read_process(result.pid)
            return process is not None and process.session == result.pid

        await self.until(leads)
        process = read_process(result.pid)
        assert process is not None
        self.assertEqual(process.terminal, 0)
        # In the middle of an exec a process has no environment, and thus no mark.
        await self.until(self.alive)
        self.assertEqual(self.alive(), [result.pid])

    async def test_end_is_heard(self) -> None:
        """The end is reported once, and the log file has the error message."""
        process, _ = self.kept("echo 'qemu: warning: x'; echo 'qemu: no BIOS'; exit 1")
        await self.until(lambda: self.exits)
        self.assertEqual((self.exits, process.complaint()), (1, "qemu: no BIOS"))

    async def test_adopted(self) -> None:
        """The end of a process of an earlier runtime is reported, too."""
        first, result = self.kept("exec sleep 1000")
        assert result is not None
        first.close()
        second = DetachedProcess(self.exited, self.log)
        self.addCleanup(second.close)
        second.adopt(result, reactor)
        os.kill(result.pid, signal.SIGKILL)
        await self.until(lambda: self.exits)
        self.assertEqual(self.exits, 1)

    def test_gone(self) -> None:
        """A process that does not exist, or whose id was reused, has ended."""
        process = DetachedProcess(self.exited, self.log)
        process.adopt(Leader(os.getpid(), 1), reactor)
        process.adopt(Leader(2**22 + 1, 1), reactor)
        self.assertEqual((self.exits, process.complaint()), (2, ""))

    def test_much_is_said(self) -> None:
        """Output does not fill the disk."""
        process = DetachedProcess(self.exited, self.log)
        process.trim_log()
        for size, left in ((2 << 20, 0), (100, 100)):
            with open(self.log, "wb") as file:
                file.truncate(size)
            process.trim_log()
            self.assertEqual(os.path.getsize(self.log), left)

    def test_no_room(self) -> None:
        """Without a log file QEMU is not started."""
        self.log = "/nonexistent/log"
        with self.assertRaises(OSError):
            self.kept("exit 0")
        self.assertEqual(self.alive(), [])


class BoundTests(ProcessCase):
    """Tests for :class:`ChildProcess`."""

    starts = PROGRAMS

    async def test_hung_up(self) -> None:
        """It ends when its terminal is let go of, as when the runtime dies."""
        process = ChildProcess(self.exited)
        process.start(["/bin/sleep", "1000"], self.environment, reactor)
        await self.until(self.alive)
        process.close()
        await self.until(lambda: self.exits)
        self.assertEqual(process.complaint(), "signal 1")
