"""
Tests for :mod:`twisted_exec.runtimes.qemu_run`, with real virtual machines.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from twisted.internet import reactor
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater

from tests.contracts.console import BreakableContract, ConsoleContract, Line
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.console.session import LineEnded, Session
from twisted_exec.runtimes.qemu import FIRMWARE
from twisted_exec.runtimes.qemu_command import Board
from twisted_exec.runtimes.qemu_run import QemuRun
from twisted_exec.streaming.interfaces import LINE_LOST, POWERED_OFF, Ending

from .qemus import QemuCase


class ContractTests(BreakableContract, ConsoleContract, QemuCase):
    """A QEMU machine is a console."""

    provoke = b"x"
    answer = b"x."
    first_words = b"ok"

    def make_console(self) -> QemuRun:
        return self.run_of(self.driver())

    def clean(self, console: QemuRun) -> Any:
        return console.stop()


class BootTests(QemuCase):
    """The real firmware."""

    async def test_u_boot(self) -> None:
        """U-Boot comes up to its prompt by itself, obeys, and idles without burning a core."""
        run = self.run_of(self.driver(Board(firmware=FIRMWARE)))
        line = await self.line(run)
        await line.until(b"=> ")
        self.assertIn(b"U-Boot 20", line.got)
        line.transport.write(b"echo q$arch\r")
        await line.until(b"qx86")
        before = self.processor_seconds()
        await deferLater(reactor, 1)  # what is measured is a second of doing nothing
        self.assertLess(self.processor_seconds() - before, 0.5)

    def processor_seconds(self) -> float:
        with open(f"/proc/{self.leaders[0].pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class EndTests(QemuCase):
    """How a machine ends."""

    async def test_first_output(self) -> None:
        """Nothing that the machine prints comes too early for its line."""
        for _ in range(3):
            run = self.run_of(self.driver())
            line = await self.line(run)
            await line.until(b"ok")
            self.assertTrue(line.got.replace(b"\0", b"").startswith(b"ok"))
            await run.stop()

    async def test_stop(self) -> None:
        """A stopped machine leaves no process; its line ends."""
        run = self.run_of(self.driver())
        line = await self.line(run)
        await run.stop()
        self.assertEqual(self.alive(), [])
        self.assertIsInstance(await line.over(), LineEnded)
        await run.stop()

    async def test_stop_stubborn(self) -> None:
        """One that does not listen to its control line is ended by signals."""
        run = self.run_of(self.driver())
        await self.line(run)
        os.kill(self.leaders[0].pid, signal.SIGSTOP)
        await run.stop()
        self.assertEqual(self.alive(), [])

    async def test_killed(self) -> None:
        """A QEMU that dies is a lost line, and says how it died."""
        line = await self.line(self.run_of(self.driver()))
        os.kill(self.leaders[0].pid, signal.SIGKILL)
        ending = (await line.over()).ending
        self.assertEqual(ending.reason, LINE_LOST)
        self.assertIn("signal 9", ending.message)

    async def test_guest_powers_off(self) -> None:
        """A guest that switches itself off is told as that."""
        line = await self.line(self.run_of(self.driver()))
        await line.until(b"ok")
        line.transport.write(b"!")
        ending = (await line.over()).ending
        self.assertEqual(ending.reason, POWERED_OFF)
        self.assertEqual(ending.message, 'machine "default/m" powered itself off')

    async def test_runtime_dies(self) -> None:
        """When nobody holds its terminal any more (the runtime was killed) QEMU ends by itself."""
        run = self.run_of(self.driver())
        await self.line(run)
        assert run._process is not None
        run._process.close()
        await self.until(lambda: not self.alive())


HANGS_UP_FIRST = """
import re, socket, sys
path = re.search("id=control0,path=([^,]+)", " ".join(sys.argv))[1]
control = socket.socket(socket.AF_UNIX)
control.bind(path)
control.listen()
heard, _ = control.accept()
heard.shutdown(socket.SHUT_WR)
while heard.recv(1024):
    pass
print("qemu: no BIOS at all", flush=True)
"""


class StartTests(QemuCase):
    """What keeps a machine from starting."""

    async def test_no_memory(self) -> None:
        """QEMU's own complaint is told."""
        run = self.run_of(self.driver(Board(memory_mib=1 << 30, firmware=self.rom())))
        with self.assertRaises(ServiceUnavailable) as caught:
            await self.line(run)
        self.assertIn("Cannot allocate memory", caught.exception.message)

    async def test_bad_firmware(self) -> None:
        """So it is when it goes by its short name, behind a warning."""
        firmware = os.path.join(self.directory, "bad.rom")
        with open(firmware, "wb") as file:
            file.write(b"not a ROM")
        with self.assertRaises(ServiceUnavailable) as caught:
            await self.line(self.run_of(self.driver(Board(firmware=firmware))))
        self.assertIn(f"could not load PC BIOS '{firmware}'", caught.exception.message)

    async def test_late_complaint(self) -> None:
        """A QEMU that hangs up before it says why is heard to its end."""
        program = os.path.join(self.directory, "qemu")
        with open(program, "w") as file:
            file.write(f"#!{sys.executable}\n{HANGS_UP_FIRST}")
        os.chmod(program, 0o755)
        with self.assertRaises(ServiceUnavailable) as caught:
            await self.line(self.run_of(self.driver(program=program)))
        self.assertEqual(
            caught.exception.message, "QEMU ended while it started: qemu: no BIOS at all"
        )

    async def test_no_sandbox(self) -> None:
        """A QEMU that was built without a sandbox is started without one the next time."""
        program = os.path.join(self.directory, "qemu")
        with open(program, "w") as file:
            file.write(
                '#!/bin/sh\ncase "$*" in *-sandbox*)\n'
                "echo 'qemu-system-x86_64: -sandbox: not supported'; exit 1;; esac\n"
                'exec qemu-system-x86_64 "$@"\n'
            )
        os.chmod(program, 0o755)
        driver = self.driver(program=program)
        with self.assertRaises(ServiceUnavailable):
            await self.line(self.run_of(driver))
        line = await self.line(self.run_of(driver))
        await line.until(b"ok")

    async def test_silent(self) -> None:
        """A program that is no QEMU does not hang the start for ever, and is ended."""
        driver = self.driver(program=self.program("#!/bin/sh\nexec sleep 1000\n"))
        run = self.run_of(driver)
        starting = run.connect(Factory.forProtocol(Line))
        await self.until(lambda: self.leaders)
        starting.cancel()
        self.assertIsInstance(await starting.addErrback(lambda failure: failure.value), Exception)
        await run.stop()
        self.assertEqual(self.alive(), [])

    async def test_ended_while_starting(self) -> None:
        """A session that is ended meanwhile leaves no QEMU."""
        run = self.run_of(self.driver())
        session = Session(run, reactor)
        opened = session.open()
        await self.until(lambda: self.leaders)
        session.end(Ending(POWERED_OFF, "off"))
        await opened.addErrback(lambda _: None)
        await run.stop()
        self.assertEqual(self.alive(), [])
