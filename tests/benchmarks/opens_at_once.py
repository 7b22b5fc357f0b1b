"""
1 000 consoles opened at once through API server and poollet, beside ironcore's.

Both chains run, with the same runtime behind them and the same client before them; they are measured in
turn, round after round, and the order alternates.  A console is open when its first byte has come: a
greeting.  The client is one process, and its TLS is part of each figure, for both alike.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from .scale import WARM, Chain, Start, close_all, open_all, with_clusters

COUNT = 1000
ROUNDS = 5
_SETTLE_SECONDS = 3.0


@dataclass
class Figures:
    """Of each round: seconds until half and all have their first byte, CPU seconds of both hops."""

    half: list[float] = field(default_factory=list)
    all: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)


def measure(chain: Chain, figures: Figures) -> None:
    """Open all of them once."""
    cpu, began = sum(chain.cpu().values()), time.perf_counter()
    opened = open_all(chain.opening, COUNT, COUNT)
    came = sorted(each.began + each.seconds - began for each in opened if each.code == 101)
    if came:
        figures.half.append(came[len(came) // 2])
        figures.all.append(came[-1])
        figures.cpu.append(sum(chain.cpu().values()) - cpu)
    figures.codes.update(each.code for each in opened)
    close_all(opened)
    time.sleep(_SETTLE_SECONDS)


def report(figures: dict[str, Figures]) -> None:
    """Print medians, and the ratio of ours to ironcore's, if it was measured."""
    print(
        f"{COUNT} consoles at once, {ROUNDS} rounds; medians, and the ratio of ours to ironcore's"
    )
    for title, name in (
        ("s until half have a byte", "half"),
        ("s until all have a byte", "all"),
        ("CPU s of both hops", "cpu"),
    ):
        medians = {who: statistics.median(getattr(of, name)) for who, of in figures.items()}
        told = "   ".join(f"{who} {value:7.2f}" for who, value in medians.items())
        mine, *others = medians.values()
        ratio = f"   ({mine / others[0]:.2f}x)" if others else ""
        print(f"{title:28} {told}{ratio}  lower is better")
    for who, of in figures.items():
        refused = {code: count for code, count in of.codes.items() if code != 101}
        if refused:
            print(f"{who}: not opened, by HTTP code: {refused}")


def main(directory: Path) -> None:
    """Run the whole benchmark; without ironcore's programs ours alone."""

    def work(starts: list[Start]) -> None:
        chains = [start() for start in starts]
        figures = {chain.name: Figures() for chain in chains}
        for chain in chains:
            close_all(open_all(chain.opening, WARM, 1))
        for number in range(ROUNDS):
            for chain in chains if number % 2 == 0 else reversed(chains):
                measure(chain, figures[chain.name])
        report(figures)

    with_clusters("opens-at-once", None, work)
