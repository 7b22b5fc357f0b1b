"""
The process that searches the output of machines.
"""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import product
from time import thread_time
from typing import Any

from twisted_exec.api.patterns import Pattern, PatternError, PatternSet
from twisted_exec.program.job_limits import allow_time, limit_process
from twisted_exec.program.job_messages import encode, read
from twisted_exec.runtimes.alerts.lines import Piece, matching_lines

MEMORY_BYTES = 768 << 20
CPU_SECONDS = 4
"""CPU time of one job; a job normally ends much sooner."""
PRIORITY = 19
"""Niceness of the process, see ``nice(1)``."""
TURN_SECONDS = 0.1
"""CPU time after which a job is answered, with what is done until then."""
MOST_MATCHES = 500
"""Matches after which a job is answered."""
LINE_BYTES = 1 << 10
"""Limit of a line in a match."""

_KNOWN_GROUPS = 4096
_COMPILED_GROUPS = 16
"""RE2 may use 16 MiB for each."""


def main() -> None:
    """Answer jobs until the input ends."""
    limit_process(MEMORY_BYTES)
    os.nice(PRIORITY)
    searcher = Searcher()
    while (message := read(sys.stdin.buffer)) is not None:
        allow_time(CPU_SECONDS)
        sys.stdout.buffer.write(searcher.answer(*message))
        sys.stdout.buffer.flush()


@dataclass
class _Found:
    matches: list[tuple[int, int, int, list[int], int]] = field(default_factory=list)
    texts: list[bytes] = field(default_factory=list)
    groups: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


class Searcher:
    """
    Searches output for patterns, job by job.

    A job has pieces of output, and the keys of groups of patterns. Each group in each piece is one
    step. The answer says with which step the next job goes on, or which keys are unknown.
    """

    def __init__(self) -> None:
        self._groups: OrderedDict[str, tuple[Pattern, ...]] = OrderedDict()
        self._compiled: OrderedDict[str, PatternSet] = OrderedDict()

    def answer(self, job: dict[str, Any], body: bytes) -> bytes:
        for key, several in job["patterns"].items():
            self._groups[key] = tuple(Pattern(text, is_regex) for text, is_regex in several)
        unknown = [key for key in job["groups"] if key not in self._groups]
        if unknown:
            return encode({"unknown": unknown})
        for key in job["groups"]:
            self._groups.move_to_end(key)
        while len(self._groups) > max(_KNOWN_GROUPS, len(job["groups"])):
            self._groups.popitem(last=False)
        pieces, at = [], 0
        for size, is_line in job["pieces"]:
            pieces.append(Piece(0, body[at : at + size], is_line))
            at += size
        found = _Found()
        step = self._search(job, pieces, found)
        head = {
            "next": step,
            "matches": found.matches,
            "groups": found.groups,
            "failed": found.failed,
        }
        return encode(head, b"".join(found.texts))

    def _search(self, job: dict[str, Any], pieces: list[Piece], found: _Found) -> int:
        until = thread_time() + TURN_SECONDS
        steps = list(product(enumerate(pieces), enumerate(job["groups"])))
        step = first = int(job["first"])
        skipped = set(job["skipped"])
        for (piece_number, piece), (group_number, key) in steps[first:]:
            if step > first and (
                job["is_single"] or thread_time() >= until or len(found.matches) >= MOST_MATCHES
            ):
                break
            step += 1
            if key in skipped:
                continue
            try:
                patterns = self._patterns(key)
            except PatternError as problem:
                found.failed[key] = str(problem)
                continue
            began = thread_time()
            for place, text, numbers in matching_lines(piece, patterns):
                text = text[:LINE_BYTES]
                found.matches.append((piece_number, group_number, place, numbers, len(text)))
                found.texts.append(text)
            used = found.groups.setdefault(key, [0.0, 0])
            used[0] += thread_time() - began
            used[1] += len(piece.data)
        return step

    def _patterns(self, key: str) -> PatternSet:
        several = self._groups[key]
        if not any(pattern.is_regex for pattern in several):
            return PatternSet(several)
        if key not in self._compiled:
            self._compiled[key] = PatternSet(several)
        self._compiled.move_to_end(key)
        if len(self._compiled) > _COMPILED_GROUPS:
            self._compiled.popitem(last=False)
        return self._compiled[key]
