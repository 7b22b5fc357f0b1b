"""
What it costs that sessions can be resumed, and how soon they are.

The time from the loss of all connections to the first mark of the resumed stream, for one session and
for ``SESSIONS`` at once (1000 without it); a key's round trip, the CPU of all hops for it and the memory of
an idle session, with and without.
"""

from __future__ import annotations

import os
import resource
import socket
import ssl
import statistics
import time
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread

from tests import procfs
from tests.flows.deployment import pause, run_reactor
from tests.flows.resuming import CabledDeployment, Typist
from twisted_exec.api import kinds

from .chain import run
from .console import Console
from .fairness.quiet import median, percentile

reactor: Any = _reactor

SESSIONS = int(os.environ.get("SESSIONS", "1000"))
SESSIONS_PER_USER = 10
MACHINES = 10
LOSSES = 50
KEYS = 2000
ROUNDS = 5
IDLE_SESSIONS = 200

HOPS = ("api", "poollet", "runtime")
RESUMABLE = "X-Twisted-Exec-Resume: marks\r\n"
QUIET = "quiet"


class Bench:
    """A deployment and its consoles."""

    def __init__(self, deployment: CabledDeployment) -> None:
        self.deployment = deployment
        self._tls = ssl.create_default_context(cafile=deployment.pki.serving_ca)
        pair = deployment.pki.pair("user-admin")
        self._tls.load_cert_chain(pair.certificate, pair.key)

    def open(self, machine: str, headers: str) -> Console:
        """Open a console without the cable in front of the API server."""
        plain = socket.create_connection(("127.0.0.1", self.deployment.port), timeout=60)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = self._tls.wrap_socket(plain, server_hostname="localhost")
        path = kinds.MACHINES.resource.path("default", machine, "exec")
        return Console(line, f"localhost:{self.deployment.port}", path, headers)

    def cpu(self) -> dict[str, float]:
        return {hop: procfs.cpu_seconds(self._pid(hop)) for hop in HOPS}

    def memory(self) -> dict[str, int]:
        return {hop: procfs.resident_bytes(self._pid(hop)) for hop in HOPS}

    def _pid(self, hop: str) -> int:
        pid = getattr(self.deployment, hop).transport.pid
        assert isinstance(pid, int)
        return pid


def idle(bench: Bench) -> None:
    """Memory of an idle session in each hop."""
    kept: list[Console] = [bench.open(QUIET, headers) for headers in ("", RESUMABLE) * 10]
    for title, headers in (("ordinary", ""), ("resumable", RESUMABLE)):
        before = bench.memory()
        opened = [bench.open(QUIET, headers) for _ in range(IDLE_SESSIONS)]
        for console in opened:
            console.receive()
        grown = {hop: size - before[hop] for hop, size in bench.memory().items()}
        kept += opened  # freed memory would be used for the next ones
        told = ", ".join(f"{hop} {size / IDLE_SESSIONS / 1024:.1f}" for hop, size in grown.items())
        total = sum(grown.values()) / IDLE_SESSIONS / 1024
        print(f"KiB of an idle {title} session: {told}; all hops {total:.1f}")
    for console in kept:
        console.close()


def round_trips(bench: Bench) -> None:
    """A key and its way back, in turn over an ordinary and a resumable session."""
    run(bench.open(QUIET, ""), b"cat")
    consoles = {"ordinary": bench.open(QUIET, ""), "resumable": bench.open(QUIET, RESUMABLE)}
    times: dict[str, list[float]] = {title: [] for title in consoles}
    cpu = dict.fromkeys(consoles, 0.0)
    for round_ in range(2 * ROUNDS):
        title = list(consoles)[round_ % 2]
        # One viewer at a time: each key comes back to all of them.
        for each in consoles.values():
            each.close()
        headers = RESUMABLE if title == "resumable" else ""
        console = consoles[title] = bench.open(QUIET, headers)
        console.until(b"BEGIN\n")
        _settle(console)
        before = sum(bench.cpu().values())
        for _ in range(KEYS):
            start = time.perf_counter()
            console.type(b"x")
            console.receive()
            times[title].append(time.perf_counter() - start)
        cpu[title] += sum(bench.cpu().values()) - before
    ordinary, resumable = (statistics.median(times[title]) * 1e6 for title in consoles)
    print(f"us round trip of a key: ordinary {ordinary:.0f}, resumable {resumable:.0f}", end="")
    print(f" ({resumable / ordinary:.2f}x)")
    ordinary, resumable = (cpu[title] / ROUNDS / KEYS * 1e6 for title in consoles)
    print(f"CPU us of a key, all hops: ordinary {ordinary:.0f}, resumable {resumable:.0f}", end="")
    print(f" ({resumable / ordinary:.2f}x)")


def _settle(console: Console) -> None:
    """Read what earlier rounds have typed."""
    mark = os.urandom(8).hex().encode()
    console.type(mark)
    console.until(mark)


async def losses(deployment: CabledDeployment, names: list[str]) -> None:
    """The time to resume of one session, and of many at once."""
    (one,) = await _open(deployment, names, 1)
    for count in range(1, LOSSES + 1):
        deployment.near.cut()
        await one.until_resumed(count)
    _row("one session", one.seconds)
    many = await _open(deployment, names, SESSIONS)
    for each in many:
        each.seconds.clear()
    for title, cable in (("client", deployment.near), ("poollet's", deployment.middle)):
        before = [len(each.seconds) for each in many]
        cable.cut()
        for each, count in zip(many, before, strict=True):
            await each.until_resumed(count + 1)
        taken = [each.seconds[-1] for each in many]
        _row(f"{SESSIONS} sessions at once, {title} connections cut", taken)
    for each in (one, *many):
        await each.leave()


async def _open(deployment: CabledDeployment, names: list[str], number: int) -> list[Typist]:
    users = -(-number // SESSIONS_PER_USER)
    kubeconfigs = [deployment.through_cable(f"user-{user}") for user in range(users)]
    result: list[Typist] = []
    for first in range(0, number, 20):
        opening = [
            Deferred.fromCoroutine(
                Typist.at(kubeconfigs[each // SESSIONS_PER_USER], names[each % len(names)])
            )
            for each in range(first, min(first + 20, number))
        ]
        result += await gatherResults(opening, consumeErrors=True)
    for each in result:
        await each.until(lambda each=each: each.printed_bytes)
    return result


def _row(title: str, taken: list[float]) -> None:
    middle, late = median(taken) * 1e3, percentile(taken, 99) * 1e3
    print(f"ms to resume, {title}: median {middle:.0f}, p99 {late:.0f}, max {max(taken) * 1e3:.0f}")


def main(directory: Path) -> None:
    """Run the whole benchmark."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    async def measured() -> None:
        deployment = CabledDeployment(str(directory))
        try:
            await deployment.start()
            names = [f"sh-{number}" for number in range(MACHINES)]
            for name in (QUIET, *names):
                await deployment.create_machine(name, "shell")
            await pause()
            bench = Bench(deployment)
            await deferToThread(idle, bench)
            await deferToThread(round_trips, bench)
            await losses(deployment, names)
        finally:
            await deployment.stop()

    run_reactor(measured)
