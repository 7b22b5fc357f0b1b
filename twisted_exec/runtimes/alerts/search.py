"""
The search for patterns of alerts, in processes of low priority, and the patterns of each owner.
"""

from __future__ import annotations

import hashlib
from collections.abc import (
    AsyncIterator,
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from twisted_exec.api.patterns import (
    MOST_BYTES,
    SUPPORTED,
    UNSUPPORTED,
    Pattern,
    problems,
)
from twisted_exec.api.status import BadRequest
from twisted_exec.iri.protos import console_pb2
from twisted_exec.program import job_processes
from twisted_exec.program.job_messages import encode
from twisted_exec.program.job_processes import JobFailed, JobKind, JobProcesses, JobRefused
from twisted_exec.program.turns import ShortTurns
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


MOST_PATTERNS = 1024
"""Limit of the patterns of one owner."""
MOST_MACHINES = 20_000
_MOST_TEXT = 256


@dataclass(frozen=True)
class AlertRule:
    """
    The patterns for one machine.

    :param key: the same for machines with the same patterns.
    :param since: older output is not searched; nanoseconds since the epoch.
    """

    key: str
    patterns: Mapping[int, console_pb2.AlertPattern]
    groups: Sequence[Group]
    since: int

    @property
    def has_conditions(self) -> bool:
        return any(pattern.condition for pattern in self.patterns.values())


_Kind = tuple[str, Mapping[int, console_pb2.AlertPattern], Sequence[Group]]


@dataclass(frozen=True)
class Rules:
    """
    The alert rules of one owner.

    :param problems: why patterns are not searched, by their numbers.
    """

    generation: str = ""
    by_uid: Mapping[str, AlertRule] = field(default_factory=dict)
    problems: Mapping[int, str] = field(default_factory=dict)
    groups: frozenset[str] = frozenset()


def check_rules(request: console_pb2.SetAlertsRequest) -> None:
    """
    Check a request of an owner.

    :raises BadRequest: the request exceeds a limit, or contradicts itself.
    """
    if len(request.patterns) > MOST_PATTERNS:
        raise BadRequest(f"{len(request.patterns)} patterns are more than {MOST_PATTERNS}")
    if len(request.machines) > MOST_MACHINES:
        raise BadRequest(f"{len(request.machines)} machines are more than {MOST_MACHINES}")
    if len(request.generation) > _MOST_TEXT:
        raise BadRequest("the generation is too long")
    for pattern in request.patterns:
        _check(pattern)


async def read_rules(
    request: console_pb2.SetAlertsRequest, suspended: Mapping[str, str], clock: IReactorTime
) -> Rules:
    """
    Read a checked request, in short turns of the reactor.

    :raises BadRequest: the request contradicts itself.
    """
    turns = ShortTurns(clock)
    wrong: dict[int, str] = {}
    for numbers in _by_alert(request.patterns, range(len(request.patterns))):
        expressions = [number for number in numbers if request.patterns[number].regex]
        several = problems(request.patterns[number].regex for number in expressions)
        for number, problem in zip(expressions, several, strict=True):
            if problem := problem or ("" if SUPPORTED else UNSUPPORTED):
                wrong[number] = problem
            await turns.breathe()
    groups: dict[tuple[int, ...], Group] = {}
    kinds: dict[tuple[int, ...], _Kind] = {}
    by_uid: dict[str, AlertRule] = {}
    for machine in request.machines:
        await turns.breathe()
        numbers = tuple(sorted(set(machine.patterns)))
        if numbers and numbers[-1] >= len(request.patterns):
            raise BadRequest(f"there is no pattern {numbers[-1]}")
        if numbers not in kinds:
            right = [number for number in numbers if number not in wrong]
            of_machine = list(_by_alert(request.patterns, right))
            for each in of_machine:
                if each not in groups:
                    groups[each] = _group(request.patterns, each)
            active = [groups[each] for each in of_machine if groups[each].key not in suspended]
            key = _digest([group.key for group in active])
            kinds[numbers] = key, {number: request.patterns[number] for number in right}, active
        key, patterns, several_groups = kinds[numbers]
        if several_groups and machine.uid:
            by_uid[machine.uid] = AlertRule(key, patterns, several_groups, machine.since)
    for group in groups.values():
        for number in group.numbers if group.key in suspended else ():
            wrong[number] = suspended[group.key]
    keys = frozenset(group.key for group in groups.values())
    return Rules(request.generation, by_uid, wrong, keys)


def _by_alert(
    patterns: Sequence[console_pb2.AlertPattern], numbers: Iterable[int]
) -> Iterator[tuple[int, ...]]:
    alerts: dict[str, list[int]] = {}
    for number in numbers:
        alerts.setdefault(patterns[number].id.rpartition("/")[0], []).append(number)
    return map(tuple, alerts.values())


def _group(patterns: Sequence[console_pb2.AlertPattern], numbers: tuple[int, ...]) -> Group:
    several = tuple(_pattern(patterns[number]) for number in numbers)
    uid = patterns[numbers[0]].id.rpartition("/")[0]
    return Group(f"{uid}/{_digest(several)}", numbers, several)


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:32]


def _pattern(pattern: console_pb2.AlertPattern) -> Pattern:
    if pattern.regex:
        return Pattern(pattern.regex, is_regex=True)
    return Pattern(pattern.literal)


def _check(pattern: console_pb2.AlertPattern) -> None:
    if bool(pattern.literal) == bool(pattern.regex):
        raise BadRequest(
            f"pattern {pattern.id[:_MOST_TEXT]}: either a literal or a regex must be set"
        )
    if len(pattern.id) > _MOST_TEXT or len(pattern.condition) > _MOST_TEXT:
        raise BadRequest("the id or the condition of a pattern is too long")
    if len(pattern.literal.encode()) > MOST_BYTES:
        raise BadRequest(f"pattern {pattern.id}: it has more than {MOST_BYTES} bytes")
