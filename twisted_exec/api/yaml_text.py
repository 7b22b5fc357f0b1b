"""Limited reading of YAML, and writing in the layout of ``kubectl get -o yaml``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

# No number, date or mark of YAML begins with a letter; the words that mean something else follow.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@-]*(?:[ :][A-Za-z0-9_./@-]+)*")
_WORDS = frozenset(("y", "yes", "n", "no", "true", "false", "on", "off", "null"))
_NOT_ASCII = re.compile(r"[^\x20-\x7e]")


MAX_DEPTH = 64
"""Limit of nesting in files."""

# libyaml's loader if available: the one in Python needs a second for a thousand entries.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TooDeep(ValueError):
    """A document is nested deeper than the reader accepts."""


def yaml_events(text: str | bytes, loader: Any, most_deep: int) -> Iterator[yaml.Event]:
    """
    Yield the events of a document before anything is built of it.

    :raises TooDeep: it is nested more than ``most_deep`` levels deep.
    :raises yaml.YAMLError: it is malformed.
    """
    depth = 0
    try:
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > most_deep:
                raise TooDeep(_too_deep(most_deep))
            yield event
    except yaml.YAMLError as error:
        if "maximum nesting depth" in str(error):
            # libyaml reads ahead of its events, and since 0.2.6 has a limit of its own.
            raise TooDeep(_too_deep(most_deep)) from None
        raise


def _too_deep(most_deep: int) -> str:
    return f"nested more than {most_deep} levels deep, which is the limit; is it the right file?"


def parse_yaml(text: str | bytes) -> object:
    """
    Return the document of a file.

    :raises ValueError: it is not YAML, or nested too deep; the message is one line.
    """
    try:
        # libyaml's loader crashes the process on deep nesting.
        for _ in yaml_events(text, _Loader, MAX_DEPTH):
            pass
        document: object = yaml.load(text, _Loader)
    except TooDeep:
        raise
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # an impossible date, or time zone
        raise ValueError(f"not YAML: {yaml_problem(error)}") from None
    except (LookupError, AttributeError, TypeError):  # of the loader, such as for "!!int ''"
        raise ValueError("not YAML: a value does not fit the type of its tag (!)") from None
    return document


def yaml_problem(error: Exception) -> str:
    """Return position and problem of a YAML error on one line."""
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    problem = getattr(error, "problem", None) or str(error)
    return place + (str(problem).splitlines() or ["unreadable"])[0]


def yaml_bytes(document: Any) -> bytes:
    """Encode JSON data as YAML, with sorted keys."""
    lines: list[str] = []
    _add(lines, "", "", document)
    lines.append("")
    return "\n".join(lines).encode()


def _add(lines: list[str], first: str, rest: str, value: Any) -> None:
    if isinstance(value, dict) and value:
        for key in sorted(value):
            each = value[key]
            if each and isinstance(each, dict | list):
                lines.append(f"{first}{_text(key)}:")
                inner = rest if isinstance(each, list) else f"{rest}  "
                _add(lines, inner, inner, each)
            else:
                lines.append(f"{first}{_text(key)}: {_scalar(each)}")
            first = rest
    elif isinstance(value, list) and value:
        for each in value:
            _add(lines, f"{first}- ", f"{rest}  ", each)
            first = rest
    else:
        lines.append(first + _scalar(value))


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    text = json.dumps(value)
    # YAML 1.1 requires a point in a float.
    return text.replace("e", ".0e") if type(value) is float and "." not in text else text


def _text(value: str) -> str:
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    if value.isprintable():
        return quoted
    return _NOT_ASCII.sub(lambda match: f"\\U{ord(match[0]):08x}", quoted)
