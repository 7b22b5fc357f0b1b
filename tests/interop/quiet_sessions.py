"""
Two hundred quiet sessions for half an hour, or ``QUIET_SECONDS``, while others attack their chain.

The attacks are the rows of ``python -m tests.benchmarks fairness``, one after the other, each first
against a second chain and then against that of the sessions.  No session may be lost and no program
may grow; the waiting times are printed.
"""

from __future__ import annotations

import itertools
import os
import ssl
import threading
import time
from collections import defaultdict

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests import procfs
from tests.benchmarks.console import Console
from tests.benchmarks.fairness.attacks import ORDINARY
from tests.benchmarks.fairness.bench import HOPS, QUIET, Bench, MeasuredDeployment, Row, Run
from tests.benchmarks.fairness.quiet import median, percentile

SECONDS = float(os.environ.get("QUIET_SECONDS", "1800"))
SESSIONS = 200
MACHINES = 20
_VISIT_SECONDS = 0.1
_ECHO_SECONDS = 60.0
_GROWTH_BYTES = 48 << 20
"""How much a program may grow after the first attack of each kind, or half of the time."""


class Crowd(threading.Thread):
    """
    The quiet sessions.  Each types a few keys every 20 s, and reads until they come back.

    :ivar lost: what happened to sessions that ended or did not echo for a minute.
    :ivar milliseconds: how long the echoes took.
    """

    def __init__(self, chain: MeasuredDeployment) -> None:
        super().__init__(daemon=True)
        self.lost: list[str] = []
        self.milliseconds: list[float] = []
        self._stopped = threading.Event()
        for number in range(MACHINES):
            chain.run(f"{QUIET}-{number}", b"cat")
        self._sessions = [
            chain.opened(QUIET, f"{QUIET}-{number % MACHINES}") for number in range(SESSIONS)
        ]

    def run(self) -> None:
        for number in itertools.cycle(range(SESSIONS)):
            if self._stopped.wait(_VISIT_SECONDS):
                return
            try:
                self._visit(*self._sessions[number])
            except OSError as error:
                self.lost.append(f"session {number}: {error!r}")
                return

    def _visit(self, line: ssl.SSLSocket, console: Console) -> None:
        mark = os.urandom(4).hex().encode()
        line.settimeout(_ECHO_SECONDS)
        began = time.perf_counter()
        console.type(mark)
        console.until(mark)
        self.milliseconds.append((time.perf_counter() - began) * 1e3)

    def stop(self) -> None:
        """End the thread; then type once more into each session, after the attacks."""
        self._stopped.set()
        self.join()
        for number, (line, console) in enumerate(self._sessions):
            try:
                self._visit(line, console)
            except OSError as error:
                self.lost.append(f"session {number}, at the end: {error!r}")
            console.close()


class QuietSessionsTests(TestCase):
    """Two chains of three programs, both attacked in turn."""

    timeout = SECONDS * 2 + 900

    async def test_quiet_sessions(self) -> None:
        """All sessions last, and the programs' memory stays the same."""
        chain, other = (MeasuredDeployment(f"{self.mktemp()}-{name}") for name in ("own", "other"))
        for each in (chain, other):
            self.addCleanup(each.stop)
        await gatherResults([Deferred.fromCoroutine(each.prepare()) for each in (chain, other)])
        for number in range(MACHINES):
            await chain.create_machine(f"{QUIET}-{number}", "shell")
        await deferToThread(self.endure, chain, other)

    def endure(self, chain: MeasuredDeployment, other: MeasuredDeployment) -> None:
        """Attack until the time is over."""
        bench, crowd = Bench(chain, other), Crowd(chain)
        self.addCleanup(bench.close)
        crowd.start()
        memory = self.attack(bench, crowd, chain, other)
        crowd.stop()
        print(f"{len(crowd.milliseconds)} echoes of {SESSIONS} sessions, ms: ", end="")
        print(f"p50 {median(crowd.milliseconds):.1f}, p99 {percentile(crowd.milliseconds, 99):.1f}")
        self.assertEqual(crowd.lost, [])
        for hop, sizes in memory.items():
            settled = sizes[min(len(ORDINARY), len(sizes) // 2)]
            print(
                f"{hop}: {sizes[0] >> 20}, then {settled >> 20}, in the end {sizes[-1] >> 20} MiB"
            )
            self.assertLess(sizes[-1] - settled, _GROWTH_BYTES, hop)

    def attack(
        self, bench: Bench, crowd: Crowd, chain: MeasuredDeployment, other: MeasuredDeployment
    ) -> dict[str, list[int]]:
        """:return: each program's memory before the first and after each attack."""
        controls: dict[str, list[Run]] = defaultdict(list)
        attacks: dict[str, list[Run]] = defaultdict(list)
        memory: dict[str, list[int]] = {hop: [] for hop in HOPS}

        def weigh(after: str) -> None:
            for hop in HOPS:
                memory[hop].append(procfs.own_bytes(chain.pid(hop)))
            sizes = "".join(f"{memory[hop][-1] / (1 << 20):10.1f}" for hop in HOPS)
            print(f"{(time.monotonic() - began) / 60:7.1f}{sizes}  {after}", flush=True)

        print(f"\n{'minutes':>7}{''.join(f'{hop:>10}' for hop in HOPS)}  MiB after", flush=True)
        began = time.monotonic()
        weigh("the start")
        until = began + SECONDS
        for row in itertools.cycle(ORDINARY):
            if time.monotonic() > until or crowd.lost:
                break
            controls[row].append(bench.run(row, other))
            attacks[row].append(bench.run(row, chain))
            weigh(row)
        print(f"\n{Row.headings()}")
        for row in attacks:
            print(Row(row, controls[row], attacks[row]))
        return memory
