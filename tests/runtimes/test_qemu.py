"""
Tests for :mod:`twisted_exec.runtimes.qemu`, with real virtual machines.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from twisted.internet import reactor
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.contracts.console import ConsoleContract, Line
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.console.session import LineEnded, Session
from twisted_exec.runtimes.qemu import FIRMWARE, QemuDriver, QemuOptions, QemuRun, arguments
from twisted_exec.streaming.interfaces import LINE_LOST, POWERED_OFF, Ending, TerminalSize

from .support import RuntimeCase

# Firmware that prints "ok", then echoes what comes by the serial port with a dot behind it, and powers
# off at "!".  It stands in for U-Boot where a boot of eight seconds would not show more.  Assembled
# by GNU as from (``.code16``):
#
#           mov $'o', %al ; call put ; mov $'k', %al ; call put
#     more: mov $0x3fd, %dx ; in %dx, %al ; test $1, %al ; jz more
#           mov $0x3f8, %dx ; in %dx, %al ; cmp $'!', %al ; je off
#           call put ; mov $'.', %al ; call put ; jmp more
#     put:  mov %al, %ah ; mov $0x3fd, %dx
#     wait: in %dx, %al ; test $0x20, %al ; jz wait
#           mov %ah, %al ; mov $0x3f8, %dx ; out %al, %dx ; ret
#     off:  mov $0xcf8, %dx ; mov $0x80000b40, %eax ; out %eax, %dx  (PIIX4: where its
#           mov $0xcfc, %dx ; mov $0x601, %eax ; out %eax, %dx        power management is,
#           mov $0xcf8, %dx ; mov $0x80000b80, %eax ; out %eax, %dx
#           mov $0xcfc, %dx ; mov $1, %al ; out %al, %dx              switched on,
#           mov $0x604, %dx ; mov $0x2000, %ax ; out %ax, %dx ; hlt   and told to sleep)
_CODE = bytes.fromhex(
    "b06fe81f00b06be81a00bafd03eca80174f8baf8"
    "03ec3c21741be80700b02ee80200ebe688c4bafd"
    "03eca82074fb88e0baf803eec3baf80c66b8400b"
    "008066efbafc0c66b80106000066efbaf80c66b8"
    "800b008066efbafc0cb001eeba0406b80020eff4"
)


def tiny_rom() -> bytes:
    """64 KiB of firmware: the code above, and a jump to it where the processor begins."""
    rom = bytearray(b"\xf4" * 0x10000)
    rom[0 : len(_CODE)] = _CODE
    rom[0xFFF0:0xFFF5] = bytes.fromhex("ea 00 00 00 f0")  # jmp f000:0000
    return bytes(rom)


class QemuCase(RuntimeCase):
    """Runs virtual machines, with a tiny firmware unless a test asks for U-Boot."""

    skip = needs.qemu()

    def driver(self, **options: Any) -> QemuDriver:
        if "firmware" not in options:
            options["firmware"] = os.path.join(self.directory, "tiny.rom")
            with open(options["firmware"], "wb") as file:
                file.write(tiny_rom())
        return QemuDriver(QemuOptions(**options), reactor, self.table)

    def run_of(self, driver: QemuDriver, id: str = "m") -> QemuRun:
        run = driver.run(self.facts(id))
        self.addCleanup(run.stop)
        return run

    async def line(self, run: QemuRun) -> Line:
        found: Line = await run.connect(Factory.forProtocol(Line))
        return found


class ContractTests(ConsoleContract, QemuCase):
    """A QEMU machine is a console."""

    provoke = b"x"
    answer = b"x."
    first_words = b"ok"

    def make_console(self) -> QemuRun:
        return self.driver().run(self.facts())

    def clean(self, console: QemuRun) -> Any:
        return console.stop()


class BootTests(QemuCase):
    """The real firmware."""

    async def test_u_boot(self) -> None:
        """U-Boot comes up to its prompt by itself, obeys, and idles without burning a core."""
        run = self.run_of(self.driver(firmware=FIRMWARE))
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
        run = self.run_of(self.driver(memory_mib=1 << 30))
        with self.assertRaises(ServiceUnavailable) as caught:
            await self.line(run)
        self.assertIn("Cannot allocate memory", caught.exception.message)

    async def test_bad_firmware(self) -> None:
        """So it is when it goes by its short name, behind a warning."""
        firmware = os.path.join(self.directory, "bad.rom")
        with open(firmware, "wb") as file:
            file.write(b"not a ROM")
        with self.assertRaises(ServiceUnavailable) as caught:
            await self.line(self.run_of(self.driver(firmware=firmware)))
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

    def test_missing(self) -> None:
        """What is missing is named with its Debian package."""
        driver = self.driver(program="qemu-system-none", firmware="/nonexistent.rom")
        self.assertEqual(
            driver.missing(),
            "this host has no qemu-system-none (Debian package qemu-system-x86)"
            " and no /nonexistent.rom (Debian package u-boot-qemu)",
        )
        self.assertEqual(self.driver(firmware=FIRMWARE).missing(), "")

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
        program = os.path.join(self.directory, "qemu")
        with open(program, "w") as file:
            file.write("#!/bin/sh\nexec sleep 1000\n")
        os.chmod(program, 0o755)
        driver = self.driver(program=program)
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


class ArgumentsTests(SynchronousTestCase):
    """Tests for :func:`arguments`."""

    def test_machine(self) -> None:
        """Emulated, by one thread, asleep when idle; no network, no disk, no display."""
        words = " ".join(arguments(QemuOptions(), "qemu", "/r/s", "/r/c"))
        for wanted in (
            "-accel tcg,thread=single",
            "-icount shift=6,align=on,sleep=on",
            "-nic none",
            "-nodefaults",
            "-display none",
            "-m 128M",
            "-sandbox on,",
            "path=/r/s,server=on,wait=off",
        ):
            self.assertIn(wanted, words)
        self.assertNotIn("kvm", words)

    def test_comma(self) -> None:
        """A path with a comma does not become an option."""
        words = arguments(QemuOptions(), "qemu", "/a,b/s", "/c")
        self.assertIn("socket,id=serial0,path=/a,,b/s,server=on,wait=off", words)

    def test_size_is_ignored(self) -> None:
        """A serial port has no size; a call with one does nothing."""
        QemuRun.window_changed(object.__new__(QemuRun), TerminalSize(80, 24))
