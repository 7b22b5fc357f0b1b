"""
Thousands of idle consoles of 12 users through API server and poollet: memory, open time, pauses.

Beside it, in the same run, bare TLS legs of our endpoints (the API server has two for each session,
a poollet one), and ironcore's chain where its programs are found.  ``SCALE`` may name other stages
than 10, 1000, 3000 and 9900.
"""

from __future__ import annotations

import base64
import os
import resource
import selectors
import socket
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests import needs, procfs
from tests.interop import chains
from tests.interop.chains import OurCluster
from tests.interop.hosts import kubectl
from tests.interop.ironcore import ForeignCluster, ironcore
from tests.interop.programs import Programs

from . import collections, many_machines
from .ironcore import CHECKOUT, WHAT_TO_SET, missing_programs
from .quick_runtime import CLASS, GREETING

STAGES = (10, 1000, 3000, 9900)
USERS = 12
WARM = 24
AT_ONCE = 4
BURST = 1000
LEGS = 2000
_SECONDS = 60.0
_RESERVED = 200


class Opening:
    """A console that is opened, without blocking; :attr:`code` is 0 until the server answered."""

    def __init__(
        self,
        port: int,
        tls: ssl.SSLContext,
        path: str,
        number: int,
        *,
        headers: str = "",
        greeting: bytes = GREETING,
    ) -> None:
        self._greeting = greeting
        self.began = time.perf_counter()
        self.seconds, self.code, self.retry_after = 0.0, 0, ""
        self._tls, self._plain = tls, socket.socket()
        self._plain.setblocking(False)
        self._plain.bind((f"127.0.0.{2 + number % 50}", 0))
        self._plain.connect_ex(("127.0.0.1", port))
        self.descriptor = self._plain.fileno()
        self.line: ssl.SSLSocket | None = None
        key = base64.b64encode(os.urandom(16)).decode()
        self._request = (
            f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
            f"{headers}\r\n"
        ).encode()
        self._seen = b""
        self._shaken = False
        self.wants = selectors.EVENT_WRITE  # connected

    def go_on(self) -> bool:
        """Do what is possible now; true when it has ended."""
        try:
            self._read(self._connected())
        except ssl.SSLWantReadError:
            self.wants = selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            self.wants = selectors.EVENT_WRITE
        except OSError as problem:
            self._seen += repr(problem).encode()
            self.code = self.code or -1
        return self._ended()

    def _connected(self) -> ssl.SSLSocket:
        if self.line is None:
            problem = self._plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if problem:
                raise OSError(problem, os.strerror(problem))
            self.line = self._tls.wrap_socket(
                self._plain, server_hostname="localhost", do_handshake_on_connect=False
            )
        if not self._shaken:
            self.line.do_handshake()
            self._shaken = True
            self.line.sendall(self._request)
        return self.line

    def _read(self, line: ssl.SSLSocket) -> None:
        while True:
            data = line.recv(65536)
            if not data:
                raise ConnectionError("closed")
            self._seen += data
            if self._ended():
                return

    def _ended(self) -> bool:
        head, end, body = self._seen.partition(b"\r\n\r\n")
        if self.code == 0 and end:
            self.code = int(head[9:12])
            for line in head.split(b"\r\n"):
                if line.lower().startswith(b"retry-after:"):
                    self.retry_after = line.split(b":", 1)[1].strip().decode()
        ended = self.code not in (0, 101) or (self.code == 101 and self._greeting in body)
        if ended:
            self.seconds = time.perf_counter() - self.began
        return ended

    def is_open(self) -> bool:
        """Return whether the server has not closed the connection."""
        assert self.line is not None
        try:
            while self.line.recv(65536):
                pass
        except ssl.SSLWantReadError:
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        """Close the connection."""
        (self.line or self._plain).close()

    @property
    def text(self) -> str:
        return self._seen[-300:].decode(errors="replace")


def open_all(
    make: Callable[[int], Opening], count: int, at_once: int, seconds: float = 0.0
) -> list[Opening]:
    """
    Open that many, at most ``at_once`` at a time.

    :param seconds: longest wait; by default a minute, and longer for many.
    """
    openings: list[Opening] = []
    selector = selectors.DefaultSelector()
    under_way, deadline = 0, time.monotonic() + (seconds or _SECONDS + count / 10)
    while under_way or len(openings) < count:
        while under_way < at_once and len(openings) < count:
            opening = make(len(openings))
            openings.append(opening)
            selector.register(opening.descriptor, opening.wants, opening)
            under_way += 1
        for key, _ in selector.select(1.0):
            before = key.data.wants
            if key.data.go_on():
                selector.unregister(key.fd)
                under_way -= 1
            elif key.data.wants != before:
                selector.modify(key.fd, key.data.wants, key.data)
        if time.monotonic() > deadline:
            break
    selector.close()
    return openings


@dataclass
class Stage:
    """
    :ivar kib: per session and hop, beyond the state before the first stage.
    :ivar cpu_ms: of each hop to open one, which other work on the machine changes little.
    """

    sessions: int
    p50: float
    p99: float
    kib: dict[str, float]
    cpu_ms: dict[str, float]


@dataclass
class Chain:
    """
    One make of API server and poollet, with a machine that runs.

    :ivar notes: files with the garbage collections of each hop, if it is ours.
    :ivar at_start: how many there were before the first session.
    """

    name: str
    cluster: OurCluster | ForeignCluster
    hops: dict[str, int]
    notes: dict[str, Path] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    at_start: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        make = self.cluster.make
        self._path = f"/apis/{make.group}/v1alpha1/namespaces/default/machines/vm/exec"
        self._users = []
        for number in range(USERS):
            tls = ssl.create_default_context(cafile=self.cluster.pki.serving_ca)
            pair = self.cluster.pki.issue_user(f"user-{number}", ["system:masters"])
            tls.load_cert_chain(pair.certificate, pair.key)
            self._users.append(tls)

    def opening(self, number: int) -> Opening:
        return Opening(self.cluster.own_port, self._users[number % USERS], self._path, number)

    def cpu(self) -> dict[str, float]:
        return {hop: procfs.cpu_seconds(pid) for hop, pid in self.hops.items()}

    def resident(self) -> dict[str, int]:
        return {hop: procfs.resident_bytes(pid) for hop, pid in self.hops.items()}


Start = Callable[[], Chain]


def measure(chain: Chain, stages: list[int]) -> list[Opening]:
    """Run all stages, each on top of the previous; return the sessions that are open at the end."""
    for hop, path in chain.notes.items():
        chain.at_start[hop] = len(collections.read(path)) if path.exists() else 0
    held = open_all(chain.opening, WARM, 1)
    before = chain.resident()
    done = 0
    for sessions in stages:
        cpu = chain.cpu()
        opened = open_all(chain.opening, sessions - done, AT_ONCE)
        spent = {
            hop: (seconds - cpu[hop]) / len(opened) * 1e3 for hop, seconds in chain.cpu().items()
        }
        done = sessions
        refused = [each for each in opened if each.code != 101]
        if refused:
            print(f"{chain.name}: {len(refused)} of {sessions} refused: {refused[0].text}")
        held += opened
        times = sorted(each.seconds for each in opened[-1000:] if each.code == 101)
        if not times:
            break
        time.sleep(1)  # lets reviews and object writes settle
        kib = {
            hop: (size - before[hop]) / sessions / 1024 for hop, size in chain.resident().items()
        }
        chain.stages.append(
            Stage(
                sessions,
                statistics.median(times) * 1e3,
                times[min(len(times) - 1, int(len(times) * 0.99))] * 1e3,
                kib,
                spent,
            )
        )
        if refused:
            break
    return held


def close_all(openings: list[Opening]) -> None:
    for opening in openings:
        opening.close()


def burst(chain: Chain) -> None:
    """Open many at once: count the opened and the refused sessions, and take the time."""
    began, before = time.perf_counter(), chain.resident()
    opened = open_all(chain.opening, BURST, BURST)
    seconds = time.perf_counter() - began
    codes: dict[int, int] = {}
    for each in opened:
        codes[each.code] = codes.get(each.code, 0) + 1
    grown = ", ".join(
        f"{hop} {(size - before[hop]) / 2**20:.0f} MiB" for hop, size in chain.resident().items()
    )
    print(f"{chain.name}: {BURST} at once: {codes} in {seconds:.1f} s; grown by {grown}")
    failed = [each for each in opened if each.code not in (101, 429)]
    if failed:
        print(f"  such as {failed[0].text}")
    late = [each for each in opened if each.code == 429 and not each.retry_after]
    if late:
        print(f"  {len(late)} times 429 without Retry-After")
    close_all(opened)


def legs(pki: str) -> dict[str, float]:
    """KiB of a bare server leg, and of a bare client leg."""
    python = (sys.executable, "-m", "tests.benchmarks.bare_legs")
    with _child(*python, "server", pki) as server:
        port = _line(server)
        with _child(*python, "client", pki, port, str(LEGS)) as client:
            _line(client)
            before = [procfs.resident_bytes(each.pid) for each in (server, client)]
            assert client.stdin is not None
            client.stdin.write(b"\n")
            client.stdin.flush()
            _line(client)
            time.sleep(0.5)
            after = [procfs.resident_bytes(each.pid) for each in (server, client)]
    per = [(late - early) / LEGS / 1024 for early, late in zip(before, after, strict=True)]
    return {"server leg": per[0], "client leg": per[1]}


@contextmanager
def _child(*argv: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield child
    finally:
        child.terminate()
        child.wait()


def _line(child: subprocess.Popen[bytes]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().decode().strip()


def _noting(program: str) -> list[str]:
    return [sys.executable, "-m", "tests.benchmarks.collections", f"{program}.gc", program]


def prepare(cluster: OurCluster | ForeignCluster, target: str) -> Chain:
    """A poollet and a machine that runs, for a cluster that is started."""
    chains.prepare(cluster)
    backend = chains.Backend("idle", f"unix://{target}", cluster.make.revision)
    start = chains.our_poollet if cluster.ours else chains.their_poollet
    poollet = start(cluster, "pool", backend)
    cluster.apply(
        {
            "apiVersion": f"{cluster.make.group}/v1alpha1",
            "kind": "Machine",
            "metadata": {"name": "vm", "namespace": "default"},
            "spec": {"machineClassRef": {"name": CLASS}, "machinePoolRef": {"name": "pool"}},
        }
    )
    state = ("get", f"machines.{cluster.make.group}", "vm", "-o", "jsonpath={.status.state}")
    cluster.programs.until(
        "the machine runs",
        lambda: kubectl(cluster.kubeconfig, *state, check=False) == "Running",
    )
    hops = {"API server": cluster.own_program, "poollet": poollet}
    pids = {hop: cluster.programs.pid(name) for hop, name in hops.items()}
    files = {"API server": "exec-apiserver.gc", "poollet": "exec-poollet.gc"}
    notes = {hop: Path(cluster.programs.path(name)) for hop, name in files.items()}
    return Chain("ours" if cluster.ours else "ironcore", cluster, pids, notes)


def report(chain: Chain, bare: dict[str, float]) -> None:
    """One line per stage, and one per hop and generation of its collector."""
    legs_of = {
        "API server": bare["server leg"] + bare["client leg"],
        "poollet": bare["server leg"],
    }
    for stage in chain.stages:
        memory = ", ".join(
            f"{hop} {kib:5.1f} KiB ({kib - legs_of[hop]:+5.1f} beyond its legs)"
            for hop, kib in stage.kib.items()
        )
        print(
            f"{chain.name:9} {stage.sessions:5} sessions: open p50 {stage.p50:6.1f} ms, "
            f"p99 {stage.p99:6.1f} ms; {memory}"
        )
        cpu = ", ".join(f"{hop} {spent:.2f} ms" for hop, spent in stage.cpu_ms.items())
        print(f"{'':9} {'':5} CPU to open one: {cpu}")
    for hop, path in chain.notes.items():
        if not path.exists():
            continue
        noted = collections.read(path)[chain.at_start.get(hop, 0) :]
        for generation in range(3):
            spent = [each.milliseconds for each in noted if each.generation == generation]
            if spent:
                print(
                    f"{chain.name:9} {hop}: generation {generation}: {len(spent)} collections, "
                    f"longest {max(spent):.1f} ms, {sum(each > 20 for each in spent)} above 20 ms, "
                    f"{sum(spent):.0f} ms in all"
                )


def _stages() -> list[int]:
    wanted = [int(each) for each in os.environ.get("SCALE", "").split(",") if each]
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = min(10_000, (descriptors - _RESERVED) // 2) - WARM
    return sorted({min(each, most) for each in wanted or STAGES})


def _run(chain: Chain, stages: list[int], bare: dict[str, float]) -> None:
    """Memory first, before there is freed memory to be used again."""
    held = measure(chain, stages)
    report(chain, bare)
    full = chain.resident()
    close_all(held)
    time.sleep(5)
    after = ", ".join(f"{hop} {size / 2**20:.0f} MiB" for hop, size in chain.resident().items())
    at_most = ", ".join(f"{hop} {size / 2**20:.0f} MiB" for hop, size in full.items())
    print(f"{chain.name:9} all open: {at_most}; 5 s after all were closed: {after}")
    burst(chain)


def with_clusters(
    name: str, how: Callable[[str], list[str]] | None, work: Callable[[list[Start]], None]
) -> None:
    """
    Work with our cluster and, where its programs are found, ironcore's; both have the same runtime.

    :param name: of the benchmark, for the message when kubectl is missing.
    :param how: runs our programs; see :class:`~tests.interop.chains.OurCluster`.
    :param work: gets what starts each chain; all chains are stopped at the end.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    make = ironcore(needs.interop_programs("ironcore"))
    if needs.kubectl() is not None:
        print(f"{name}: kubectl is not on PATH; nothing is measured.")
        return
    missing = missing_programs(make)
    programs = Programs("scale-")
    clusters: list[OurCluster | ForeignCluster] = [OurCluster(make, how=how)]
    if missing:
        print(WHAT_TO_SET.format(missing=", ".join(missing)))
    else:
        clusters.append(ForeignCluster(make, needs.kube_apiserver_program() or ""))
    path = os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")])
    os.environ["PYTHONPATH"] = path.rstrip(os.pathsep)  # programs run in a directory of their own
    try:
        targets = [programs.path(f"sockets-{number}/iri.sock") for number in range(len(clusters))]
        programs.run("runtime", sys.executable, "-m", "tests.benchmarks.idle_consoles", *targets)
        programs.until("the runtime", lambda: "ready" in programs.log("runtime"))
        work([partial(start, *each) for each in zip(clusters, targets, strict=True)])
    finally:
        for cluster in reversed(clusters):
            cluster.stop()
        programs.stop()


def start(cluster: OurCluster | ForeignCluster, target: str) -> Chain:
    """Start a cluster, a poollet and a machine that runs."""
    cluster.start()
    return prepare(cluster, target)


def main(directory: Path) -> None:
    """Run the whole benchmark; without ironcore's programs ours alone."""
    many_machines.main(directory)

    def work(starts: list[Start]) -> None:
        stages, bare = _stages(), dict[str, float]()
        for begin in starts:
            chain = begin()
            if not bare:
                bare = legs(chain.cluster.pki.directory)
                print(", ".join(f"bare {name} {kib:.1f} KiB" for name, kib in bare.items()))
            _run(chain, stages, bare)
            chain.cluster.stop()

    with_clusters("scale", _noting, work)
