"""
The search for patterns of alerts, in processes of low priority.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Callable,
    Container,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from twisted_exec.api.patterns import Pattern
from twisted_exec.program import job_processes
from twisted_exec.program.job_messages import encode
from twisted_exec.program.job_processes import JobFailed, JobKind, JobProcesses, JobRefused
from twisted_exec.runtimes.alerts.lines import Piece

SECONDS = 30.0
"""Longest time of one job on a busy host; the CPU time has its own limit."""
RETRY_SECONDS = 1.0
_WAITING = 20_000

SHARE = 0.05
"""Share of a processor that a group may use for ever."""
SECONDS_PER_BYTE = 1e-6
"""CPU time that a group may use besides for each byte that is searched."""
BURST_SECONDS = 10.0
"""CPU time that a group may use beyond both."""
OVER_BUDGET = (
    "suspended: the search for this alert's patterns uses too much CPU time; simplify the patterns"
)


@dataclass(frozen=True)
class Group:
    """The patterns of one alert for a machine; ``key`` identifies alert and patterns."""

    key: str
    numbers: tuple[int, ...]
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True)
class LineMatch:
    piece: int
    offset: int
    text: bytes
    numbers: Sequence[int]


class IJobs(Protocol):
    """As :class:`JobProcesses`."""

    def do(self, message: bytes, key: str) -> Deferred[Any]: ...
    def close(self) -> Deferred[None]: ...


def command() -> list[str]:
    return job_processes.command("twisted_exec.runtimes.alerts.process")


def search_processes(reactor: Any) -> IJobs:
    kind = JobKind(
        _result,
        "the search for alerts",
        "searches for alerts wait",
        "the machine runtime",
        SECONDS,
        waiting=_WAITING,
    )
    return JobProcesses(reactor, command, kind)


class CPUBudget:
    """The CPU time of one group."""

    def __init__(self) -> None:
        self._excess = 0.0
        self._at = 0.0

    def spend(self, seconds: float, size: int, now: float) -> bool:
        """Count a search; return false if the budget is used up."""
        rested = max(0.0, now - self._at) * SHARE
        self._at = now
        self._excess = max(0.0, self._excess - rested)
        self._excess += max(0.0, seconds - size * SECONDS_PER_BYTE)
        return self._excess <= BURST_SECONDS


class OutputSearch:
    """Searches pieces of output for groups of patterns."""

    _log = Logger()

    def __init__(self, jobs: IJobs, clock: IReactorTime, suspended: Callable[[str], None]) -> None:
        self._jobs, self._clock, self._on_suspended = jobs, clock, suspended
        self._budgets: dict[str, CPUBudget] = {}
        self._suspended: dict[str, str] = {}
        self._stopped = False

    @property
    def suspended(self) -> Mapping[str, str]:
        """Why groups are not searched, by their keys."""
        return self._suspended

    def keep(self, keys: set[str]) -> None:
        for of_groups in (self._budgets, self._suspended):
            for key in [each for each in of_groups if each not in keys]:
                del of_groups[key]

    async def find(
        self, key: str, groups: Sequence[Group], pieces: Sequence[Piece]
    ) -> AsyncIterator[list[LineMatch]]:
        """
        Yield the matches in pieces of output, one list for each answer of a process.

        :param key: identifies the groups; jobs of different keys take turns.
        """
        step, is_single = 0, False
        unknown: set[str] = set()
        while step < len(groups) * len(pieces):
            at, group_number = divmod(step, len(groups))
            rest = pieces[at:]
            message = _message(groups, rest, group_number, unknown, self._suspended, is_single)
            try:
                head, texts = await self._jobs.do(message, key)
            except JobRefused:
                if self._stopped:
                    return
                # Not a WorkQueue: the jobs have one, and refuse while others have their turn.
                await deferLater(self._clock, RETRY_SECONDS)
            except JobFailed as problem:
                if self._stopped:
                    return
                if is_single:
                    self._suspend(groups[group_number].key, f"suspended: {problem}")
                    step += 1
                is_single = True  # a group fails; the next jobs show which
            else:
                unknown = set(head.get("unknown", ()))
                if unknown:
                    continue
                self._count(head)
                step = at * len(groups) + head["next"]
                yield list(_matches(head, texts, groups, rest, at))

    def _count(self, head: Mapping[str, Any]) -> None:
        for key, problem in head["failed"].items():
            self._suspend(key, problem)
        for key, (seconds, size) in head["groups"].items():
            budget = self._budgets.setdefault(key, CPUBudget())
            if not budget.spend(seconds, size, self._clock.seconds()):
                self._suspend(key, OVER_BUDGET)

    def _suspend(self, key: str, why: str) -> None:
        if key not in self._suspended:
            self._log.warn("patterns of alert {key}: {why}", key=key, why=why)
            self._suspended[key] = why
            self._on_suspended(key)

    def stop(self) -> Deferred[None]:
        self._stopped = True
        return self._jobs.close()


def _message(
    groups: Sequence[Group],
    pieces: Sequence[Piece],
    first: int,
    unknown: Container[str],
    suspended: Container[str],
    is_single: bool,
) -> bytes:
    job = {
        "patterns": {
            each.key: [(pattern.text, pattern.is_regex) for pattern in each.patterns]
            for each in groups
            if each.key in unknown
        },
        "groups": [each.key for each in groups],
        "skipped": [each.key for each in groups if each.key in suspended],
        "pieces": [(len(piece.data), piece.is_line) for piece in pieces],
        "first": first,
        "is_single": is_single,
    }
    return encode(job, b"".join(piece.data for piece in pieces))


def _matches(
    head: Mapping[str, Any],
    texts: bytes,
    groups: Sequence[Group],
    pieces: Sequence[Piece],
    first: int,
) -> Iterator[LineMatch]:
    at = 0
    for piece, group, place, numbers, size in head["matches"]:
        numbers = [groups[group].numbers[number] for number in numbers]
        text = texts[at : at + size]
        yield LineMatch(first + piece, pieces[piece].offset + place, text, numbers)
        at += size


def _result(head: Any, body: bytes) -> tuple[Mapping[str, Any], bytes]:
    if not isinstance(head, dict) or not ("unknown" in head or "next" in head):
        raise ValueError("it is no result of a search")
    return head, body
