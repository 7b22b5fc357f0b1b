"""
The chain, API server and poollet, each a process, with the runtime on a UNIX
socket; against the same console of the same runtime without the chain.
"""

from __future__ import annotations

import random
import socket
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import grpc
from twisted.internet.threads import deferToThread

from tests import procfs
from tests.flows.deployment import Deployment, run_reactor
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.revisions import revision
from twisted_exec.streaming.interfaces import USER_HEADER

from .console import Console, user_context

OPENINGS = 200
KEYSTROKES = 4000
BULK_BYTES = 256 << 20
IDLE_SESSIONS = 200

# One shell for what prints much, one for what prints little: a new viewer is
# first sent what was printed before.
LOUD, QUIET = "loud", "quiet"

USER = "admin"

Open = Callable[[str], Console]


class Chain:
    """A running deployment, and the two ways to its shells."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._tls = user_context(deployment.pki, USER)
        channel = grpc.insecure_channel(deployment.iri_target)
        self._exec = _unary(channel, "exec")
        machines = _unary(channel, "list_machines")(pb.ListMachinesRequest()).machines
        label = IRONCORE.name_label
        self._ids = {one.metadata.labels[label]: one.metadata.id for one in machines}

    @property
    def ways(self) -> list[tuple[str, Open]]:
        return [("through", self.through), ("direct", self.direct)]

    def pid(self, hop: str) -> int:
        pid = getattr(self._deployment, hop).transport.pid
        assert isinstance(pid, int)
        return pid

    def through(self, name: str) -> Console:
        """By API server and poollet."""
        return Console.open(self._deployment.port, self._tls, name)

    def direct(self, name: str) -> Console:
        """
        By the runtime's own exec URL, as the user of :meth:`through`.

        A session of another user, also of an unknown one, would be an observer until all hops have noticed the end of
        the session before.
        """
        url = urlsplit(self._exec(pb.ExecRequest(machine_id=self._ids[name])).url)
        line = socket.socket(socket.AF_UNIX)
        line.connect(unquote(url.netloc))
        return Console(line, "localhost", url.path, f"{USER_HEADER.decode()}: {USER}\r\n")


def _unary(channel: grpc.Channel, name: str) -> grpc.UnaryUnaryMultiCallable:
    call = revision("ironcore").call(name)
    return channel.unary_unary(
        call.path,
        request_serializer=call.encode_request,
        response_deserializer=call.decode_response,
    )


def openings(chain: Chain) -> None:
    """Time to the first message, and each hop's CPU, with reviews cached."""
    for _ in range(10):
        chain.through(QUIET).close()
    times: dict[str, list[float]] = {"through": [], "direct": []}
    hops = ("api", "poollet", "runtime")
    cpu = dict.fromkeys(hops, 0.0)
    for way, opened in chain.ways:
        before = {hop: procfs.cpu_seconds(chain.pid(hop)) for hop in hops}
        for _ in range(OPENINGS):
            start = time.perf_counter()
            console = opened(QUIET)
            console.receive()
            times[way].append(time.perf_counter() - start)
            console.close()
        if way == "through":
            cpu = {hop: procfs.cpu_seconds(chain.pid(hop)) - before[hop] for hop in hops}
    through, direct = (statistics.median(times[way]) * 1e3 for way in ("through", "direct"))
    _row("ms to open a console", through, direct)
    told = ", ".join(f"{hop} {spent / OPENINGS * 1e3:.2f}" for hop, spent in cpu.items())
    print(f"CPU ms to open: {told}; all hops {sum(cpu.values()) / OPENINGS * 1e3:.2f}")


def round_trips(chain: Chain) -> None:
    """A key and its way back, one after the other."""
    run(chain.through(QUIET), b"cat")
    medians, cpu, of_runtime = {}, 0.0, 0.0
    for way, opened in chain.ways:
        console = opened(QUIET)
        console.until(b"BEGIN\n")
        before, runtime_before = cpu_of_middle(chain), procfs.cpu_seconds(chain.pid("runtime"))
        times = []
        for _ in range(KEYSTROKES):
            start = time.perf_counter()
            console.type(b"x")
            console.receive()
            times.append(time.perf_counter() - start)
        medians[way] = statistics.median(times) * 1e6
        if way == "through":
            cpu = (cpu_of_middle(chain) - before) / KEYSTROKES * 1e6
        spent = procfs.cpu_seconds(chain.pid("runtime")) - runtime_before
        of_runtime = spent / KEYSTROKES * 1e6  # at last without the chain
        console.close()
    _row("us round trip of a key", medians["through"], medians["direct"])
    print(f"added by the chain: {medians['through'] - medians['direct']:.0f} us")
    print(f"CPU us per key, API server and poollet: {cpu:.0f}; runtime alone: {of_runtime:.0f}")


def cpu_of_middle(chain: Chain) -> float:
    return sum(procfs.cpu_seconds(chain.pid(hop)) for hop in ("api", "poollet"))


def bulk(chain: Chain) -> None:
    """Measure the throughput of a shell that prints as fast as possible."""
    speeds = {}
    for way, opened in chain.ways:
        console = opened(LOUD)
        begun = run(console, b"head -c %d /dev/zero; stty sane" % BULK_BYTES)
        start = time.perf_counter()
        behind = console.count(BULK_BYTES, begun)
        speeds[way] = BULK_BYTES / (time.perf_counter() - start) / 1e6
        console.until(b"# ", behind)
        console.close()
    _row("MB/s", speeds["through"], speeds["direct"])


def run(console: Console, command: bytes) -> bytes:
    """
    Make the shell's terminal transparent, run a command in it, read until it begins.

    :return: what it has printed meanwhile.
    """
    mark = b"%08x" % random.getrandbits(32)
    console.type(b"stty raw -echo; echo %b''%b BEG''IN; %b\n" % (mark[:4], mark[4:], command))
    return console.until(mark + b" BEGIN\n")


def idle(chain: Chain) -> None:
    """Measure the memory of each hop for an idle session."""
    hops = ("api", "poollet", "runtime")
    warm = [chain.through(QUIET) for _ in range(10)]
    before = {hop: procfs.resident_bytes(chain.pid(hop)) for hop in hops}
    opened = [chain.through(QUIET) for _ in range(IDLE_SESSIONS)]
    for console in opened:
        console.receive()
    grown = {hop: procfs.resident_bytes(chain.pid(hop)) - before[hop] for hop in hops}
    for console in opened + warm:
        console.close()
    told = ", ".join(f"{hop} {size / IDLE_SESSIONS / 1e3:.0f}" for hop, size in grown.items())
    print(f"kB per idle session: {told}")


def _row(title: str, through: float, direct: float) -> None:
    print(
        f"{title:28} chain {through:10.2f}   runtime alone {direct:10.2f}   ({through / direct:.2f}x)"
    )


def with_chain(directory: Path, measure: Callable[[Chain], None], *machines: str) -> None:
    """Start a chain with these machines, call ``measure`` in a thread, and stop the chain."""

    async def measured() -> None:
        deployment = Deployment(str(directory), unix_streams=True)
        try:
            await deployment.start()
            for name in machines:
                await deployment.create_machine(name, "shell")
            await deferToThread(lambda: measure(Chain(deployment)))
        finally:
            await deployment.stop()

    run_reactor(measured)


def main(directory: Path) -> None:
    """Run the whole benchmark."""

    def measure(chain: Chain) -> None:
        print("The chain: API server and poollet over TLS, the runtime on a UNIX socket")
        openings(chain)
        idle(chain)
        round_trips(chain)
        bulk(chain)

    with_chain(directory, measure, LOUD, QUIET)
