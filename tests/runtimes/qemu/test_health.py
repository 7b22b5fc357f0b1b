"""
Tests for :mod:`twisted_exec.runtimes.qemu.health`, with real virtual machines.
"""

from __future__ import annotations

import os
import signal

from twisted.internet import reactor

from tests.clocks import expire
from tests.runtimes.qemus import QemuCase
from tests.tiers import PROGRAMS
from twisted_exec.iri.protos import machine_pb2 as pb


class HealthTests(QemuCase):
    """Machines that stand still, and that go on."""

    starts = PROGRAMS

    async def test_hangs(self) -> None:
        """A QEMU that does not answer is reported once, and so is its recovery."""
        driver = self.driver()
        driver.watch_seconds, driver.answer_seconds = 0.05, 3600.0
        await self.line(self.run_of(driver))
        pid = self.leaders[0].pid
        os.kill(pid, signal.SIGSTOP)
        driver.answer_seconds = 0.5
        while "NotResponding" not in self.reasons():
            expire(reactor, 3000)  # the limit of a question that was asked before
            await self.pause()
        driver.answer_seconds = 3600.0  # it may go on late
        os.kill(pid, signal.SIGCONT)
        await self.until(lambda: "Resumed" in self.reasons())
        self.assertEqual(
            [(state, reason) for state, reason, _ in self.changes],
            [(pb.MACHINE_RUNNING, "NotResponding"), (pb.MACHINE_RUNNING, "")],
        )

    async def test_stopped_by_somebody(self) -> None:
        """A machine that stands still is suspended, until it goes on."""
        run = self.run_of(self.driver())
        await self.line(run)
        await self.ask(run, "stop")
        await self.until(lambda: (pb.MACHINE_SUSPENDED, "Paused") in self.seen())
        await self.ask(run, "cont")
        await self.until(lambda: (pb.MACHINE_RUNNING, "") in self.seen())

    def seen(self) -> list[tuple[int, str]]:
        return [(state, reason) for state, reason, _ in self.changes]

    async def test_goes_on(self) -> None:
        """A full disk suspends the machine until there is space again."""
        driver = self.driver(program=self.double("io-error"))
        driver.watch_seconds = 0.05
        await self.line(self.run_of(driver))
        await self.until(lambda: "Resumed" in self.reasons())
        self.assertEqual(
            [(state, reason) for state, reason, _ in self.changes],
            [(pb.MACHINE_SUSPENDED, "DiskFull"), (pb.MACHINE_RUNNING, "")],
        )
