"""
Limited reading of YAML.

The first document of a text is built in one pass over the parser's events, so values are counted
before they are built, and nothing of PyYAML converts a scalar: its conversion of base 60 is quadratic.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

# libyaml's parser if available: the one in Python needs a second for a thousand entries.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# libyaml compares a %TAG with all before it, and holds the interpreter's lock meanwhile.
_TAG_DIRECTIVE = re.compile("(?:\\A|[\n\r\x85\u2028\u2029])\ufeff*%TAG")
_PREFIX = "tag:yaml.org,2002:"
_MERGE = "<<"

_INTEGER = re.compile(r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NUMERIC = frozenset("-+.0123456789")
_LARGEST = 2**63 - 1
_LIMIT_DIGITS = 66
"""Limit for the digits of an integer: 64 bits, and the prefix of base 2."""

_SHOWN = 40

_NOT_FINITE = {
    ".inf": float("inf"),
    "+.inf": float("inf"),
    "-.inf": -float("inf"),
    ".nan": float("nan"),
}

MAX_VALUES = 1 << 21
"""Limit of values in files: a file of 4 MiB without aliases cannot have more."""


def _spellings(words: str, value: object) -> dict[str, object]:
    return {
        spelling: value
        for word in words.split()
        for spelling in (word, word.capitalize(), word.upper())
    }


_TRUTHS = _spellings("yes true on", True) | _spellings("no false off", False)
_WORDS = {"": None, "~": None, **_spellings("null", None), **_TRUTHS}


class YAMLProblem(ValueError):
    """A text that is not YAML, or has what is not accepted; the message is one line without its name."""


class TooDeep(YAMLProblem):
    """A document is nested deeper than the reader accepts."""


class TooMany(YAMLProblem):
    """A document has more values than the reader accepts."""


class Place(NamedTuple):
    """
    Where a mapping has an entry.

    :param key: the key as it is written.
    :param value: the value as it is written; empty unless it is a scalar.
    """

    line: int
    key: str
    value: str


class PlacedMapping(dict[Any, Any]):
    """
    A mapping that knows its line, and the places of its entries by their keys.
    """

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.places: dict[Any, Place] = {}


def scalar(text: str) -> object:
    """
    Return the value of a plain scalar as Go's parser for YAML 1.1 reads it; dates stay text.

    :raises YAMLProblem: an integer is out of the range of int64.
    """
    if text[:1] not in _NUMERIC:
        return _WORDS.get(text, text)
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return _NOT_FINITE.get(text[:6].lower(), text)


def _integer(text: str) -> int:
    digits = text.replace("_", "").lstrip("+-")
    # A longer number is out of the range, and its conversion would take quadratic time.
    if len(digits) <= _LIMIT_DIGITS:
        base = {"0b": 2, "0x": 16}.get(digits[:2]) or (8 if digits[:1] == "0" else 10)
        try:
            number = int(digits, base) * (-1 if text[0] == "-" else 1)
        except ValueError:
            raise YAMLProblem(f"{text[:_SHOWN]} is no number") from None
        if -_LARGEST - 1 <= number <= _LARGEST:
            return number
    raise YAMLProblem(f"number {text[:_SHOWN]} is out of the range of int64")


def text_scalar(text: str) -> object:
    """Return the value of a plain scalar; all but booleans and null are text."""
    return _WORDS.get(text, text)


@dataclass(frozen=True)
class Rules:
    """
    What a reader accepts.

    :param values: limit of keys and values together; aliases and merges count as what they stand for.
    :param scalar: converts plain scalars.
    :param tags: whether ``!!str``, ``!!map`` and ``!!seq`` are accepted; no other tag is.
    :param repeated: is called with the keys and indexes that lead to a key that its mapping has
        already; otherwise such a key is refused.
    :param whole: refuse a second document; otherwise it is not read, as by kubectl.
    :param placed: build mappings as :class:`PlacedMapping`.
    """

    values: int
    depth: int = 64
    scalar: Callable[[str], object] = scalar
    aliases: bool = False
    tags: bool = True
    repeated: Callable[[list[str | int]], None] | None = None
    whole: bool = True
    placed: bool = False


FILE = Rules(MAX_VALUES, aliases=True)
"""Rules for files."""


def parse_yaml(text: str | bytes, rules: Rules = FILE) -> object:
    """
    Return the document of a text; ``None`` if it has none.

    :param text: in UTF-8, or in UTF-16 with a byte order mark, if it is bytes.
    :raises YAMLProblem: it is malformed, or the rules refuse it.
    """
    try:
        if isinstance(text, bytes):
            is_utf16 = text.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
            text = text.decode("utf-16" if is_utf16 else "utf-8")
        if "%TAG" in text and (found := _TAG_DIRECTIVE.search(text)):
            line = len(text[: found.end()].splitlines())
            raise YAMLProblem(f"line {line}: %TAG directives are not accepted; leave them out")
        return _Builder(yaml.parse(text, _Loader), rules).document()
    except UnicodeDecodeError as error:
        raise YAMLProblem(f"not YAML: {error.reason} at byte {error.start}") from None
    except UnicodeEncodeError:
        raise YAMLProblem("not YAML: it holds a lone surrogate") from None
    except yaml.YAMLError as error:
        if "maximum nesting depth" in str(error):
            # libyaml reads ahead of its events, and since 0.2.6 has a limit of its own.
            raise TooDeep(_too_deep(rules.depth)) from None
        raise YAMLProblem(f"not YAML: {_problem(error)}") from None


def _too_deep(limit: int) -> str:
    return f"nested more than {limit} levels deep, which is the limit; is it the right file?"


def _problem(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    problem = getattr(error, "problem", None) or str(error)
    return place + (str(problem).splitlines() or ["unreadable"])[0]


def _at(event: Any, problem: str) -> YAMLProblem:
    return YAMLProblem(f"line {event.start_mark.line + 1}: {problem}")


class _Anchored(NamedTuple):
    value: object
    values: int


class _Builder:
    def __init__(self, events: Iterator[Any], rules: Rules) -> None:
        self._events, self._rules = events, rules
        self._values = 0
        self._path: list[str | int] = []
        self._anchors: dict[str, _Anchored | None] = {}
        """Values and their numbers of values; ``None`` within the value itself."""

    def document(self) -> object:
        next(self._events)  # the start of the stream
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        value = self._value(next(self._events), 0)
        next(self._events)  # the end of the document
        if self._rules.whole and not isinstance(next(self._events), yaml.StreamEndEvent):
            raise YAMLProblem("there is more than one document (---)")
        return value

    def _count(self, number: int = 1) -> None:
        self._values += number
        if self._values > self._rules.values:
            raise TooMany(f"more than {self._rules.values} keys and values")

    def _value(self, event: Any, depth: int) -> object:
        self._count()
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event)
        before, anchor = self._values, event.anchor
        if anchor is not None:
            self._anchors[anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        else:
            if depth == self._rules.depth:
                raise TooDeep(_too_deep(depth))
            is_list = isinstance(event, yaml.SequenceStartEvent)
            self._check_tag(event, "seq" if is_list else "map")
            value = self._list(depth) if is_list else self._mapping(event, depth)
        if anchor is not None:
            self._anchors[anchor] = _Anchored(value, self._values - before)
        return value

    def _aliased(self, event: Any) -> object:
        if not self._rules.aliases:
            raise _at(event, "aliases (*) are not accepted; write the values out")
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise _at(event, f"the alias *{event.anchor[:_SHOWN]} is not that of a value before it")
        # A few hundred bytes of aliases can stand for gigabytes.
        self._count(anchored.values)
        return anchored.value

    def _check_tag(self, event: Any, expected: str) -> None:
        is_known = event.tag in ("!", _PREFIX + expected)
        if event.tag is None or (self._rules.tags and is_known):
            return
        shown = event.tag.replace(_PREFIX, "!!")[:_SHOWN]
        raise _at(event, f"the tag {shown} is not accepted; leave it out")

    def _scalar(self, event: Any) -> object:
        self._check_tag(event, "str")
        if event.tag is not None or not event.implicit[0]:
            return event.value
        try:
            return self._rules.scalar(event.value)
        except YAMLProblem as problem:
            raise _at(event, str(problem)) from None

    def _list(self, depth: int) -> list[object]:
        items: list[object] = []
        self._path.append(0)
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            self._path[-1] = len(items)
            items.append(self._value(event, depth + 1))
        self._path.pop()
        return items

    def _mapping(self, start: Any, depth: int) -> dict[Any, object]:
        line = start.start_mark.line + 1
        mapping = PlacedMapping(line) if self._rules.placed else {}
        merged: list[dict[Any, object]] = []
        self._path.append("")
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._value(event, depth + 1)
            is_merge = key == _MERGE and event.implicit[0]
            self._path[-1] = str(event.value) if isinstance(event, yaml.ScalarEvent) else str(key)
            self._check_key(event, key, mapping, is_merge and bool(merged))
            following = next(self._events)
            value = self._value(following, depth + 1)
            if is_merge:
                merged += self._sources(event, value)
                continue
            mapping[key] = value
            if isinstance(mapping, PlacedMapping):
                word = following.value if isinstance(following, yaml.ScalarEvent) else ""
                mapping.places[key] = Place(event.start_mark.line + 1, str(self._path[-1]), word)
        self._path.pop()
        for source in merged:
            for key, value in source.items():
                mapping.setdefault(key, value)
        return mapping

    def _check_key(
        self, event: Any, key: object, mapping: dict[Any, object], merged_before: bool
    ) -> None:
        if isinstance(key, dict | list):
            raise _at(event, "a key is a list or a mapping")
        if key not in mapping and not merged_before:
            return
        if self._rules.repeated is not None:
            self._rules.repeated(self._path)
            return
        shown, first = str(self._path[-1])[:_SHOWN], ""
        if isinstance(mapping, PlacedMapping) and key in mapping:
            first = f" (first in line {mapping.places[key].line})"
        raise _at(event, f"the key {shown!r} is there twice{first}; remove or rename one of them")

    def _sources(self, event: Any, value: object) -> list[dict[Any, object]]:
        sources: list[Any] = value if isinstance(value, list) else [value]
        for source in sources:
            if not isinstance(source, dict):
                raise _at(event, "a merge (<<) takes a mapping, or a list of mappings")
            self._count(len(source))
        return sources
