"""
The patterns of one owner, and the machines to which they apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from twisted_exec.api.patterns import (
    MOST_BYTES,
    SUPPORTED,
    UNSUPPORTED,
    Pattern,
    PatternSet,
    problem,
)
from twisted_exec.api.status import BadRequest
from twisted_exec.iri.protos import console_pb2

MOST_PATTERNS = 1024
"""Limit of the patterns of one owner."""
MOST_MACHINES = 20_000
_MOST_TEXT = 256


@dataclass(frozen=True)
class Rule:
    """
    The patterns for one machine.

    :param patterns: by the numbers that ``search`` returns.
    :param since: older output is not searched; nanoseconds since the epoch.
    """

    patterns: Sequence[console_pb2.AlertPattern]
    search: PatternSet
    since: int

    @property
    def has_conditions(self) -> bool:
        """Return whether a pattern has a condition."""
        return any(pattern.condition for pattern in self.patterns)


@dataclass(frozen=True)
class Rules:
    """
    :param by_uid: by the UID of the machine's API object.
    :param problems: expressions that are not searched, by their numbers: another one's mistake must
        not end the search for the rest.
    """

    generation: str = ""
    by_uid: Mapping[str, Rule] = field(default_factory=dict)
    problems: Mapping[int, str] = field(default_factory=dict)


def read_rules(request: console_pb2.SetAlertsRequest) -> Rules:
    """
    Check a request before anything is made of it.

    :raises BadRequest: it exceeds a limit, or contradicts itself.
    """
    if len(request.patterns) > MOST_PATTERNS:
        raise BadRequest(f"{len(request.patterns)} patterns are more than {MOST_PATTERNS}")
    if len(request.machines) > MOST_MACHINES:
        raise BadRequest(f"{len(request.machines)} machines are more than {MOST_MACHINES}")
    if len(request.generation) > _MOST_TEXT:
        raise BadRequest("the generation is too long")
    problems = {}
    for number, pattern in enumerate(request.patterns):
        _check(pattern)
        if pattern.regex and (
            wrong := problem(pattern.regex) or ("" if SUPPORTED else UNSUPPORTED)
        ):
            problems[number] = wrong
    sets: dict[tuple[int, ...], PatternSet] = {}
    by_uid = {}
    for machine in request.machines:
        numbers = tuple(sorted(set(machine.patterns)))
        if numbers and numbers[-1] >= len(request.patterns):
            raise BadRequest(f"there is no pattern {numbers[-1]}")
        numbers = tuple(number for number in numbers if number not in problems)
        patterns = [request.patterns[number] for number in numbers]
        if numbers not in sets:
            sets[numbers] = PatternSet([_pattern(each) for each in patterns])
        if numbers and machine.uid:
            by_uid[machine.uid] = Rule(patterns, sets[numbers], machine.since)
    return Rules(request.generation, by_uid, problems)


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
