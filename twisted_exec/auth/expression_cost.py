"""
Bounds of the cost of CEL expressions, by the size of their values.

The unit of a bound is about a nanosecond.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

_KEPT = 1024
_NODE_BYTES = 16
"""The cost of a number, a string or a container beside its characters."""
_MOST_NODES = 20_000

_LOOPS = frozenset({"all", "exists", "exists_one", "existsOne", "map", "filter"})
# fmt: off
_LINEAR = frozenset((
    "has", "size", "startsWith", "endsWith", "string", "int", "uint", "double", "bool",
    "bytes", "type", "dyn", "timestamp", "duration", "lowerAscii", "upperAscii", "trim",
    "substring", "charAt", "optMap", "optFlatMap", "or", "orValue", "hasValue", "value", "of",
    "none", "ofNonZeroValue", "getFullYear", "getMonth", "getDate", "getDayOfMonth",
    "getDayOfWeek", "getDayOfYear", "getHours", "getMinutes", "getSeconds", "getMilliseconds",
))
# fmt: on
_WITH_LITERALS = frozenset({"contains", "indexOf", "lastIndexOf", "split", "replace", "join"})
"""Functions whose cost is linear if each argument is a string literal."""

_STRING = (
    r'(?:[bB]?[rR]|[rR][bB])?(?:"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\''
    r'|(?<=[rR])"[^"\n]*"|(?<=[rR])\'[^\'\n]*\''
    r'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')'
)
_TOKEN = re.compile(
    rf"(?P<space>\s+|//[^\n]*)|(?P<string>[bB]?{_STRING})|(?P<name>[A-Za-z_]\w*)|(?P<mark>.)",
    re.DOTALL,
)
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_CLASS = re.compile(r"\\[pP]|\[\^|\(\?\w*i")
_COUNT = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_CLASS_WEIGHT = 200
"""Instructions of a class of Unicode characters."""
_COMPILING, _SEARCHING = 500.0, 50.0
"""The cost of compiling a pattern, per instruction, and of its search, per byte."""


@dataclass(frozen=True)
class Growth:
    """
    Growth of the cost of an expression with its values.

    :param squares: calls that multiply by the size of the values.
    :param splits: a call makes a list of a string.
    :param pattern: weight of the largest literal pattern; infinite if a pattern is no literal.
    """

    loops: int = 0
    squares: int = 0
    splits: bool = False
    pattern: float = 0.0

    def bound(self, values: object) -> float:
        """
        Return a bound of the cost of an evaluation with these values.

        It is 0 if the cost is linear in their size, infinite if there is no bound.
        """
        if not (self.loops or self.squares or self.pattern):
            return 0.0  # linear: the values were read from a request at the same cost
        size, entries, longest = _measure(values)
        if self.squares:
            entries = size
        elif self.splits:
            entries = max(entries, longest)
        once = size
        if self.pattern:
            once += self.pattern * _COMPILING + size * _SEARCHING
        return once * size**self.squares * max(1.0, entries) ** self.loops


@dataclass
class _Call:
    name: str
    arguments: list[list[tuple[str, str]]] = field(default_factory=lambda: [[]])

    @property
    def literals(self) -> bool:
        return all([kind for kind, _ in each] in ([], ["string"]) for each in self.arguments)

    @property
    def pattern(self) -> str | None:
        last = self.arguments[-1]
        return last[0][1] if [kind for kind, _ in last] == ["string"] else None


@lru_cache(_KEPT)
def growth_of(expression: str) -> Growth:
    """Return how the cost of a valid expression grows."""
    loops = deepest = squares = 0
    pattern = 0.0
    names = set[str]()
    open_calls: list[_Call] = []
    before = ""
    for kind, text in _tokens(expression):
        if open_calls and text != "," and text not in _CLOSING:
            open_calls[-1].arguments[-1].append((kind, text))
        if text in _OPENING:
            call = _Call(before if text == "(" else "")
            open_calls.append(call)
            names.add(call.name)
            loops += call.name in _LOOPS
            deepest = max(deepest, loops)
        elif text in _CLOSING and open_calls:
            call = open_calls.pop()
            loops -= call.name in _LOOPS
            if call.name == "matches":
                pattern = max(pattern, _weight(call.pattern))
            else:
                squares += _squares(call)
        elif text == "," and open_calls:
            open_calls[-1].arguments.append([])
        before = text if kind == "name" else ""
    return Growth(deepest, squares, "split" in names, pattern)


def _squares(call: _Call) -> bool:
    if call.name in _WITH_LITERALS:
        return not call.literals
    return bool(call.name) and call.name not in _LOOPS and call.name not in _LINEAR


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(expression):
        if match.lastgroup is not None and match.lastgroup != "space":
            yield match.lastgroup, match[0]


def _weight(pattern: str | None) -> float:
    """
    Return the approximate number of instructions of a pattern; infinite if the pattern is not
    known.
    """
    if pattern is None:
        return math.inf
    classes = len(_CLASS.findall(pattern))
    weight = float(len(pattern) + _CLASS_WEIGHT * classes)
    for least, most in _COUNT.findall(pattern):
        weight *= max(1, int(least), int(most or 0))
    return weight


def _measure(values: object) -> tuple[float, float, int]:
    size, largest, longest, nodes = 0, 0, 0, 0
    left: list[Any] = [values]
    while left:
        value = left.pop()
        nodes += 1
        size += _NODE_BYTES
        if isinstance(value, str | bytes):
            size += len(value)
            longest = max(longest, len(value))
        elif isinstance(value, dict | list | tuple):
            largest = max(largest, len(value))
            if nodes + len(left) + len(value) > _MOST_NODES:
                return math.inf, math.inf, longest
            if isinstance(value, dict):
                size += sum(len(key) for key in value if isinstance(key, str))
                left += value.values()
            else:
                left += value
    return float(size), float(largest), longest
