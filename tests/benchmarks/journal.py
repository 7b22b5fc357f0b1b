"""
The journals of a runtime: memory, disk, start and CPU, beside plain files.

Each figure comes from a process of its own: ``python -m tests.benchmarks.journal ROW DIRECTORY`` prints
it as JSON.
"""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from tests import procfs
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.retention import StoreLimits
from twisted_exec.journal.store import JournalStore
from twisted_exec.journal.writer import WRITE_SECONDS
from twisted_exec.program.disk_thread import AtOnce
from twisted_exec.testing.console import FakeConsole

MACHINES = 1000
_SIMULATED = 4
_LINES_PER_HOUR, _DAYS = 100, 30
_FULL_SPEED_BYTES = 300_000_000
_WORDS = (
    b"systemd kernel started stopped session user root cron sshd eth0 link up down usb device sda "
    b"attached removed mount unit timer daily reached target network online service main process "
    b"exited status accepted connection from port error warning memory cpu thermal throttled"
).split()


def log_line(number: int, choose: random.Random) -> bytes:
    """A line such as a kernel or an init system prints, of about 80 bytes."""
    words = b" ".join(choose.choices(_WORDS, k=choose.randint(4, 10)))
    return b"[%8d.%06d] %s[%d]: %s\r\n" % (
        number, choose.randint(0, 999_999), choose.choice(_WORDS), choose.randint(1, 9999), words
    )  # fmt: skip


class Unforced:
    """The module ``os`` without ``fdatasync``: a month of it would take longer than the benchmark."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fdatasync(self, descriptor: int) -> None:
        """Nothing."""


class Simulation:
    """A store whose time is simulated, and whose work happens at once."""

    def __init__(self, path: str, *, layer: Any = os) -> None:
        self.clock = Clock()
        began = time.time() - _DAYS * 86_400  # the times of the files are real
        self.store = JournalStore(
            path,
            self.clock,
            limits=StoreLimits(total_bytes=1 << 50, free_bytes=0),
            now=lambda: int((began + self.clock.seconds()) * 1e9),
            in_thread=maybeDeferred,
            thread=AtOnce(),
            layer=layer,
        )
        self.store.open()

    def consoles(self, count: int) -> list[Any]:
        """Open consoles; the result has what makes each print."""
        consoles = []
        for number in range(count):
            journal = self.store.journal(key(number))
            console = FakeConsole(paced=False)
            shared = SharedConsole(console, self.clock, journal=journal)
            shared.open()
            journal.booted("Started")
            consoles.append((console, shared))
        return consoles

    def close(self) -> None:
        """Stop the store."""
        Deferred.fromCoroutine(self.store.close())


def key(number: int) -> str:
    """The key of a machine's journal."""
    return f"{number:032x}"


def idle(path: str) -> dict[str, float]:
    """Memory of a machine that has printed, and is quiet for a minute."""
    choose = random.Random(1)
    output = b"".join(log_line(number, choose) for number in range(4000))  # 320 KB
    for journals in ("warm", path):
        simulation = Simulation(os.path.join(path, os.path.basename(journals)))
        gc.collect()
        before = procfs.resident_bytes(os.getpid())
        consoles = simulation.consoles(20 if journals == "warm" else MACHINES)
        for console, _ in consoles:
            for at in range(0, len(output), 1024):
                console.says(output[at : at + 1024])
            simulation.clock.advance(WRITE_SECONDS)
        busy = procfs.resident_bytes(os.getpid())
        for _ in range(15):
            simulation.clock.advance(5)
        gc.collect()
        idle_bytes = procfs.resident_bytes(os.getpid()) - before
    opened = sum("consoles" in name or name.endswith(".open") for name in _descriptors())
    return {
        "idle_kib": idle_bytes / MACHINES / 1024,
        "printing_kib": (busy - before) / MACHINES / 1024,
        "descriptors": opened,
    }


def _descriptors() -> list[str]:
    names = []
    for name in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return names


def month(path: str) -> dict[str, float]:
    """Disk of machines that print 100 lines an hour for 30 days, and the start with 1 000 of them."""
    choose = random.Random(2)
    simulation = Simulation(path, layer=Unforced())
    consoles = simulation.consoles(_SIMULATED)
    raw = 0
    began = time.process_time()
    for number in range(_LINES_PER_HOUR * 24 * _DAYS):
        for console, _ in consoles:
            line = log_line(number, choose)
            raw += len(line)
            console.says(line)
        simulation.clock.rightNow += 3600 / _LINES_PER_HOUR - 0.1
        simulation.clock.advance(0.1)
    cpu = time.process_time() - began
    simulation.close()
    stored = sum(entry.stat().st_size for entry in Path(path).rglob("*") if entry.is_file())
    for number in range(_SIMULATED, MACHINES):
        source = os.path.join(path, key(number % _SIMULATED))
        target = os.path.join(path, key(number))
        os.mkdir(target, 0o700)
        for name in os.listdir(source):
            copy = shutil.copy if name.endswith(".open") else os.link
            copy(os.path.join(source, name), os.path.join(target, name))
    return {
        "stored_gib": stored / _SIMULATED * MACHINES / (1 << 30),
        "raw_gib": raw / _SIMULATED * MACHINES / (1 << 30),
        "cpu_us_per_line": cpu / (_LINES_PER_HOUR * 24 * _DAYS * _SIMULATED) * 1e6,
    }


def start(path: str) -> dict[str, float]:
    """The start with the journals of 1 000 machines, each of which boots and prints."""
    gc.freeze()  # as the programs do
    began = time.perf_counter()
    simulation = Simulation(path)
    slowest = 0.0
    for number in range(MACHINES):
        at = time.thread_time()
        journal = simulation.store.journal(key(number))
        simulation.store.revive(key(number))
        journal.booted("Started")
        journal.append(b"Booting\r\n")
        slowest = max(slowest, time.thread_time() - at)
    seconds = time.perf_counter() - began
    at = time.perf_counter()
    journal.last_lines(1000)
    tail = time.perf_counter() - at
    at = time.perf_counter()
    journal.read(journal.printed_since(journal.now() - 10 * 86_400 * 10**9), 1000)
    since = time.perf_counter() - at
    return {
        "start_seconds": seconds,
        "slowest_ms": slowest * 1000,
        "tail_ms": tail * 1000,
        "since_ms": since * 1000,
    }


def busy(path: str, *, disk: bool) -> dict[str, float]:
    """CPU of 10 MB/s from 1 000 lines in reads of 1 KiB, with forcing and sealing."""
    choose = random.Random(3)
    output = b"".join(log_line(number, choose) for number in range(40_000))
    pieces = [output[at : at + 1024] for at in range(0, len(output) - 1024, 1024)]
    simulation = Simulation(path)
    journals = [
        simulation.store.journal(key(number)) if disk else Journal() for number in range(MACHINES)
    ]
    seconds, rate = 110, 10_000_000  # each segment is full once
    reads = rate // 1024 // 10
    began = resource.getrusage(resource.RUSAGE_SELF)
    at = 0
    for _ in range(seconds * 10):
        for _ in range(reads):
            journal = journals[at % MACHINES]
            journal.append(pieces[(at * 7) % len(pieces)])
            if not disk:
                journal.discard_before(journal.end - (256 << 10))
            at += 1
        simulation.clock.advance(0.1)
    for _ in range(80):
        simulation.clock.advance(1)
    ended = resource.getrusage(resource.RUSAGE_SELF)
    cpu = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    return {"cores": cpu / seconds}


def plain(path: str) -> dict[str, float]:
    """The same output into plain files, one for each machine, without anything else."""
    os.makedirs(path, exist_ok=True)
    choose = random.Random(3)
    output = b"".join(log_line(number, choose) for number in range(40_000))
    pieces = [output[at : at + 1024] for at in range(0, len(output) - 1024, 1024)]
    files = [
        os.open(os.path.join(path, str(number)), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for number in range(MACHINES)
    ]
    seconds, reads = 20, 10_000_000 // 1024
    began = time.process_time()
    for at in range(seconds * reads):
        os.write(files[at % MACHINES], pieces[(at * 7) % len(pieces)])
        if at % (5 * reads) == 0:
            for file in files:
                os.fdatasync(file)
    return {"cores": (time.process_time() - began) / seconds}


def serve(path: str, *, disk: bool) -> None:
    """A runtime with one console, for :func:`full_speed`; prints the path of its URL."""
    from twisted.internet import reactor as any_reactor

    from tests.contracts.machine_runtime import machine
    from twisted_exec.iri.protos import machine_pb2 as pb
    from twisted_exec.program.audit_file import JSONLinesAudit
    from twisted_exec.runtimes.config import parse
    from twisted_exec.runtimes.host import RuntimeHost
    from twisted_exec.runtimes.settings import Settings

    reactor: Any = any_reactor
    line = "x" * 78
    command = f"stty raw -echo; head -c 1 >/dev/null; yes {line} | head -c {_FULL_SPEED_BYTES}; cat"
    shell = {
        "name": "shell",
        "driver": "pty",
        "command": ["/bin/sh", "-c", command],
        "same_user": True,
        "capabilities": {"cpu": 1, "memory": "64Mi"},
    }
    settings = Settings(
        parse({"classes": [shell]}), os.path.join(path, "state"), f"unix://{path}/iri"
    )
    audit = JSONLinesAudit(open(os.devnull, "w"))  # noqa: SIM115 - as long as the process
    host = RuntimeHost(settings, audit, reactor)
    if not disk:
        store: Any = host.runtime.journals
        store.journal = lambda key, retention=None: Journal()

    async def run() -> None:
        await host.start()
        template = machine("x", "shell")
        made = await host.create_machine(pb.CreateMachineRequest(machine=template))
        id = made.machine.metadata.id
        while True:
            listed = await host.list_machines(pb.ListMachinesRequest())
            if listed.machines[0].status.state == pb.MACHINE_RUNNING:
                break
            wait: Deferred[None] = Deferred()
            reactor.callLater(0.05, wait.callback, None)
            await wait
        answer = await host.exec(pb.ExecRequest(machine_id=id))
        print(answer.url, flush=True)

    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(run()).addErrback(print))
    reactor.run()


def full_speed(directory: Path, *, disk: bool) -> float:
    """Throughput of a console that prints without end, from its pty to a viewer, in MB/s."""
    from urllib.parse import unquote, urlsplit

    from .console import Console

    row = "serve" if disk else "serve-memory"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.journal", row, str(directory)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            parts = urlsplit(process.stdout.readline().strip())
            line = socket.socket(socket.AF_UNIX)
            line.connect(unquote(parts.netloc))
            console = Console(line, "localhost", f"{parts.path}?stdin=true&stdout=true&tty=true")
            console.type(b"g")
            piece = console.receive()
            began = time.perf_counter()
            console.count(_FULL_SPEED_BYTES - len(piece))
            return (_FULL_SPEED_BYTES - len(piece)) / (time.perf_counter() - began) / 1e6
        finally:
            process.kill()


_ROWS: dict[str, Any] = {
    "idle": idle,
    "month": month,
    "start": start,
    "busy": lambda path: busy(path, disk=True),
    "busy-memory": lambda path: busy(path, disk=False),
    "plain": plain,
}


def figures(row: str, path: Path) -> dict[str, float]:
    """Measure one row in a process of its own."""
    printed = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.journal", row, str(path)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout
    return dict(json.loads(printed))


def main(directory: Path) -> None:
    """Print the table."""
    rows = []
    one = figures("idle", directory / "idle")
    rows.append(("memory of an idle machine, with its console", f"{one['idle_kib']:.1f} KiB"))
    rows.append(("memory of a printing machine", f"{one['printing_kib']:.1f} KiB"))
    rows.append(("open descriptors of 1 000 idle journals", f"{one['descriptors']:.0f}"))
    one = figures("month", directory / "month")
    rows.append(
        ("1 000 machines, 100 lines an hour, 30 days: printed", f"{one['raw_gib']:.2f} GiB")
    )
    rows.append(("  on disk", f"{one['stored_gib']:.2f} GiB"))
    rows.append(("  CPU of a line", f"{one['cpu_us_per_line']:.1f} us"))
    for attempt in ("", ", again"):
        one = figures("start", directory / "month")
        rows.append((f"start with these journals{attempt}", f"{one['start_seconds']:.2f} s"))
    rows.append(("  longest turn of the reactor", f"{one['slowest_ms']:.1f} ms"))
    rows.append(("  the last 1 000 lines of a machine", f"{one['tail_ms']:.1f} ms"))
    rows.append(("  its lines since ten days ago", f"{one['since_ms']:.1f} ms"))
    shutil.rmtree(directory / "month")
    disk, memory = figures("busy", directory / "busy"), figures("busy-memory", directory / "busy-m")
    rows.append(("10 MB/s from 1 000 lines in reads of 1 KiB", f"{disk['cores']:.2f} cores"))
    rows.append(("  in memory only, as before", f"{memory['cores']:.2f} cores"))
    plain_files = figures("plain", directory / "plain")
    rows.append(("  into 1 000 plain files, uncompressed", f"{plain_files['cores']:.2f} cores"))
    speeds: dict[bool, list[float]] = {True: [], False: []}
    for attempt in range(3):
        for on_disk in speeds:
            where = directory / f"speed-{attempt}-{on_disk}"
            where.mkdir(mode=0o700)
            speeds[on_disk].append(full_speed(where, disk=on_disk))
    rows.append(("a console at full speed", f"{sorted(speeds[True])[1]:.0f} MB/s"))
    rows.append(("  in memory only, as before", f"{sorted(speeds[False])[1]:.0f} MB/s"))
    for name, figure in rows:
        print(f"{name:60} {figure:>12}")


if __name__ == "__main__":
    if sys.argv[1].startswith("serve"):
        serve(sys.argv[2], disk=sys.argv[1] == "serve")
    else:
        os.makedirs(sys.argv[2], mode=0o700, exist_ok=True)
        print(json.dumps(_ROWS[sys.argv[1]](sys.argv[2])))
