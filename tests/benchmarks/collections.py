"""
A program of ours that notes every garbage collection of its own.

``python -m tests.benchmarks.collections FILE PROGRAM [options]`` runs it as ``twistd -n PROGRAM``.
Each line of the file is one collection: its generation, its CPU time on the thread in milliseconds,
and the number of objects that were collected.
"""

from __future__ import annotations

import gc
import sys
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Collection:
    """One garbage collection; :attr:`milliseconds` of CPU time on its thread."""

    generation: int
    milliseconds: float
    collected: int


def read(path: Path) -> list[Collection]:
    """Return what a program has noted so far."""
    rows = (line.split() for line in path.read_text().splitlines())
    return [Collection(int(row[0]), float(row[1]), int(row[2])) for row in rows if len(row) == 3]


def note(path: str) -> None:
    """Note this process's collections from now on."""
    file = open(path, "a", buffering=1)  # noqa: SIM115 - open until the process ends
    began = 0.0

    def noted(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.thread_time()
            return
        spent = (time.thread_time() - began) * 1e3
        file.write(f"{info['generation']} {spent:.3f} {info['collected']}\n")

    gc.callbacks.append(noted)


def main() -> None:
    note(sys.argv[1])
    sys.argv[:] = ["twistd", "-n", "--pidfile=", *sys.argv[2:]]
    from twisted.scripts.twistd import run

    run()


if __name__ == "__main__":
    main()
