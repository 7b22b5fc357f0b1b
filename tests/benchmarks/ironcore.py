"""
The whole chain side by side with ironcore's own: API server and poollet of ours, and of theirs.

Both use the same runtime and the same client, which connects to ironcore-apiserver directly:
kube-apiserver runs for its informers only, and no measured request passes it.  The two are
measured in turn, round after round.  CPU and memory are of the two hops together, from ``/proc``.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests import needs, procfs
from tests.interop import chains
from tests.interop.chains import OurCluster
from tests.interop.hosts import kubectl
from tests.interop.ironcore import ForeignCluster, Make, ironcore
from tests.interop.programs import Programs

from .console import Console, connect, user_context
from .quick_runtime import CLASS, GREETING

CHECKOUT = Path(__file__).resolve().parents[2]
ROUNDS = 5
WARM = 20
OPENINGS = 100
KEYSTROKES = 3000
BULK_BYTES = 256 << 20
IDLE_SESSIONS = 300

WHAT_TO_SET = """\
ironcore: {missing} not found; nothing is measured.
  INTEROP_PROGRAMS: the directory that holds ironcore/ironcore-apiserver and ironcore/machinepoollet
  KUBE_APISERVER:   a kube-apiserver, if none is on PATH; etcd and kubectl must be on PATH
  tests/interop/__init__.py says how to build them."""


@dataclass
class Figures:
    """Of each round."""

    open_ms: list[float] = field(default_factory=list)
    open_cpu_ms: list[float] = field(default_factory=list)
    key_us: list[float] = field(default_factory=list)
    key_cpu_us: list[float] = field(default_factory=list)
    speed: list[float] = field(default_factory=list)
    cpu_per_gigabyte: list[float] = field(default_factory=list)
    idle_kib: list[float] = field(default_factory=list)


class Chain:
    """
    A cluster with one poollet, and the way to its machine's console.

    :param pids: of the API server and the poollet.
    """

    def __init__(
        self, name: str, cluster: OurCluster | ForeignCluster, port: int, pids: list[int]
    ) -> None:
        self.name, self.pids, self.figures = name, pids, Figures()
        self._port = port
        self._path = f"/apis/{cluster.make.group}/v1alpha1/namespaces/default/machines/vm/exec"
        self._tls = user_context(cluster.pki)

    def open(self) -> Console:
        """A console that has greeted."""
        console = Console(connect(self._port, self._tls), f"localhost:{self._port}", self._path)
        console.until(GREETING)
        return console

    def cpu(self) -> float:
        return sum(procfs.cpu_seconds(pid) for pid in self.pids)

    def resident(self) -> int:
        return sum(procfs.resident_bytes(pid) for pid in self.pids)


def idle(chain: Chain) -> None:
    """Measure the memory growth of the hops for sessions that are idle after a greeting."""
    for _ in range(WARM):
        chain.open().close()
    before = chain.resident()
    opened = [chain.open() for _ in range(IDLE_SESSIONS)]
    chain.figures.idle_kib.append((chain.resident() - before) / IDLE_SESSIONS / 1024)
    for console in opened:
        console.close()


def openings(chain: Chain) -> None:
    """From connecting to the greeting, one after the other."""
    for _ in range(WARM):  # fills short-lived caches, such as that of reviews
        chain.open().close()
    times, before = [], chain.cpu()
    for _ in range(OPENINGS):
        start = time.perf_counter()
        console = chain.open()
        times.append(time.perf_counter() - start)
        console.close()
    chain.figures.open_ms.append(statistics.median(times) * 1e3)
    chain.figures.open_cpu_ms.append((chain.cpu() - before) / OPENINGS * 1e3)


def keys(chain: Chain) -> None:
    """A key and its echo, one after the other."""
    console = chain.open()
    times, before = [], chain.cpu()
    for _ in range(KEYSTROKES):
        start = time.perf_counter()
        console.type(b"x")
        console.receive()
        times.append(time.perf_counter() - start)
    chain.figures.key_us.append(statistics.median(times) * 1e6)
    chain.figures.key_cpu_us.append((chain.cpu() - before) / KEYSTROKES * 1e6)
    console.close()


def bulk(chain: Chain) -> None:
    """Output as fast as it comes."""
    console = chain.open()
    before, start = chain.cpu(), time.perf_counter()
    console.type(b"F" + BULK_BYTES.to_bytes(8, "big"))
    console.count(BULK_BYTES)
    seconds = time.perf_counter() - start
    chain.figures.speed.append(BULK_BYTES / seconds / (1 << 20))
    chain.figures.cpu_per_gigabyte.append((chain.cpu() - before) / (BULK_BYTES / 1e9))
    console.close()


_ROWS: list[tuple[str, Callable[[Figures], list[float]], str]] = [
    ("ms to open a console", lambda of: of.open_ms, "lower is better"),
    ("CPU ms to open", lambda of: of.open_cpu_ms, "lower"),
    ("us round trip of a key", lambda of: of.key_us, "lower"),
    ("CPU us per key", lambda of: of.key_cpu_us, "lower"),
    ("MiB/s", lambda of: of.speed, "higher"),
    ("CPU s per GB", lambda of: of.cpu_per_gigabyte, "lower"),
    ("KiB per idle session", lambda of: of.idle_kib, "lower"),
]


def measure(ours: Chain, theirs: Chain) -> None:
    """Round after round, both in turn; memory first, before there is garbage to be used again."""
    gc.disable()  # of the client
    for chain in (ours, theirs):
        idle(chain)
    for number in range(ROUNDS):
        for what in (openings, keys, bulk):
            for chain in (ours, theirs) if number % 2 == 0 else (theirs, ours):
                what(chain)
    gc.enable()


def report(ours: Chain, theirs: Chain) -> None:
    print("The chain, both hops; medians, and the ratio of ours to ironcore's")
    for title, values, better in _ROWS:
        mine, other = (statistics.median(values(chain.figures)) for chain in (ours, theirs))
        print(
            f"{title:28} ours {mine:9.2f}   ironcore {other:9.2f}   ({mine / other:.2f}x)  {better}"
        )


def missing_programs(make: Make) -> list[str]:
    """Return the names of missing programs: ironcore's and those that they need."""
    programs = [make.program(make.apiserver), make.program("machinepoollet")]
    missing = [os.path.basename(one) for one in programs if not os.access(one, os.X_OK)]
    if needs.kube_apiserver() is not None:
        missing.append("kube-apiserver or etcd")
    return missing + (["kubectl"] if needs.kubectl() is not None else [])


def _chain(cluster: OurCluster | ForeignCluster, target: str) -> Chain:
    """A poollet and a machine for a cluster that is started."""
    chains.prepare(cluster)
    backend = chains.Backend("quick", f"unix://{target}", cluster.make.revision)
    start = chains.our_poollet if cluster.ours else chains.their_poollet
    poollet = start(cluster, "pool", backend)
    spec = {"machineClassRef": {"name": CLASS}, "machinePoolRef": {"name": "pool"}}
    cluster.apply(
        {
            "apiVersion": f"{cluster.make.group}/v1alpha1",
            "kind": "Machine",
            "metadata": {"name": "vm", "namespace": "default"},
            "spec": spec,
        }
    )
    state = ("get", f"machines.{cluster.make.group}", "vm", "-o", "jsonpath={.status.state}")
    cluster.programs.until(
        "the machine runs",
        lambda: kubectl(cluster.kubeconfig, *state, check=False) == "Running",
    )
    name = "ours" if cluster.ours else "ironcore"
    pids = [cluster.programs.pid(one) for one in (cluster.own_program, poollet)]
    return Chain(name, cluster, cluster.own_port, pids)


def main(directory: Path) -> None:
    """Run the whole benchmark, or say what to set."""
    make = ironcore(needs.interop_programs("ironcore"))
    missing = missing_programs(make)
    if missing:
        print(WHAT_TO_SET.format(missing=", ".join(missing)))
        return
    programs = Programs("quick-")
    clusters = OurCluster(make), ForeignCluster(make, needs.kube_apiserver_program() or "")
    try:
        targets = [programs.path(f"sockets-{number}/iri.sock") for number in range(2)]
        # Programs run in a directory of their own, where ``tests`` cannot be imported.
        path = os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")])
        runtime = (sys.executable, "-m", "tests.benchmarks.quick_runtime", *targets)
        programs.run("runtime", *runtime, env={"PYTHONPATH": path.rstrip(os.pathsep)})
        programs.until("the runtime", lambda: "ready" in programs.log("runtime"))
        for cluster in clusters:
            cluster.start()
        ours, theirs = (
            _chain(cluster, target) for cluster, target in zip(clusters, targets, strict=True)
        )
        measure(ours, theirs)
        report(ours, theirs)
    finally:
        for cluster in reversed(clusters):
            cluster.stop()
        programs.stop()
