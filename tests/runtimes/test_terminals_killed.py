"""
Journals of terminals whose runtime is killed while they print: each byte, or a gap where it was.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

import tests
from tests import soak
from tests.flows.programs import start
from tests.tiers import PROGRAMS
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import Grant
from twisted_exec.journal.interfaces import EventKind
from twisted_exec.runtimes.processes import ProcessFamily
from twisted_exec.runtimes.service import MachineRuntime

from .printing_runtime import LINE_BYTES, make, reactor
from .support import end_keeper, pause

_STEPS = 12
"""Most steps of a runtime before it is killed."""
_MOMENT_SECONDS = 0.005
"""More than a read of each machine takes."""


class Lines:
    """
    Checks the output of a machine that prints numbered lines.

    :ivar lost: bytes that are missing where a gap was announced.
    """

    def __init__(self) -> None:
        self.lost = self.size = 0
        self._position: int | None = 0

    def add(self, data: bytes, *, is_behind_gap: bool) -> None:
        """
        Check what is between two gaps.

        :raises AssertionError: a byte is missing, or wrong.
        """
        newline = data.find(b"\n")
        if len(data) <= newline + LINE_BYTES or newline < 0:
            self._position = None  # too short to know where it was
            return
        first = int(data[newline + 1 :][: LINE_BYTES - 1]) * LINE_BYTES - newline - 1
        if self._position is not None:
            lost = first - self._position
            assert lost >= 0, "output is there twice"
            assert is_behind_gap or not lost, "output is missing at the beginning"
            self.lost += lost
        self.size += len(data)
        self._position = first + len(data)
        numbers = range(first // LINE_BYTES, self._position // LINE_BYTES + 1)
        expected = b"".join(b"%011d\n" % number for number in numbers)
        assert data == expected[first % LINE_BYTES :][: len(data)], "output is missing or wrong"


class KilledTests(TestCase):
    """Runtimes one after the other, each of which is killed at a moment of its own."""

    starts = PROGRAMS
    exact = True

    def setUp(self) -> None:
        self.seed = int(os.environ.get("SEED", str(random.getrandbits(32))))
        self.choice = random.Random(self.seed)
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.state = os.path.join(self.directory, "state")
        self.runtime: MachineRuntime | None = None
        self.addCleanup(lambda: Deferred.fromCoroutine(self.end()))

    async def end(self) -> None:
        """End the last runtime, and the machines, which outlive it."""
        runtime = self.runtime or make(self.state)
        if self.runtime is None:
            await runtime.prepare()
        mark = Path(self.state, "runtime-id").read_text().strip()
        await ProcessFamily(runtime._table, lambda found: found.startswith(f"{mark}/")).end()
        await runtime.stopService()
        await end_keeper(runtime._state.keeper)
        shutil.rmtree(runtime.directory, ignore_errors=True)

    async def kill_one(self) -> None:
        """Start a runtime, and kill it after some output."""
        program = start(
            [sys.executable, "-m", "tests.runtimes.printing_runtime", self.state, "9"],
            cwd=os.path.dirname(os.path.dirname(tests.__file__)),
            fork=False,
        )
        self.addCleanup(program.stop)
        steps = self.choice.randrange(1, _STEPS)
        await program.until(rb"up" + rb"\." * steps)
        moment = self.choice.random() * _MOMENT_SECONDS
        await deferLater(reactor, moment)  # wait: the step itself is always at the same place
        await program.stop(signal.SIGKILL)

    async def test_kills(self) -> None:
        """Nothing is lost, or the journal has a gap there, which readers see."""
        kills = soak.figure(self)
        for _ in range(kills):
            await self.kill_one()
        runtime = self.runtime = make(self.state)
        await runtime.prepare()
        runtime.startService()
        records = runtime.machines.records
        while any(each.state != pb.MACHINE_RUNNING for each in records):
            await pause()
        self.assertEqual(len(records), 9)
        gaps = size = lost = 0
        for record in records:
            lines, found = self.check(runtime, record.id)
            gaps, size, lost = gaps + found, size + lines.size, lost + lines.lost
        self.assertGreater(size, 9 * LINE_BYTES * kills)
        print(
            f"\nSEED={self.seed}: {kills} kills, {size} bytes compared, {lost} lost in {gaps} gaps"
        )

    def check(self, runtime: MachineRuntime, id: str) -> tuple[Lines, int]:
        """Compare the journal of a machine with what it has printed; count the gaps."""
        _, journal = runtime.read_log(Grant(id))
        end, offset, lines = journal.end, journal.start, Lines()
        gaps, is_behind_gap = list(journal.events(offset, end, EventKind.GAP)), False
        for gap in gaps:
            if gap.offset:  # at the beginning, readers look for it
                self.assertGreater(gap.data["end"], gap.offset)  # else they come upon it
                lines.add(_read(journal, offset, gap.offset), is_behind_gap=is_behind_gap)
            offset, is_behind_gap = gap.data["end"], True
        lines.add(_read(journal, offset, end), is_behind_gap=is_behind_gap)
        return lines, len(gaps)


def _read(journal: Any, offset: int, end: int) -> bytes:
    pieces = []
    while offset < end:
        pieces.append(journal.read(offset, end - offset))
        assert pieces[-1], f"there is no output at {offset}"
        offset += len(pieces[-1])
    return b"".join(pieces)
