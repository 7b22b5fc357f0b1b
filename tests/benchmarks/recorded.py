"""
A recorded console beside one that is not recorded: keys, output, and the memory of idle sessions.

One deployment has two machines of each kind, and the recordings contain all input.  Figures are
medians of rounds in alternating order.  ``python -m tests.benchmarks recorded`` takes two minutes.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from pathlib import Path

from twisted.internet.threads import deferToThread

from tests import procfs
from tests.flows.deployment import Deployment, pause, run_reactor
from twisted_exec.api import kinds

from .chain import run
from .console import Console, user_context

RECORDINGS = kinds.CONSOLERECORDINGS.resource
WAYS = ("plain", "recorded")
HOPS = ("api", "poollet", "runtime")
KEYS, KEY_ROUNDS = 60, 100
BULK_BYTES, BULK_ROUNDS = 64 << 20, 5
IDLE_SESSIONS, IDLE_ROUNDS = 40, 3

Figures = defaultdict[str, list[float]]


class RecordingDeployment(Deployment):
    """Three programs, whose runtime can record consoles."""

    async def start_runtime(self, *options: str) -> None:
        pair = self.pki.issue_recorder("host-a", replace=True)
        recorder = (f"--recorder-certificate={pair.certificate}", f"--recorder-key={pair.key}")
        await super().start_runtime(*recorder, *options)


def main(directory: Path) -> None:
    """Run the benchmark."""

    async def measured() -> None:
        deployment = RecordingDeployment(str(directory))
        try:
            await deployment.start()
            for way in WAYS:
                for use in ("quiet", "loud", "idle"):
                    await deployment.create_machine(f"{way}-{use}", "shell")
            for use in ("quiet", "loud", "idle"):
                await record(deployment, f"recorded-{use}")
            await deferToThread(measure, deployment)
        finally:
            await deployment.stop()

    run_reactor(measured)


async def record(deployment: Deployment, machine: str) -> None:
    """Record a machine's console; fires once it is recorded."""
    body = {"metadata": {"name": machine}, "spec": {"machine": machine, "input": "all"}}
    await deployment.client.create(RECORDINGS, body, "default")
    while True:
        recording = await deployment.client.get(RECORDINGS, machine, "default")
        if recording.get("status", {}).get("phase") == "Recording":
            return
        await pause()


def measure(deployment: Deployment) -> None:
    """Print all figures."""
    for way in WAYS:
        for use in ("quiet", "loud", "idle"):
            opened(deployment, f"{way}-{use}").close()  # the first session fills caches
    keys(deployment)
    output(deployment)
    idle(deployment)


def opened(deployment: Deployment, machine: str) -> Console:
    """Open a console."""
    return Console.open(deployment.port, user_context(deployment.pki), machine)


def turns(rounds: int) -> list[str]:
    """Return the ways, each so many times, in alternating order."""
    return [way for number in range(rounds) for way in WAYS[:: -1 if number % 2 else 1]]


def cpu(deployment: Deployment) -> float:
    """Return the CPU seconds of all hops."""
    return sum(procfs.exact_cpu_seconds(pid(deployment, hop)) for hop in HOPS)


def memory(deployment: Deployment) -> float:
    """Return the resident KiB of all hops."""
    return sum(procfs.resident_bytes(pid(deployment, hop)) for hop in HOPS) / 1024


def pid(deployment: Deployment, hop: str) -> int:
    """Return the process of a hop."""
    number = getattr(deployment, hop).transport.pid
    assert isinstance(number, int)
    return number


def report(title: str, figures: Figures) -> None:
    """Print the medians, and their ratio."""
    plain, recorded = (statistics.median(figures[way]) for way in WAYS)
    print(
        f"{title}: plain {plain:.4g}, recorded {recorded:.4g} ({recorded / plain:.2f}x)", flush=True
    )


def keys(deployment: Deployment) -> None:
    """A key and its way back."""
    trips, spent = Figures(list), Figures(list)
    consoles = {way: opened(deployment, f"{way}-quiet") for way in WAYS}
    for console in consoles.values():
        run(console, b"cat")
    for way in turns(KEY_ROUNDS):
        console, times = consoles[way], []
        before = cpu(deployment)
        for _ in range(KEYS):
            start = time.perf_counter()
            console.type(b"x")
            console.receive()
            times.append(time.perf_counter() - start)
        spent[way].append((cpu(deployment) - before) / KEYS * 1e6)
        trips[way].append(statistics.median(times) * 1e6)
    for console in consoles.values():
        console.close()
    report("us round trip of a key", trips)
    report("us of CPU of a key, all hops", spent)


def output(deployment: Deployment) -> None:
    """Output as fast as possible."""
    speed, spent = Figures(list), Figures(list)
    for way in turns(BULK_ROUNDS):
        console = opened(deployment, f"{way}-loud")
        before = cpu(deployment)
        begun = run(console, b"head -c %d /dev/zero; stty sane" % BULK_BYTES)
        start = time.perf_counter()
        behind = console.count(BULK_BYTES, begun)
        speed[way].append(BULK_BYTES / (time.perf_counter() - start) / 1e6)
        console.until(b"# ", behind)
        spent[way].append((cpu(deployment) - before) / BULK_BYTES * 1e12)
        console.close()
    report("MB/s of output", speed)
    report("ms of CPU of a GB of output, all hops", spent)


def idle(deployment: Deployment) -> None:
    """Idle sessions."""
    grown, consoles = Figures(list), []
    for way in turns(IDLE_ROUNDS):
        before = memory(deployment)
        consoles += [opened(deployment, f"{way}-idle") for _ in range(IDLE_SESSIONS)]
        for console in consoles[-IDLE_SESSIONS:]:
            console.receive()
        grown[way].append((memory(deployment) - before) / IDLE_SESSIONS)
    for console in consoles:
        console.close()
    report("KiB of an idle session, all hops", grown)
