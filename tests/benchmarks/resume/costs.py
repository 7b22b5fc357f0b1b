"""
Keys, output and memory of sessions that can be resumed or are rejoined, beside ordinary ones.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable

from tests import procfs
from tests.flows.resuming import CabledDeployment

from ..chain import run
from ..console import Console, user_context

WITHOUT = ("--rejoin-seconds=0",)
"""Options of the runtime that rejoins no streams."""

KEYS, KEY_ROUNDS = 60, 150
BULK_BYTES, BULK_ROUNDS = 64 << 20, 5
IDLE_SESSIONS, IDLE_ROUNDS = 40, 5
TYPED_BYTES, TYPISTS = 8 << 10, 4

HOPS = ("api", "poollet", "runtime")
RESUMABLE = "X-Twisted-Exec-Resume: marks\r\n"

ORDINARY, RESUMED, REJOINED, CONTROL = "ordinary", "resumable", "rejoined", "control"
QUIET, LOUD = "quiet", "loud"
MACHINES = (QUIET, LOUD, RESUMED, CONTROL)
_COMPARED = ((RESUMED, ORDINARY), (REJOINED, ORDINARY), (CONTROL, RESUMED))


class Bench:
    """
    Two deployments and their consoles.

    :param rejoins: its API server rejoins streams.
    :param plain: its API server does not.
    """

    def __init__(self, rejoins: CabledDeployment, plain: CabledDeployment) -> None:
        self._kinds = {
            ORDINARY: (plain, ""),
            RESUMED: (plain, RESUMABLE),
            REJOINED: (rejoins, ""),
            CONTROL: (rejoins, RESUMABLE),
        }

    def turns(self, rounds: int) -> list[str]:
        """Return the kinds of sessions, each so many times, in alternating order."""
        kinds_ = list(self._kinds)
        return [each for number in range(rounds) for each in kinds_[:: -1 if number % 2 else 1]]

    def open(self, kind: str, machine: str) -> Console:
        """Open a console."""
        deployment, headers = self._kinds[kind]
        return Console.open(deployment.port, user_context(deployment.pki), machine, headers)

    def run(self, machine: str, command: bytes) -> None:
        """Run a command in both machines of a name."""
        for kind in (ORDINARY, REJOINED):
            console = self.open(kind, machine)
            run(console, command)
            console.close()

    def cpu(self, kind: str) -> dict[str, float]:
        """Return the CPU seconds of each hop."""
        return {hop: procfs.exact_cpu_seconds(self._pid(kind, hop)) for hop in HOPS}

    def memory(self, kind: str) -> dict[str, int]:
        """Return the resident bytes of each hop."""
        return {hop: procfs.resident_bytes(self._pid(kind, hop)) for hop in HOPS}

    def _pid(self, kind: str, hop: str) -> int:
        pid = getattr(self._kinds[kind][0], hop).transport.pid
        assert isinstance(pid, int)
        return pid


class Figures:
    """Figures of each kind, by rounds."""

    def __init__(self) -> None:
        self._values: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, kind: str, value: float) -> None:
        """Add the value of a round."""
        self._values[kind].append(value)

    def report(self, title: str) -> None:
        """Print medians, and the ratios that matter."""
        medians = {kind: statistics.median(values) for kind, values in self._values.items()}
        told = ", ".join(f"{kind} {value:.4g}" for kind, value in medians.items())
        resume, rejoin, programs = (self._ratio(*pair) for pair in _COMPARED)
        # The other programs are slower or faster for reasons of their own.
        rejoin /= programs
        print(f"{title}: {told}; resume {resume:.2f}x, rejoin {rejoin:.2f}x", end="")
        print(f" (programs {programs:.2f}x)", flush=True)

    def _ratio(self, kind: str, base: str) -> float:
        pairs = zip(self._values[kind], self._values[base], strict=True)
        return statistics.median(each / other for each, other in pairs)


class CPU:
    """The CPU time of each hop, and of all of them."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._figures = {hop: Figures() for hop in ("all hops", *HOPS)}

    def add(
        self, kind: str, before: dict[str, float], after: dict[str, float], divisor: float
    ) -> None:
        """Add the seconds between two looks, divided by the amount of work."""
        spent = {hop: (after[hop] - before[hop]) / divisor for hop in HOPS}
        for hop, figures in self._figures.items():
            figures.add(kind, spent.get(hop, sum(spent.values())))

    def report(self) -> None:
        """Print all figures."""
        for hop, figures in self._figures.items():
            figures.report(f"{self._title}, {hop}")


def keys(bench: Bench) -> None:
    """A key and its way back."""
    trips, cpu = Figures(), CPU("CPU us of a key")
    consoles = {}
    for kind in bench.turns(1):
        # One viewer of each machine: a key comes back to all of them.
        machine = kind if kind in (RESUMED, CONTROL) else QUIET
        consoles[kind] = bench.open(kind, machine)
        run(consoles[kind], b"cat")
        _settle(consoles[kind])
    for kind in bench.turns(KEY_ROUNDS):
        console, times = consoles[kind], []
        before = bench.cpu(kind)
        for _ in range(KEYS):
            start = time.perf_counter()
            console.type(b"x")
            console.receive()
            times.append(time.perf_counter() - start)
        cpu.add(kind, before, bench.cpu(kind), KEYS / 1e6)
        trips.add(kind, statistics.median(times) * 1e6)
    for console in consoles.values():
        console.close()
    trips.report("us round trip of a key")
    cpu.report()


def _settle(console: Console) -> None:
    """Read what earlier rounds have typed."""
    mark = os.urandom(8).hex().encode()
    console.type(mark)
    console.until(mark)


def output(bench: Bench) -> None:
    """Output as fast as possible."""
    speed, cpu = Figures(), CPU("CPU ms of a GB of output")
    for kind in bench.turns(BULK_ROUNDS):
        console = bench.open(kind, LOUD)
        before = bench.cpu(kind)
        begun = run(console, b"head -c %d /dev/zero; stty sane" % BULK_BYTES)
        start = time.perf_counter()
        behind = console.count(BULK_BYTES, begun)
        speed.add(kind, BULK_BYTES / (time.perf_counter() - start) / 1e6)
        console.until(b"# ", behind)
        cpu.add(kind, before, bench.cpu(kind), BULK_BYTES / 1e12)
        console.close()
    speed.report("MB/s of output")
    cpu.report()


def memory(bench: Bench) -> None:
    """Idle sessions."""
    opened = [bench.open(kind, QUIET) for kind in bench.turns(5)]
    grown: dict[str, dict[str, float]] = {}
    for kind in bench.turns(IDLE_ROUNDS):
        before = bench.memory(kind)
        sessions = [bench.open(kind, QUIET) for _ in range(IDLE_SESSIONS)]
        for console in sessions:
            console.receive()
        opened += sessions  # freed memory would be used for the next ones
        for hop, size in bench.memory(kind).items():
            hops = grown.setdefault(kind, dict.fromkeys(HOPS, 0.0))
            hops[hop] += (size - before[hop]) / IDLE_SESSIONS / IDLE_ROUNDS / 1024
    for kind, hops in grown.items():
        told = ", ".join(f"{hop} {size:.1f}" for hop, size in hops.items())
        print(f"KiB of an idle session, {kind}: {told}; all hops {sum(hops.values()):.1f}")
    for console in opened:
        console.close()


def typed(bench: Bench) -> None:
    """Memory of sessions whose users have typed much, a key at a time."""
    bench.run(QUIET, b"cat >/dev/null")
    consoles = []
    for kind in (ORDINARY, REJOINED):
        consoles += [bench.open(kind, QUIET) for _ in range(TYPISTS)]
        before = bench.memory(kind)
        for console in consoles[-TYPISTS:]:
            for _ in range(TYPED_BYTES):
                console.type(b"x")
        grown = {hop: size - before[hop] for hop, size in bench.memory(kind).items()}
        told = ", ".join(f"{hop} {size / TYPISTS / 1024:.0f}" for hop, size in grown.items())
        print(f"KiB more after {TYPED_BYTES >> 10} KiB of keys, {kind}: {told}", flush=True)
    for console in consoles:
        console.close()


PARTS: dict[str, Callable[[Bench], None]] = {
    "memory": memory,
    "keys": keys,
    "output": output,
    "input": typed,
}
