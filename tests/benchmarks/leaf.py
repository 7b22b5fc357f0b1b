"""
A Pod of a leaf cluster, through root and node server, against the same leaf asked directly.

kubectl does both, in turn, round after round, so that a drifting machine drifts for both; medians are
printed, and their ratio.  The clusters are real ones (see :mod:`tests.interop`), with a kubelet whose
containers are processes of this host.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests import needs, procfs
from tests.flows import kubectls
from tests.interop.leaf_clusters import NODE_SERVER, LeafClusters

BULK_BYTES = 200_000_000
ROUNDS = 7
OPENINGS = 40
EXEC = ("exec", "web", "-c", "main", "--")


class Ways:
    """Both ways to the Pod, for one kubectl."""

    def __init__(self, clusters: LeafClusters, program: str) -> None:
        self._program = program
        self._kubeconfigs = {
            "through": clusters.root.kubeconfig,
            "direct": clusters.leaf.kubeconfig,
        }

    def start(self, way: str, *argv: str) -> subprocess.Popen[bytes]:
        """Begin a command, whose output nobody reads."""
        return subprocess.Popen(
            [self._program, f"--kubeconfig={self._kubeconfigs[way]}", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def seconds(self, way: str, *argv: str) -> float:
        """Of one command, from start to end."""
        begun = time.perf_counter()
        if self.start(way, *argv).wait():
            raise AssertionError(f"{way}: kubectl {' '.join(argv)}")
        return time.perf_counter() - begun

    def compared(self, rounds: int, *argv: str) -> tuple[float, float]:
        """Medians of both ways, in seconds."""
        times: dict[str, list[float]] = {"through": [], "direct": []}
        for number in range(rounds + 1):
            for way, found in times.items():
                taken = self.seconds(way, *argv)
                if number:  # The first one finds nothing in any cache.
                    found.append(taken)
        return statistics.median(times["through"]), statistics.median(times["direct"])


def bulk(ways: Ways, pid: int) -> None:
    """What a command prints as fast as it can."""
    before = procfs.cpu_seconds(pid)
    through, direct = ways.compared(ROUNDS, *EXEC, "head", "-c", str(BULK_BYTES), "/dev/zero")
    spent = (procfs.cpu_seconds(pid) - before) / (ROUNDS + 1)
    _row(f"s for {BULK_BYTES / 1e6:.0f} MB of exec", through, direct)
    print(f"{'':4}CPU s of the node server: {spent:.2f}")


def openings(ways: Ways, pid: int) -> None:
    """A command that does nothing."""
    before = procfs.cpu_seconds(pid)
    through, direct = ways.compared(OPENINGS, *EXEC, "true")
    spent = (procfs.cpu_seconds(pid) - before) / (OPENINGS + 1)
    _row("ms for exec true", through * 1e3, direct * 1e3)
    print(f"{'':4}CPU ms of the node server: {spent * 1e3:.1f}")


def _row(title: str, through: float, direct: float) -> None:
    ratio = through / direct
    print(f"{title:28} through {through:8.3f}   leaf alone {direct:8.3f}   ({ratio:.2f}x)")


def measured(clusters: LeafClusters, programs: Sequence[str]) -> None:
    """Everything, with each of some kubectls."""
    pid = clusters.programs.pid(NODE_SERVER)
    found = kubectls.found()
    for name in programs:
        print(name)
        ways = Ways(clusters, found[name])
        openings(ways, pid)
        bulk(ways, pid)


def main(directory: Path) -> None:
    """Run the whole benchmark."""
    if why := needs.leaf_clusters():
        print(f"leaf clusters are not measured: {why}")
        return
    clusters = LeafClusters("bench")
    try:
        clusters.start()
        clusters.start_node_server()
        clusters.wait_for_node()
        clusters.add_pod()
        print("A Pod of a leaf: through root and node server, or in the leaf itself")
        measured(clusters, kubectls.some())
    finally:
        clusters.stop()
