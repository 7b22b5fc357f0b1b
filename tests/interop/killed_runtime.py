"""
A runtime that is killed or stopped at random moments, under load in both directions, while its machine goes on.

``MOMENTS`` is the number of faults (20 without it), ``SEED`` repeats a run.  The machine is a QEMU whose
firmware prints numbered lines, and shows each key that it gets.  All of the output arrives, although
nobody reads it meanwhile.  Of the input a part may be lost each time that the runtime is killed: what arrives is a
prefix of what was typed, and the client counts the keys that may be lost.  Connections and the poollet fail as well.
"""

from __future__ import annotations

import os
import random
import re
from dataclasses import replace
from functools import partial
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows.deployment import gone
from tests.flows.resuming import CabledDeployment, Typist
from tests.runtimes.qemus import TYPED_COUNTER, boot_rom
from twisted_exec.api import kinds
from twisted_exec.runtimes.processes import ProcessFamily, ProcessTable
from twisted_exec.runtimes.service import MARK
from twisted_exec.wire.stream_options import CONSOLE, StreamOptions

from .faults import MOMENTS, SEED, Faults
from .numbered import Stream, Typed, WrongBytesError, typed_line

reactor: Any = _reactor

_CLASSES = """\
classes:
- name: vm
  driver: qemu
  firmware: {rom}
  accelerator: icount
  shutdown_seconds: 0
  capabilities: {{cpu: "1", memory: 16Mi}}
"""
_PART = re.compile(rb"=(.)|([^=]+)", re.DOTALL)
_CALM_BYTES = 1000


class Viewer(Typist):
    """
    A user who checks the output of the machine.

    :ivar counter: the lines.
    :ivar keys: those that the machine has shown.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counter = Stream(lambda number: b"%08x\n" % number)
        self.keys = bytearray()
        self._half = b""

    def data_received(self, data: bytes) -> None:
        data = self._half + data
        self._half = b"=" if data.endswith(b"=") else b""
        parts = _PART.findall(data)
        try:
            self.counter.add(b"".join(line for _, line in parts))
            self.keys_received(b"".join(key for key, _ in parts))
        except WrongBytesError as problem:
            self.detached_with = self.detached_with or str(problem)

    def keys_received(self, keys: bytes) -> None:
        """Handle keys that the machine has shown."""
        self.keys += keys


class Writer(Viewer):
    """
    The user who types.  After a loss of keys this user begins another numbering.

    :ivar typed: the keys that have arrived, checked.
    :ivar lines: how many lines were typed, by numbering.
    :ivar dropped: how many keys may be lost, by numbering.
    """

    def __init__(self) -> None:
        super().__init__()
        self.typed = Typed()
        self.typed.typists = 1
        self.lines, self.dropped = [0], [0]

    def _type(self) -> None:
        if not self._paused:
            typist = len(self.lines) - 1
            self.stream.write(typed_line(typist, self.lines[typist]))
            self.lines[typist] += 1

    def resumed(self, seconds: float, uncertain: int, unsent: int) -> None:
        super().resumed(seconds, uncertain, unsent)
        if uncertain:
            self.dropped[-1] += uncertain
            self.dropped.append(0)
            self.lines.append(0)
            self.typed.typists += 1

    def keys_received(self, keys: bytes) -> None:
        super().keys_received(keys)
        self.typed.add(keys)

    @property
    def arrived(self) -> int:
        """How many keys of the present numbering have arrived."""
        return self.typed.arrived(len(self.lines) - 1)


class KilledRuntimeTests(TestCase):
    """One virtual machine, a writer and an observer."""

    timeout = 300 + 15 * MOMENTS
    skip = needs.qemu()

    async def test_moments(self) -> None:
        """Output is exact; input is a prefix, and the number of uncertain keys covers what is missing."""
        faults = Faults(
            await self.start(), random.Random(SEED), ("near", "far"), ("poollet",), None
        )
        for name, actions in (
            ("kill runtime", [self.kill_runtime]),
            ("reset near, kill runtime", [self.deployment.near.cut, self.kill_runtime]),
            ("kill runtime, reset near", [self.kill_runtime, self.deployment.near.cut]),
            ("end runtime", [self.end_runtime]),
        ):
            faults.add(name, 20, partial(self.all_of, actions))
        self.addCleanup(faults.report)
        print(f"\n{MOMENTS} moments, SEED={SEED}")
        for _ in range(MOMENTS):
            before = len(self.writer.seconds)
            name = await faults.next()
            await self.calm()
            faults.took(name, self.writer.seconds[before:])
        faults.compared = await self.compare()

    async def start(self) -> CabledDeployment:
        """Start everything."""
        deployment = self.deployment = CabledDeployment(
            self.mktemp(), runtime_options=["--keep-machines"]
        )
        self.addCleanup(deployment.stop)
        self.addCleanup(self.end_machines)
        rom = deployment.path("counter.rom")
        with open(rom, "wb") as file:
            file.write(boot_rom(TYPED_COUNTER))
        classes = _CLASSES.format(rom=os.path.realpath(rom))
        (deployment.directory / "runtime.yaml").write_text(classes)
        await deployment.start_programs()
        await deployment.create_class("vm", "16Mi")
        await deployment.create_machine("vm", "vm")
        self.writer = await self.user("ada", Writer, CONSOLE)
        # A runtime that was restarted does not know who the writer was.
        self.observer = await self.user("bob", Viewer, replace(CONSOLE, read_only=True))
        self.writer.type_on(0.02)
        return deployment

    async def user(self, name: str, role: Any, options: StreamOptions) -> Any:
        """Open the console as a user."""
        user = await role.at(self.deployment.through_cable(name), "vm", options=options)
        self.addCleanup(user.leave)
        return user

    async def end_machines(self) -> None:
        """End the virtual machine, which outlives its runtime."""
        with open(self.deployment.path("runtime-state/runtime-id")) as file:
            mark = file.read().strip() + "/"
        table = ProcessTable(reactor, MARK)
        await ProcessFamily(table, lambda found: found.startswith(mark)).end()

    async def kill_runtime(self) -> None:
        """Kill the runtime, and start it again."""
        await self.deployment.restart("runtime")

    async def end_runtime(self) -> None:
        """Stop the runtime, and start it again: no key is lost."""
        before = len(self.writer.seconds)
        await self.deployment.restart("runtime", kill=False)
        await self.writer.until_resumed(before + 1)
        self.assertEqual(self.writer.uncertain[before:], [0])

    async def all_of(self, actions: list[Any]) -> None:
        """Run actions one after the other."""
        for action in actions:
            if (waiting := action()) is not None:
                await waiting

    async def calm(self) -> None:
        """Fires when bytes pass in both directions, for both users."""
        for user in (self.writer, self.observer):
            size = user.counter.size
            await user.until(lambda user=user, size=size: user.counter.size > size + _CALM_BYTES)
        typist, arrived = len(self.writer.lines), self.writer.arrived
        await self.writer.until(
            lambda: len(self.writer.lines) > typist or self.writer.arrived > arrived + 32
        )

    async def compare(self) -> tuple[int, int]:
        """Compare both directions; return how many bytes of output and input are equal."""
        writer, observer = self.writer, self.observer
        writer.stop_typing()
        await writer.until(lambda: writer.arrived == 16 * writer.lines[-1])
        await observer.until(lambda: len(observer.keys) >= len(writer.keys))
        self.assertEqual(observer.keys, writer.keys)
        for user in (writer, observer):
            user.counter.report("output")
            self.assertEqual(user.gaps, [])
        missing = 0
        for typist, lines in enumerate(writer.lines):
            lost = 16 * lines - writer.typed.arrived(typist)
            self.assertLessEqual(lost, writer.dropped[typist])
            missing += lost
        print(
            f"input: {len(writer.keys)} keys arrived, {missing} are missing, {sum(writer.dropped)} were said to be "
            f"uncertain, on {len(writer.lines) - 1} occasions"
        )
        self.assertEqual(self.deployment.errors(), [])
        machines = kinds.MACHINES.resource
        await self.deployment.client.delete(machines, "vm", "default")
        await gone(self.deployment.client, machines, "vm", "default")
        return writer.counter.size + observer.counter.size, len(writer.keys)
