"""``python -m tests.benchmarks [NAME] ...``: all of them when none is named."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from . import (
    chain,
    etcd,
    ironcore,
    leaf,
    leaf_logs,
    listing,
    one_hop,
    reconcile,
    scale,
    spaces,
    spdy,
    trace,
    watching,
)

BENCHMARKS = {
    "one-hop": one_hop.main,
    "chain": chain.main,
    "ironcore": ironcore.main,
    "spdy": spdy.main,
    "listing": listing.main,
    "watching": watching.main,
    "reconcile": reconcile.main,
    "spaces": spaces.main,
    "etcd": etcd.main,
    "leaf-logs": leaf_logs.main,
    "leaf": leaf.main,
    "scale": scale.main,
    "trace": trace.main,
}

for name in sys.argv[1:] or BENCHMARKS:
    with tempfile.TemporaryDirectory() as scratch:
        BENCHMARKS[name](Path(scratch))
