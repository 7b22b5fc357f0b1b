"""
The candidates for the last word of a command line.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from twisted_exec.cli.parser import CheckedParser

_FILES = ("F", "FILE", "DIR", "DIRECTORY", "DATABASE")
_MANY = ("*", "+")
_VALUES_OF = ("context", "cluster", "user", "namespace", "machine", "space")
"""Arguments with values from the kubeconfig or from the server."""


_SUMMARY_LENGTH = 70


class Values(Protocol):
    """Source of values that are in no parser."""

    def of(self, name: str, options: Mapping[str, Any]) -> Iterable[str]:
        """Return the values of an argument."""


@dataclass(frozen=True)
class Completion:
    """
    Candidates for a word.

    :param is_path: the word is a path, which the shell completes.
    """

    words: Sequence[tuple[str, str]] = ()
    is_path: bool = False


@dataclass
class _Line:
    parser: CheckedParser
    options: dict[str, Any] = field(default_factory=dict)
    present: set[str] = field(default_factory=set)
    positionals: list[argparse.Action] = field(default_factory=list)
    pending: argparse.Action | None = None
    """The option whose value is next."""
    only_positionals: bool = False


def complete(parser: CheckedParser, words: Sequence[str], values: Values) -> Completion:
    """
    Return the candidates for the last word.

    :param words: those after the program's name; the last may be empty.
    """
    *before, last = words or [""]
    line = _Line(parser)
    _enter(line, parser)
    for word in before:
        _read(line, word)
    if line.pending is not None and not (line.pending.nargs in _MANY and last.startswith("-")):
        return _values(line, line.pending, last, "", values)
    if last.startswith("-") and not line.only_positionals:
        name, equals, text = last.partition("=")
        action = _option(line.parser, name)
        if equals and action is not None:
            return _values(line, action, text, f"{name}=", values)
        return _options(line, last)
    if not line.positionals:
        return Completion()
    return _values(line, line.positionals[0], last, "", values)


def _enter(line: _Line, parser: CheckedParser) -> None:
    line.parser = parser
    line.positionals = [each for each in parser.arguments if not each.option_strings]


def _read(line: _Line, word: str) -> None:
    pending = line.pending
    if pending is not None and not (pending.nargs in _MANY and word.startswith("-")):
        _store(line, pending, word)
        if pending.nargs not in _MANY:
            line.pending = None
        return
    line.pending = None
    if word == "--":
        line.only_positionals = True
    elif word.startswith("-") and len(word) > 1 and not line.only_positionals:
        _read_option(line, word)
    elif line.positionals:
        action = line.positionals[0]
        if action is line.parser.commands:
            if word in action.choices:
                _enter(line, action.choices[word])
            return
        _store(line, action, word)
        if action.nargs not in _MANY:
            del line.positionals[0]


def _read_option(line: _Line, word: str) -> None:
    name, equals, text = word.partition("=")
    action = _option(line.parser, name)
    if action is None and not word.startswith("--"):  # -nNAMESPACE
        name, text, equals = word[:2], word[2:], "="
        action = _option(line.parser, name)
    if action is None:
        return
    line.present |= set(action.option_strings)
    if equals:
        _store(line, action, text)
    elif action.nargs != 0:
        line.pending = action
    else:
        _store(line, action, True)


def _store(line: _Line, action: argparse.Action, value: Any) -> None:
    if action in line.parser.repeatable:
        line.options.setdefault(action.dest, []).append(value)
    else:
        line.options[action.dest] = value


def _option(parser: CheckedParser, name: str) -> argparse.Action | None:
    return next((each for each in parser.arguments if name in each.option_strings), None)


def _options(line: _Line, start: str) -> Completion:
    words = []
    for action in line.parser.arguments:
        is_over = line.present & set(action.option_strings)
        if (is_over and action not in line.parser.repeatable) or _is_hidden(action):
            continue
        # A short form is a word of its own: offer it only for "-".
        words += [
            (name, _summary(action.help))
            for name in action.option_strings
            if name.startswith(start) and (name.startswith("--") or start == name)
        ]
    return Completion(words)


def _values(
    line: _Line, action: argparse.Action, start: str, prefix: str, values: Values
) -> Completion:
    if action is line.parser.commands:
        matches = [(name, _summary(each.summary)) for name, each in action.choices.items()]
    elif action.choices is not None:
        matches = [(str(each), "") for each in action.choices]
    elif action.dest in _VALUES_OF and _option(line.parser, "--as-uid") is not None:
        kind, slash, _ = start.rpartition("/")
        if not slash or action.dest != "machine":
            kind = ""
        names = values.of(action.dest, _options_of(line))
        matches = [(f"{kind}{slash if kind else ''}{name}", "") for name in names]
    else:
        return Completion(is_path=str(action.metavar) in _FILES)
    return Completion(
        [(prefix + word, summary) for word, summary in matches if word.startswith(start)]
    )


def _options_of(line: _Line) -> dict[str, Any]:
    defaults = {action.dest: action.default for action in line.parser.arguments}
    return {**defaults, **line.options}


def _is_hidden(action: argparse.Action) -> bool:
    return action.help == argparse.SUPPRESS


def _summary(text: str | None) -> str:
    first = (text or "").partition(";")[0].partition(" (default")[0]
    return textwrap.shorten(first, _SUMMARY_LENGTH, placeholder=" ...")
