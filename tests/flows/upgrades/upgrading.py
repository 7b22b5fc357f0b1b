"""
A deployment whose runtime is replaced by successors, with machines that echo what is typed.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from twisted.internet.task import LoopingCall

from tests.flows.deployment import Deployment, pause
from tests.flows.programs import Program
from tests.runtimes.qemus import tiny_rom

ECHO = "echo"
"""Class of machines that print ``ok``, and each key with a dot behind it."""

_CLASSES = """
classes:
- name: echo
  driver: qemu
  firmware: {rom}
  capabilities: {{cpu: "1", memory: 16Mi}}
  quantity: 10
"""


class UpgradedDeployment(Deployment):
    """
    Three programs; the runtime's machines outlive it.

    :ivar pids: the processes of the runtime, the newest last.
    """

    fork = False

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        rom = self.directory.resolve() / "tiny.rom"
        rom.write_bytes(tiny_rom())
        self.configuration = _CLASSES.format(rom=rom)
        (self.directory / "runtime.yaml").write_text(self.configuration)

    async def start(self) -> None:
        await self.start_api()
        patience = "--handover-seconds=600", "--rejoin-seconds=600"
        await self.start_runtime("--keep-machines", *patience)
        await self.start_poollet()
        await self.create_class(ECHO, "16Mi")
        assert self.runtime.transport is not None
        self.pids = [int(self.runtime.transport.pid)]

    async def upgrade(self) -> None:
        """Replace the runtime."""
        start = len(self.runtime.output)
        os.kill(self.pids[-1], signal.SIGUSR2)
        match = await self.runtime.until(rb"process (\d+) has taken over", start=start)
        self.pids.append(int(match[1]))

    async def fail_to_upgrade(self) -> bytes:
        """Start a successor that fails, after it has the state; return what the runtime says."""
        path = self.directory / "runtime.yaml"
        path.write_text(self.configuration.replace("name: echo", "name: other"))
        start = len(self.runtime.output)
        os.kill(self.pids[-1], signal.SIGUSR2)
        match = await self.runtime.until(rb"this process goes on: ([^\n]*)", start=start)
        path.write_text(self.configuration)
        return match[1]

    def emulators(self) -> set[int]:
        """Return the processes of QEMU that run the machines."""
        rom = str(self.directory.resolve() / "tiny.rom").encode()
        found = set()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if entry.name.isdigit() and rom in words and b"qemu" in words[0]:
                    found.add(int(entry.name))
        return found

    async def until_ended(self, pid: int) -> None:
        """Fires when a process has ended."""
        while _is_alive(pid):
            await pause()

    async def stop(self) -> None:
        for pid in self.pids[1:]:
            if _is_alive(pid):
                os.kill(pid, signal.SIGTERM)
                await self.until_ended(pid)
        await super().stop()
        for pid in self.emulators():
            os.kill(pid, signal.SIGKILL)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Keys:
    """
    Types letters at a program in a terminal, and knows what the machine echoes.

    :ivar typed: all keys.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self.typed = bytearray()
        self._typing = LoopingCall(self._type)

    def start(self, interval_seconds: float = 0.02) -> None:
        self._typing.start(interval_seconds)

    def stop(self) -> None:
        if self._typing.running:
            self._typing.stop()

    def _type(self) -> None:
        number = len(self.typed)
        keys = b"%c%c" % (97 + number // 2 % 26, 65 + number // 52 % 26)
        self.typed += keys
        self._program.type(keys)

    async def leave(self) -> None:
        """End the client."""
        await self._program.stop()

    @property
    def echo(self) -> bytes:
        """What the machine prints after ``ok``."""
        return echo(bytes(self.typed))

    async def until_echoed(self) -> bytes:
        """Stop to type; return the output when the machine has echoed everything."""
        self.stop()
        start = self._program.output.index(self.echo[:4])
        while len(self._program.output) - start < len(self.echo):
            assert self._program.exit_code is None, self._program.output[-500:]
            await pause()
        return self._program.output[start:]


def echo(typed: bytes) -> bytes:
    """Return what a machine prints for these keys."""
    return b"".join(b"%c." % key for key in typed)
