"""
Support for tests of QEMU machines: a tiny firmware, a class with it, a machine.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

from twisted.internet import reactor
from twisted.internet.protocol import Factory

from tests import needs
from twisted_exec.runtimes.interfaces import MachineFacts
from twisted_exec.runtimes.qemu import disks
from twisted_exec.runtimes.qemu.command_line import Board
from twisted_exec.runtimes.qemu.driver import QemuDriver, QemuOptions, QemuRun
from twisted_exec.testing.drivers import Line

from .support import RuntimeCase

# Firmware that prints "ok", then echoes what comes by the serial port with a dot behind it.  It stands
# in for U-Boot where a boot of eight seconds would not show more.  These keys do something instead:
#
#   !  power off                      ^  do so when the power button is pressed
#   #  tell QEMU that it panicked     -  let go of all cards      @  reset
#
# BREAK is answered with B.  Assembled by GNU as; the power management is that of the PIIX4 (0xcf8:
# where it is, and on):
#
#         mov $'o', %al ; call put ; mov $'k', %al ; call put
#   more: mov $0x3fd, %dx ; in %dx, %al ; test $0x10, %al ; jnz break ; test $1, %al ; jz more
#         mov $0x3f8, %dx ; in %dx, %al
#         cmp $'!', %al ; je off
#         cmp $'^', %al ; je armed
#         cmp $'#', %al ; je panic
#         cmp $'-', %al ; je eject
#         cmp $'@', %al ; je reset
#         call put ; mov $'.', %al ; call put ; jmp more
#   put:  mov %al, %ah ; mov $0x3fd, %dx
#   wait: in %dx, %al ; test $0x20, %al ; jz wait
#         mov %ah, %al ; mov $0x3f8, %dx ; out %al, %dx ; ret
#   pm:   mov $0xcf8, %dx ; mov $0x80000b40, %eax ; out %eax, %dx
#         mov $0xcfc, %dx ; mov $0x601, %eax ; out %eax, %dx
#         mov $0xcf8, %dx ; mov $0x80000b80, %eax ; out %eax, %dx
#         mov $0xcfc, %dx ; mov $1, %al ; out %al, %dx ; ret
#   off:  call pm ; mov $0x604, %dx ; mov $0x2000, %ax ; out %ax, %dx ; hlt
#   armed: call pm ; mov $0x602, %dx ; mov $0x100, %ax ; out %ax, %dx ; mov $'^', %al ; call put
#   press: mov $0x600, %dx ; in %dx, %ax ; test $0x100, %ax ; jz press ; jmp off
#   panic: mov $0x505, %dx ; mov $1, %al ; out %al, %dx ; jmp more
#   eject: mov $0xae10, %dx ; xor %eax, %eax ; out %eax, %dx
#         mov $0xae08, %dx ; mov $1, %eax
#   slot: out %eax, %dx ; shl $1, %eax ; jnz slot
#         mov $'-', %al ; call put ; jmp more
#   reset: mov $0xcf9, %dx ; mov $6, %al ; out %al, %dx ; hlt
#   break: mov $0x3f8, %dx ; in %dx, %al ; mov $'B', %al ; call put ; jmp more
_CODE = bytes.fromhex(
    "b06fe83700b06be83200bafd03eca8100f85b600"
    "a80174f2baf803ec3c2174553c5e745c3c237472"
    "3c2d74773c400f849100e80700b02ee80200ebce"
    "88c4bafd03eca82074fb88e0baf803eec3baf80c"
    "66b8400b008066efbafc0c66b80106000066efba"
    "f80c66b8800b008066efbafc0cb001eec3e8d5ff"
    "ba0406b80020eff4e8caffba0206b80001efb05e"
    "e8adffba0006eda9000174f7ebdbba0505b001ee"
    "e967ffba10ae6631c066efba08ae66b801000000"
    "66ef66d1e075f9b02de87cffe947ffbaf90cb006"
    "eef4baf803ecb042e869ffe934ff"
)

# Firmware that prints 00000000, 00000001 and so on, a line each, without end.  Assembled by GNU as:
#
#         xor %ebx, %ebx
#   next: mov $8, %cx
#   digit: rol $4, %ebx ; mov %bl, %al ; and $15, %al ; add $'0', %al
#         cmp $'9', %al ; jbe put ; add $39, %al
#   put:  mov %al, %ah ; mov $0x3fd, %dx
#   wait: in %dx, %al ; test $0x20, %al ; jz wait
#         mov %ah, %al ; mov $0x3f8, %dx ; out %al, %dx
#         test %cx, %cx ; jz line ; dec %cx ; jnz digit
#         mov $'\n', %al ; jmp put
#   line: inc %ebx ; mov $20000, %ecx
#   rest: dec %ecx ; jnz rest ; jmp next
COUNTER = bytes.fromhex(
    "6631dbb9080066c1c30488d8240f04303c397602042788c4bafd03eca820"
    "74fb88e0baf803ee85c974074975d9b00aebe5664366b9204e0000664975"
    "fcebc4"
)

# Firmware that prints 00000000, 00000001 and so on, a line each, without end, and each key as two bytes
# between two lines: = and the key.  Assembled by GNU as:
#
#         xor %ebx, %ebx
#   next: mov $8, %cx
#   digit: rol $4, %ebx ; mov %bl, %al ; and $15, %al ; add $'0', %al
#         cmp $'9', %al ; jbe show ; add $39, %al
#   show: call put ; loop digit
#         mov $'\n', %al ; call put ; inc %ebx ; mov $2000, %si
#   rest: mov $0x3fd, %dx ; in %dx, %al ; test $1, %al ; jz idle
#         mov $'=', %al ; call put ; mov $0x3f8, %dx ; in %dx, %al ; call put
#   idle: dec %si ; jnz rest ; jmp next
#   put:  as above
TYPED_COUNTER = bytes.fromhex(
    "6631dbb9080066c1c30488d8240f04303c3976020427e82500e2ebb00ae8"
    "1e006643bed007bafd03eca801740cb03de80c00baf803ece805004e75e9"
    "ebc588c4bafd03eca82074fb88e0baf803eec3"
)


def tiny_rom() -> bytes:
    """64 KiB of firmware with the code above."""
    return boot_rom(_CODE)


def editor_rom() -> bytes:
    """The same firmware, which first switches to an editor's screen."""
    rom, at, put = bytearray(tiny_rom()), 0x400, 0x3C
    rom[0xFFF1:0xFFF3] = at.to_bytes(2, "little")
    for character in b"\x1b[?1049h":
        # mov $character, %al ; call put
        rom[at : at + 5] = bytes((0xB0, character, 0xE8)) + (put - at - 5 & 0xFFFF).to_bytes(
            2, "little"
        )
        at += 5
    rom[at : at + 3] = b"\xe9" + (-at - 3 & 0xFFFF).to_bytes(2, "little")  # jmp 0
    return bytes(rom)


def boot_rom(code: bytes) -> bytes:
    """64 KiB of firmware: the code, and a jump to it where the processor begins."""
    rom = bytearray(b"\xf4" * 0x10000)
    rom[0 : len(code)] = code
    rom[0xFFF0:0xFFF5] = bytes.fromhex("ea 00 00 00 f0")  # jmp f000:0000
    return bytes(rom)


class QemuCase(RuntimeCase):
    """Runs virtual machines, with a tiny firmware unless a test asks for another."""

    skip = needs.qemu()

    def rom(self) -> str:
        path = os.path.join(self.directory, "tiny.rom")
        with open(path, "wb") as file:
            file.write(tiny_rom())
        return path

    def driver(self, board: Board | None = None, **options: Any) -> QemuDriver:
        if board is None:
            board = Board(firmware=self.rom())
        return QemuDriver(QemuOptions(board=board, **options), reactor, self.table)

    def facts(self, id: str = "m", **more: Any) -> MachineFacts:
        return replace(
            super().facts(id),
            storage=os.path.join(self.directory, f"storage-{id}"),
            changed=lambda *arguments: self.changes.append(arguments),
            **more,
        )

    def setUp(self) -> None:
        super().setUp()
        self.changes: list[tuple[int, str, str]] = []
        for name in ("start_seconds", "answer_seconds", "unplug_seconds"):
            self.patch(QemuDriver, name, 600.0)  # however slow this machine is
        self.patch(disks, "_TOOL_SECONDS", 600.0)

    def run_of(self, driver: QemuDriver, id: str = "m", **more: Any) -> QemuRun:
        run = driver.run(self.facts(id, **more))
        assert isinstance(run, QemuRun)
        self.addCleanup(run.stop)
        return run

    async def line(self, run: QemuRun) -> Line:
        line: Line = await run.connect(Factory.forProtocol(Line))
        return line

    async def ask(self, run: QemuRun, command: str, **arguments: Any) -> Any:
        """Send a command on the control socket, which is the runtime's alone."""
        return await run._ask(command, **arguments)

    def program(self, text: str) -> str:
        """A program of this text instead of QEMU."""
        path = os.path.join(self.directory, "qemu")
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def double(self, state: str) -> str:
        """A program that is a QEMU in this state."""
        double = os.path.join(os.path.dirname(__file__), "qemu_double.py")
        return self.program(f'#!/bin/sh\nexec "{sys.executable}" "{double}" {state} "$@"\n')

    def reasons(self) -> list[str]:
        """The reasons of all Events."""
        return [reason for _, reason, _ in self.events]
