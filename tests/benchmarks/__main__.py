"""``python -m tests.benchmarks [one-hop] [chain] [spdy]``: all of them when none is named."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from . import chain, one_hop, spdy

BENCHMARKS = {"one-hop": one_hop.main, "chain": chain.main, "spdy": spdy.main}

for name in sys.argv[1:] or BENCHMARKS:
    with tempfile.TemporaryDirectory() as scratch:
        BENCHMARKS[name](Path(scratch))
