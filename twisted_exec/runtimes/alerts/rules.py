"""
The patterns that owners have set, and the machines to which they apply.
"""

from __future__ import annotations

import hashlib
from collections.abc import (
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.patterns import (
    MOST_BYTES,
    SUPPORTED,
    UNSUPPORTED,
    Pattern,
    problems,
)
from twisted_exec.api.status import BadRequest
from twisted_exec.iri.protos import console_pb2
from twisted_exec.program.turns import ShortTurns
from twisted_exec.runtimes.alerts.search import Group

MOST_PATTERNS = 1024
"""Limit of the patterns of one owner."""
MOST_MACHINES = 20_000
_MOST_TEXT = 256

_Kind = tuple[str, Mapping[int, console_pb2.AlertPattern], Sequence[Group]]


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
