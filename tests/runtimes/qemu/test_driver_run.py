"""
Tests for :mod:`twisted_exec.runtimes.qemu.driver`, with real virtual machines.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from twisted.internet import reactor
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from zope.interface.verify import verifyObject

from tests.clocks import expire
from tests.runtimes.qemus import QemuCase
from tests.tiers import PROGRAMS
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.console.line import LineEnded
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.interfaces import CannotStart, IShutdown
from twisted_exec.runtimes.qemu import accelerator, driver, health
from twisted_exec.runtimes.qemu.command_line import AUTO, KVM, TCG, Board
from twisted_exec.runtimes.qemu.disks import DiskOptions
from twisted_exec.runtimes.qemu.driver import FIRMWARE, QemuDriver, QemuRun
from twisted_exec.streaming.interfaces import LINE_LOST, POWERED_OFF, Ending
from twisted_exec.testing.drivers import (
    BreakableContract,
    ConsoleContract,
    Line,
    MachineDriverContract,
)


class ContractTests(MachineDriverContract, BreakableContract, ConsoleContract, QemuCase):
    """The contracts of drivers and consoles."""

    starts = PROGRAMS
    provoke = b"x"
    answer = b"x."
    first_words = b"ok"

    def make_driver(self) -> QemuDriver:
        return self.driver()

    def make_console(self) -> QemuRun:
        return self.run_of(self.driver())

    def clean(self, console: QemuRun) -> Any:
        return console.stop()


class BootTests(QemuCase):
    """The real firmware."""

    starts = PROGRAMS

    async def test_u_boot(self) -> None:
        """U-Boot comes up to its prompt by itself, obeys, and idles without burning a core."""
        run = self.run_of(self.driver(Board(firmware=FIRMWARE)))
        line = await self.line(run)
        await line.until(b"=> ")
        self.assertIn(b"U-Boot 20", line.got)
        line.transport.write(b"echo q$arch\r")
        await line.until(b"qx86")
        before = self.processor_seconds()
        begin = time.monotonic()
        await deferLater(reactor, 1)  # wait: the processor time of an idle second is the subject
        used = self.processor_seconds() - before
        self.assertLess(used, (time.monotonic() - begin) / 2)

    def processor_seconds(self) -> float:
        with open(f"/proc/{self.leaders[0].pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class IdleTests(QemuCase):
    """A class with ``idle_seconds``."""

    starts = PROGRAMS

    async def test_pause(self) -> None:
        """A silent machine is paused and still runs for its users; input is answered at once."""
        run = self.run_of(self.driver(idle_seconds=3600))
        line = await self.line(run)
        await line.until(b"ok")
        idle = run._idle  # QEMU's own clock of silence cannot be moved.
        for _ in range(2):
            while (await self.ask(run, "query-status"))["status"] != "paused":
                idle._last -= 3600  # the time passes
                expire(reactor, 1800)
                await deferLater(reactor, 0.02)
            self.assertTrue(idle.is_paused)
            await run._health._query()
            line.transport.write(b"x")
            await line.until(b"x.")
            line.got = b""
        self.assertEqual((self.changes, self.events), ([], []))

    async def test_adopted(self) -> None:
        """A runtime that stops pauses the machine; the next one resumes it."""
        driver = self.driver(idle_seconds=600)
        run = self.run_of(driver, keep=True)
        line = await self.line(run)
        await line.until(b"ok")
        run.release()
        adopted = driver.adopt(self.facts(keep=True), self.leaders)
        assert isinstance(adopted, QemuRun)
        self.addCleanup(adopted.stop)
        ask, states = adopted._ask, []

        async def watched(command: str, **arguments: Any) -> Any:
            answer = await ask(command, **arguments)
            if command == "query-status":
                states.append(answer["status"])
            return answer

        adopted._ask = watched  # type: ignore[method-assign]
        line = await self.line(adopted)
        self.assertEqual(states, ["paused"])
        line.transport.write(b"x")
        await line.until(b"x.")


class EndTests(QemuCase):
    """Endings of a machine."""

    starts = PROGRAMS

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
        """A QEMU that ignores its control socket is ended by signals."""
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
        """A guest that powers itself off has the ending PoweredOff."""
        line = await self.line(self.run_of(self.driver()))
        await line.until(b"ok")
        line.transport.write(b"!")
        ending = (await line.over()).ending
        self.assertEqual(ending.reason, POWERED_OFF)
        self.assertEqual(ending.message, 'machine "default/m" powered itself off')

    async def test_late_event(self) -> None:
        """The last event of a QEMU counts although its end was noticed before."""
        self.patch(driver, "_QUIT_SECONDS", 600.0)
        line = await self.line(self.run_of(self.driver(program=self.double("late-shutdown"))))
        self.assertEqual((await line.over()).ending.reason, POWERED_OFF)

    async def test_does_not_end(self) -> None:
        """A QEMU that does not end when its machine is off is killed."""
        driver = self.driver(program=self.double("shutdown"))
        driver.off_seconds = 0.2
        line = await self.line(self.run_of(driver))
        self.assertEqual((await line.over()).ending.reason, POWERED_OFF)


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
    """Failures of a start."""

    starts = PROGRAMS

    def setUp(self) -> None:
        super().setUp()
        self.patch(driver, "_QUIT_SECONDS", 600.0)  # however late QEMU complains

    async def test_no_memory(self) -> None:
        """The message contains QEMU's error."""
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
        """QEMU's error message is read even if the control socket closes first."""
        program = os.path.join(self.directory, "qemu")
        with open(program, "w") as file:
            file.write(f"#!{sys.executable}\n{HANGS_UP_FIRST}")
        os.chmod(program, 0o755)
        with self.assertRaises(ServiceUnavailable) as caught:
            await self.line(self.run_of(self.driver(program=program)))
        self.assertEqual(
            caught.exception.message, "QEMU ended during its start: qemu: no BIOS at all"
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
        shared = SharedConsole(run, reactor)
        opened = shared.open()
        await self.until(lambda: self.leaders)
        shared.end(Ending(POWERED_OFF, "off"))
        await opened.addErrback(lambda _: None)
        await run.stop()
        self.assertEqual(self.alive(), [])


class GuestTests(QemuCase):
    """Events of the guest."""

    starts = PROGRAMS

    async def test_break_arrives(self) -> None:
        """BREAK reaches the guest's serial port."""
        run = self.run_of(self.driver())
        line = await self.line(run)
        await line.until(b"ok")
        run.send_break(250)
        await line.until(b"B")

    async def test_keys_after_break(self) -> None:
        """A key that follows BREAK arrives behind it, also if QEMU stands still meanwhile."""
        run = self.run_of(self.driver())
        line = await self.line(run)
        await line.until(b"ok")
        for count in range(1, 6):
            os.kill(self.leaders[0].pid, signal.SIGSTOP)
            run.send_break(1)
            line.transport.write(b"x")
            os.kill(self.leaders[0].pid, signal.SIGCONT)
            await line.until(b"Bx." * count)

    async def test_shut_down(self) -> None:
        """A guest that heeds the power button ends by itself, and is not said to have been cut."""
        run = self.run_of(self.driver(shutdown_seconds=3600.0))
        verifyObject(IShutdown, run)
        line = await self.line(run)
        line.transport.write(b"^")
        await line.until(b"^")
        await run.shut_down()
        self.assertEqual((await line.over()).ending.reason, POWERED_OFF)
        self.assertNotIn("ShutdownIgnored", self.reasons())

    async def test_shut_down_ignored(self) -> None:
        """A guest that does not shut down in time is reported and stopped."""
        run = self.run_of(self.driver(shutdown_seconds=0.05))
        line = await self.line(run)
        await run.shut_down()
        self.assertIn("ShutdownIgnored", self.reasons())
        line.transport.write(b"x")
        await line.until(b"x.")

    async def test_not_to_be_asked(self) -> None:
        """Without a time limit the machine does not support shutdown."""
        self.assertFalse(IShutdown.providedBy(self.run_of(self.driver())))

    async def test_panic(self) -> None:
        """A panic is reported and is not a power off: the machine restarts."""
        line = await self.line(self.run_of(self.driver()))
        await line.until(b"ok")
        line.transport.write(b"#")
        ending = (await line.over()).ending
        self.assertEqual(ending.reason, LINE_LOST)
        self.assertIn("the guest's system panicked", ending.message)
        self.assertIn("Panicked", self.reasons())

    async def test_reset(self) -> None:
        """A guest that restarts keeps its line."""
        self.patch(health, "_EVENT_INTERVAL_SECONDS", 3600.0)
        line = await self.line(self.run_of(self.driver()))
        await line.until(b"ok")
        for _ in range(3):
            line.got = b""
            line.transport.write(b"@")
            await line.until(b"ok")
        self.assertEqual(self.reasons().count("Reset"), 1)  # of many in a row

    async def test_line_is_lost(self) -> None:
        """A socket that is closed while the machine goes on is opened again, by itself."""
        run = self.run_of(self.driver())
        line = await self.line(run)
        await line.until(b"ok")
        line.transport.drop()
        await self.until(lambda: "LineReopened" in self.reasons())
        line.transport.write(b"y")
        await line.until(b"y.")
        self.assertEqual(line.lost, [])


class AcceleratorTests(QemuCase):
    """Tests for :class:`~twisted_exec.runtimes.qemu.accelerator.Accelerator`, through machines."""

    starts = PROGRAMS

    def setUp(self) -> None:
        super().setUp()
        self.patch(accelerator, "has_kvm", lambda: True)

    async def test_falls_back(self) -> None:
        """A machine that KVM cannot start is emulated immediately, and at the next start, too."""
        program = self.program(
            '#!/bin/sh\necho "$*" >> "$0.log"\ncase "$*" in *"-accel kvm"*)\n'
            "echo 'qemu-system-x86_64: failed to set MSR'; exit 1;; esac\n"
            'exec qemu-system-x86_64 "$@"\n'
        )
        driver = self.driver(program=program, accelerator=AUTO)
        driver.watch_seconds = 0.05
        for _ in range(2):
            run = self.run_of(driver)
            line = await self.line(run)
            await line.until(b"ok")
            await self.ask(run, "stop")
            await self.until(lambda: "Paused" in self.reasons())
            await run.stop()
        with open(f"{program}.log") as file:
            tried = ["kvm" if "-accel kvm" in words else "tcg" for words in file]
        self.assertEqual(tried, ["kvm", "tcg", "tcg"])
        (text,) = [message for _, reason, message in self.events if reason == "KVMFailed"]
        self.assertIn("failed to set MSR", text)

    async def test_not_at_fault(self) -> None:
        """A start that fails with emulation, too, is not a failure of KVM."""
        board = Board(memory_mib=1 << 30, firmware=self.rom())
        with self.assertRaises(ServiceUnavailable) as caught:
            await self.line(self.run_of(self.driver(board, accelerator=AUTO)))
        self.assertIn("Cannot allocate memory", caught.exception.message)
        self.assertEqual(self.reasons(), [])

    async def test_internal_error(self) -> None:
        """A guest that KVM cannot run ends the machine, and the next start emulates it."""
        driver = self.driver(program=self.double("internal-error"), accelerator=AUTO)
        line = await self.line(self.run_of(driver))
        ending = (await line.over()).ending
        self.assertEqual(ending.reason, LINE_LOST)
        self.assertIn("KVM cannot run this guest", ending.message)
        self.assertIn("KVMFailed", self.reasons())
        self.assertEqual(self.run_of(driver)._accelerator.choose(), TCG)

    async def test_internal_error_without_choice(self) -> None:
        """If the class requires KVM, the machine is suspended with a reason."""
        driver = self.driver(program=self.double("internal-error"), accelerator=KVM)
        await self.line(self.run_of(driver))
        await self.until(lambda: "InternalError" in self.reasons())
        self.assertEqual(self.changes[-1][:2], (pb.MACHINE_SUSPENDED, "InternalError"))


class MissingImageTests(QemuCase):
    """A machine that cannot have its disks."""

    async def test_missing_image(self) -> None:
        """A machine whose image is missing does not start, and says what to do."""
        images = os.path.join(self.directory, "images")
        os.mkdir(images)
        disk = pb.LocalDisk(image=pb.ImageSpec(image="debian.qcow2"))
        volume = pb.Volume(name="root", device="oda", local_disk=disk)
        driver = self.driver(disks=DiskOptions(images))
        with self.assertRaises(CannotStart) as caught:
            await self.line(self.run_of(driver, volumes=[volume]))
        self.assertEqual(caught.exception.condition, "ImageMissing")
        self.assertIn("copy it there", caught.exception.message)
        self.assertEqual(self.leaders, [])


class SecretTests(QemuCase):
    """The ignition."""

    starts = PROGRAMS

    async def test_ignition(self) -> None:
        """It reaches QEMU by a file that only we can read, and that is gone when it was read."""
        program = self.program(
            '#!/bin/sh\nfile=$(echo "$*" | sed "s/.*config,file=\\([^ ]*\\).*/\\1/")\n'
            'stat -c %a "$file" > "$0.mode"; cp "$file" "$0.seen"\nexec qemu-system-x86_64 "$@"\n'
        )
        run = self.run_of(self.driver(program=program), ignition_data=b'{"secret": 1}')
        await self.line(run)
        with open(f"{program}.mode") as mode, open(f"{program}.seen") as value:
            self.assertEqual((mode.read().strip(), value.read()), ("600", '{"secret": 1}'))
        self.assertNotIn("ignition", os.listdir(self.directory))
        with open(f"/proc/{self.leaders[0].pid}/cmdline", "rb") as file:
            self.assertNotIn(b"secret", file.read())
        self.assertNotIn("secret", repr(run._facts))

    async def test_never_started(self) -> None:
        """It is gone as well when QEMU never read it."""
        driver = self.driver(Board(firmware=self.rom(), memory_mib=1 << 30))
        run = self.run_of(driver, ignition_data=b"x")
        with self.assertRaises(ServiceUnavailable):
            await self.line(run)
        await run.stop()
        self.assertNotIn("ignition", os.listdir(self.directory))
