"""
``python -m tests.benchmarks [NAME [ROW ...]] ...``: all of them when none is named.

``fairness`` takes the names of its rows, ``revocation`` an arrangement and the names of causes, and
``resume`` the names of its parts.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.flows import forks

from . import (
    burst,
    chain,
    etcd,
    fleets,
    ironcore,
    journal,
    listing,
    one_hop,
    reconcile,
    recorded,
    scale,
    spdy,
    trace,
    watching,
)
from .fairness import bench as fairness_bench
from .leaf import logs as leaf_logs
from .leaf import recorded as leaf_recorded
from .leaf import streams as leaf_streams
from .resume import bench as resume_bench
from .revocation import bench as revocation_bench
from .spaces import bench as spaces_bench

BENCHMARKS = {
    "one-hop": one_hop.main,
    "chain": chain.main,
    "ironcore": ironcore.main,
    "spdy": spdy.main,
    "listing": listing.main,
    "watching": watching.main,
    "reconcile": reconcile.main,
    "spaces": spaces_bench.main,
    "etcd": etcd.main,
    "leaf-logs": leaf_logs.main,
    "leaf": leaf_streams.main,
    "leaf-recorded": leaf_recorded.main,
    "recorded": recorded.main,
    "scale": scale.main,
    "burst": burst.main,
    "fairness": fairness_bench.main,
    "trace": trace.main,
    "journal": journal.main,
    "fleets": fleets.main,
    "revocation": revocation_bench.main,
    "resume": resume_bench.main,
}


def arguments(words: list[str]) -> list[tuple[str, list[str]]]:
    """Each benchmark that is named, with the words behind it."""
    named: list[tuple[str, list[str]]] = []
    for word in words:
        if word in BENCHMARKS:
            named.append((word, []))
        elif named:
            named[-1][1].append(word)
        else:
            sys.exit(f"no such benchmark: {word}; there are {', '.join(BENCHMARKS)}")
    return named


# Forks share memory, and cost less CPU time than the programs that users start.
forks.enabled = False
for name, rows in arguments(sys.argv[1:] or list(BENCHMARKS)):
    with tempfile.TemporaryDirectory() as scratch:
        BENCHMARKS[name](Path(scratch), *rows)
