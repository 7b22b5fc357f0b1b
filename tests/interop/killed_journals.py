"""
A runtime that is killed at random moments while nine pseudo-terminals print: each byte is in a journal, or in a gap.

``MOMENTS`` is the number of kills (20 without it), ``SEED`` repeats a run.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
from pathlib import Path

from tests.contracts.machine_runtime import machine
from tests.flows.outages.test_kept_shells import KeptShellCase
from tests.runtimes.support import pause
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.journal.interfaces import Event
from twisted_exec.journal.snapshot import Snapshot

from .faults import MOMENTS, SEED

_MACHINES = 9
_RUN_SECONDS = 0.05, 1.0
_PRINTER = """
import itertools, random, sys, time
for number in itertools.count():
    sys.stdout.write("%08d\\n" % number)
    if random.random() < 0.1:
        sys.stdout.flush()
        time.sleep(random.random() / 100)
"""
_CLASS = """
- name: printer
  driver: pty
  command: [{python}, {printer}]
  same_user: true
  capabilities: {{cpu: "1", memory: 16Mi}}
"""
_LINE = re.compile(rb"(?:^|\n)(\d{8})\r\n")
_LINE_BYTES = 10


class KilledJournalsTests(KeptShellCase):
    """Nine machines that print numbered lines."""

    timeout = 120 + 15 * MOMENTS

    def setUp(self) -> None:
        super().setUp()
        printer = Path(self.directory, "printer.py")
        printer.write_text(_PRINTER)
        with open(os.path.join(self.directory, "runtime.yaml"), "a") as file:
            file.write(_CLASS.format(python=sys.executable, printer=printer))

    async def test_moments(self) -> None:
        """Each byte is in its place, or a gap says that it may be missing."""
        print(f"\n{MOMENTS} kills, SEED={SEED}")
        chance = random.Random(SEED)
        program, client = await self.start("--keep-machines")
        for number in range(_MACHINES):
            wanted = machine(f"vm-{number}", "printer")
            await client.create_machine(pb.CreateMachineRequest(machine=wanted))
        for _ in range(MOMENTS):
            await self.until_all_run(client)
            until = time.monotonic() + chance.uniform(*_RUN_SECONDS)
            while time.monotonic() < until:
                await pause()
            await program.stop(signal.SIGKILL)
            client.stopService()
            program, client = await self.start("--keep-machines")
        await self.until_all_run(client)
        await program.stop()
        paths = [path for path in Path(self.state, "consoles").iterdir() if path.is_dir()]
        self.assertEqual(len(paths), _MACHINES)
        found = [self.check(path) for path in paths]
        size, gaps, jumps, missing = (sum(each) for each in zip(*found, strict=True))
        print(
            f"{size} bytes; {gaps} gaps, {jumps} of them with a jump; {missing} bytes are missing in gaps"
        )

    async def until_all_run(self, client: IRIClient) -> None:
        """Fires when all machines run."""
        while True:
            machines = (await client.list_machines(pb.ListMachinesRequest())).machines
            if [each.status.state for each in machines] == [pb.MACHINE_RUNNING] * _MACHINES:
                return
            await pause()

    def check(self, path: Path) -> tuple[int, int, int, int]:
        """Compare a journal with the lines; return bytes, gaps, gaps that leave out many offsets, and missing bytes."""
        pieces, gaps = [bytearray()], []
        for entry in Snapshot(str(path)).entries():
            if not isinstance(entry, Event):
                pieces[-1] += entry.data
            elif entry.kind == "gap":
                gaps.append(entry)
                pieces.append(bytearray())
        position = missing = 0
        for number, piece in enumerate(pieces):
            if not (line := _LINE.search(piece)):
                continue  # too short: what is missing around it counts as in one gap
            begin = int(line[1]) * _LINE_BYTES - line.start(1)
            expected = b"".join(
                b"%08d\r\n" % each
                for each in range(begin // _LINE_BYTES, (begin + len(piece)) // _LINE_BYTES + 1)
            )[begin % _LINE_BYTES :][: len(piece)]
            self.assertEqual(piece, expected, f"{path.name}, piece {number}")
            self.assertGreaterEqual(begin, position, "repeated output")
            if number == 0:
                self.assertEqual(begin, 0)
            missing += begin - position
            position = begin + len(piece)
        jumps = sum(each.data["end"] > each.offset + 1 for each in gaps)
        return sum(map(len, pieces)), len(gaps), jumps, missing
