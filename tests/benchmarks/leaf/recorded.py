"""
A recorded stream of a Pod of a leaf, beside the same one that is not recorded.

The clusters are real ones, as for ``leaf``.  One node server records Pods with a label, which the Pod
gets and loses in turn.  ``python -m tests.benchmarks leaf-recorded`` takes a minute.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections import defaultdict
from pathlib import Path

from tests import needs, procfs
from tests.flows import kubectls
from tests.interop.hosts import kubectl
from tests.interop.leaf_clusters import NODE_SERVER, LeafClusters

_LINES = 3_000_000
COMMANDS = {"true": (("true",), 20), "text": (("seq", str(_LINES)), 5)}
"""A command, and how often it is run."""
WAYS = ("spliced", "recorded")


def main(scratch: Path) -> None:
    """Run the benchmark."""
    if why := needs.leaf_clusters():
        print(f"recorded leaf streams are not measured: {why}")
        return
    clusters = LeafClusters("bench-recorded")
    try:
        clusters.start()
        recorder = clusters.root.pki.issue_recorder("node-a")
        port = clusters.start_node_server(
            "--upkeep=none",
            "--record-namespaces=default",
            "--record-selector=recorded=yes",
            f"--recorder-certificate={recorder.certificate}",
            f"--recorder-key={recorder.key}",
            f"--recording-dir={scratch}/recordings",
            f"--recording-store=file://{scratch.resolve()}/store",
        )
        clusters.publish(port)
        clusters.add_pod()
        for name in COMMANDS:
            measure(clusters, name)
    finally:
        clusters.stop()


def measure(clusters: LeafClusters, name: str) -> None:
    """Print both ways of a command."""
    command, rounds = COMMANDS[name]
    program, server = kubectls.found()[kubectls.some()[-1]], clusters.programs.pid(NODE_SERVER)
    argv = [program, f"--kubeconfig={clusters.root.kubeconfig}", "exec", "web", "-c", "main", "--"]
    seconds, spent = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for number in range(rounds + 1):
        for way in WAYS:
            label = "recorded=yes" if way == "recorded" else "recorded-"
            kubectl(clusters.root.kubeconfig, "label", "pod", "web", label, "--overwrite")
            time.sleep(0.5)
            before, begun = procfs.cpu_seconds(server), time.perf_counter()
            subprocess.run(
                [*argv, *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True
            )
            taken = time.perf_counter() - begun
            time.sleep(0.5)  # the end of the recording is signed and stored
            if number:  # the first one finds nothing in any cache
                seconds[way].append(taken)
                spent[way].append(procfs.cpu_seconds(server) - before)
    print(f"ms for {' '.join(command)}; the machine's load is {os.getloadavg()[0]:.1f}")
    for way in WAYS:
        ratio = statistics.mean(spent[way]) / max(statistics.mean(spent[WAYS[0]]), 1e-9)
        print(
            f"  {way:10} least {1e3 * min(seconds[way]):8.1f}  median {1e3 * statistics.median(seconds[way]):8.1f}"
            f"  CPU of the node server {1e3 * statistics.mean(spent[way]):8.1f} ({ratio:.2f}x)"
        )
