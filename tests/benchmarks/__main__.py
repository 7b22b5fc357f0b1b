"""
``python -m tests.benchmarks [NAME [WORD ...]] ...`` runs all of them when none is named; ``--help`` lists
them.  A line above the figures of each names the interpreter.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.flows import forks

from . import (
    bare_hop,
    bare_metal,
    burst,
    chain,
    etcd,
    flames,
    fleets,
    frozen_store,
    interpreter,
    ironcore,
    journal,
    listing,
    one_hop,
    opens_at_once,
    reconcile,
    recorded,
    scale,
    spdy,
    ssh_door,
    starts,
    syscalls,
    trace,
    waiting_agents,
    watching,
)
from .fairness import bench as fairness_bench
from .leaf import logs as leaf_logs
from .leaf import recorded as leaf_recorded
from .leaf import streams as leaf_streams
from .limits import limited
from .restarts import bench as restarts_bench
from .resume import bench as resume_bench
from .revocation import bench as revocation_bench
from .spaces import bench as spaces_bench


@dataclass(frozen=True)
class Benchmark:
    """
    What a name on the command line runs.

    :ivar run: takes a directory for its files, and the words behind the name; it prints its figures.
    :ivar line: explains it in ``--help``.
    :ivar minutes: its limit, several times what it takes; see :mod:`.limits`.
    """

    run: Callable[..., None]
    line: str
    minutes: float = 60


BENCHMARKS = {
    "one-hop": Benchmark(
        one_hop.main,
        "one proxy with TLS on both sides: ours, nginx's stream proxy, and no proxy",
    ),
    "bare-hop": Benchmark(
        bare_hop.main,
        "the limit of a hop in Python: bare TLS without Twisted, beside nginx and ours",
    ),
    "bare-metal": Benchmark(
        bare_metal.main,
        "[PART ...]: 200 small BMCs behind one runtime, and consoles beside ipmitool, ssh and a bare WebSocket",
    ),
    "chain": Benchmark(
        chain.main,
        "API server, poollet and runtime with a real shell, beside the runtime alone",
    ),
    "starts": Benchmark(
        starts.main,
        "CPU and first byte of kubectl console and attach, and CPU of a program's start",
    ),
    "syscalls": Benchmark(
        syscalls.main,
        "system calls of each hop for a key and for an opening, counted by strace",
    ),
    "flames": Benchmark(
        flames.main,
        "DIRECTORY: flame graphs of API server and poollet, by py-spy, of openings and keys",
    ),
    "ironcore": Benchmark(
        ironcore.main,
        "our API server and poollet beside ironcore's own: open, key, output, memory",
    ),
    "spdy": Benchmark(
        spdy.main,
        "the SPDY codec alone, beside the copying that every implementation needs",
    ),
    "ssh-door": Benchmark(
        ssh_door.main,
        "a console by ssh through exec-sshd, beside sshd and kubectl console: open, key, output, memory",
    ),
    "waiting-agents": Benchmark(
        waiting_agents.main,
        "exec-mcp with 1 000 agents of 500 people that wait for output: memory and CPU",
    ),
    "listing": Benchmark(
        listing.main,
        "lists of 5 000 machines in each form, beside json.dumps of the same document",
    ),
    "watching": Benchmark(
        watching.main,
        "memory of 1 000 idle watches, and the time until all have a change",
    ),
    "reconcile": Benchmark(
        reconcile.main,
        "time until 100 applied machines run; the cost of an idle poollet with 2 000",
    ),
    "spaces": Benchmark(
        spaces_bench.main,
        "a manager of 1 000 Spaces and a client of all of them, idle and at work",
    ),
    "etcd": Benchmark(
        etcd.main,
        "writes, lists and reads on a real etcd, beside bare gRPC calls and SQLite",
    ),
    "leaf-logs": Benchmark(
        leaf_logs.main,
        "memory and time of 1 000 followers of logs through a node server",
    ),
    "leaf": Benchmark(
        leaf_streams.main,
        "kubectl exec in a Pod of a leaf through a node server, beside the leaf itself",
    ),
    "leaf-recorded": Benchmark(
        leaf_recorded.main,
        "a recorded stream of a leaf's Pod beside one that is not recorded",
    ),
    "recorded": Benchmark(
        recorded.main,
        "a recorded console beside one that is not recorded",
    ),
    "scale": Benchmark(
        scale.main,
        "100 000 machines; 10 to 9 900 idle consoles, and 1 000 opened at once, beside ironcore's",
        minutes=240,
    ),
    "opens-at-once": Benchmark(
        opens_at_once.main,
        "1 000 consoles opened at once, beside ironcore's: until all have their first byte",
    ),
    "burst": Benchmark(
        burst.main,
        "1 000 consoles opened at once while each program has a tenth of a core (as root)",
    ),
    "frozen-store": Benchmark(
        frozen_store.main,
        "keys in an open console while etcd stands still, twenty times for 15 s",
    ),
    "fairness": Benchmark(
        fairness_bench.main,
        "[ROW ...]: keys of a quiet user while another user works at full speed",
        minutes=180,
    ),
    "trace": Benchmark(
        trace.main,
        "counts of the code that the API server runs for one kubectl exec",
    ),
    "journal": Benchmark(
        journal.main,
        "memory, disk, start and CPU of a runtime's journals, beside plain files",
    ),
    "fleets": Benchmark(
        fleets.main,
        "the consoles of 200 machines in one terminal, one of which prints without end",
    ),
    "revocation": Benchmark(
        revocation_bench.main,
        "[--on=ARRANGEMENT] [CAUSE ...]: from the withdrawal of a right to the last byte",
        minutes=180,
    ),
    "restarts": Benchmark(
        restarts_bench.main,
        "[SESSIONS [RESTARTS [PART ...]]]: planned restarts of programs below sessions, and the pauses of their users",
    ),
    "resume": Benchmark(
        resume_bench.main,
        "[PART ...]: costs of resumable and rejoined sessions, and how soon they go on",
    ),
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


def usage() -> str:
    """Return the text of ``--help``."""
    lines = [f"  {name:14} {benchmark.line}" for name, benchmark in BENCHMARKS.items()]
    return "\n".join(["usage: python -m tests.benchmarks [NAME [WORD ...]] ...", "", *lines])


def main(words: list[str]) -> None:
    """Run benchmarks, by default all."""
    if {"-h", "--help"} & set(words):
        print(usage())
        return
    # Forks share memory, and cost less CPU time than the programs that users start.
    forks.enabled = False
    for name, rest in arguments(words or [*BENCHMARKS]):
        print(interpreter.heading(name), flush=True)
        benchmark = BENCHMARKS[name]
        with tempfile.TemporaryDirectory() as scratch, limited(name, benchmark.minutes * 60):
            benchmark.run(Path(scratch), *rest)


if __name__ == "__main__":
    main(sys.argv[1:])
