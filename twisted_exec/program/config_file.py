"""
Reading a configuration file: its YAML at once, then each mapping key by key.

Whoever reads takes the keys that it knows, each once and of one kind; what is left at the
end is a mistake.  So a driver's keys are known to the driver alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from twisted_exec.api import quantity

MAX_FILE_BYTES = 4 << 20
MAX_DEPTH = 64
"""How deep a file is nested at most."""

# libyaml's, where it is there: a file of a thousand entries takes Python's own a second.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_VARIABLE_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")


class ConfigError(Exception):
    """The configuration cannot be used; the message is one line that says where and why."""


def read_yaml(path: str) -> object:
    """
    The document of a file.

    :raises ConfigError: it cannot be read, is larger than :data:`MAX_FILE_BYTES`, or is not YAML.
    """
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if len(text) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB")
    try:
        _check_depth(text)
        document: object = yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError) as error:  # a date that no calendar has is the latter
        raise ConfigError(f"{path} is not YAML: {first_line(error)}") from None
    return document


def _check_depth(text: bytes) -> None:
    """
    :raises ValueError: it is nested too deep: libyaml's loader would end the whole process.
    """
    depth = 0
    for event in yaml.parse(text, _Loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} deep")


def first_line(error: Exception) -> str:
    """Where it is and what is wrong, of an error of YAML's: its own text draws that over several lines."""
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    problem = getattr(error, "problem", None) or str(error)
    return place + (str(problem).splitlines() or ["unreadable"])[0]


class Reader:
    """
    One mapping of the file.

    :param where: begins every message, such as ``runtime.yaml: classes[0] (vm)``.
    :ivar name: what the mapping is of, such as the class's name; empty where it has none.
    :ivar quantity: of a class, how many machines there may be when the file does not say;
        a driver whose machines exist already sets it.
    :raises ConfigError: it is no mapping.
    """

    def __init__(self, document: object, where: str) -> None:
        self.where = where
        self.name = ""
        self.quantity = 100
        if not isinstance(document, dict):
            raise ConfigError(f"{where} must be a mapping")
        self._left = dict(document)
        self._known: list[str] = []

    def error(self, why: str) -> ConfigError:
        """A mistake in this mapping, to be raised."""
        return ConfigError(f"{self.where}: {why}")

    def has(self, key: str) -> bool:
        """It is there, and nobody has taken it yet."""
        return key in self._left

    def take(self, key: str, kind: Any, default: Any = None) -> Any:
        """
        The value of ``key``; ``default`` when it is missing and may be.

        :param kind: ``str``, ``int``, ``float``, ``bool``, ``list``, ``dict``, or several.
        :raises ConfigError: it is missing and may not be, or is of another kind.
        """
        self._known.append(key)
        value = self._left.pop(key, default)
        if value is None:
            # Keys that are nobody's were not looked for yet; much alike, for most are somebody's.
            near = difflib.get_close_matches(key, [str(each) for each in self._left], 1, 0.8)
            hint = f"; is {near[0]!r} meant to be it?" if near else ""
            raise self.error(f"{key} is missing{hint}")
        kinds = kind if isinstance(kind, tuple) else (kind,)
        # A bool is an int to Python, but not to who wrote the file; an int is a number of seconds.
        if float in kinds:
            kinds = (*kinds, int)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.error(f"{key} must be {_kind_name(kind)}, not {value!r}")
        if isinstance(value, str) and "\0" in value:
            raise self.error(f"{key} holds a NUL")
        return value

    def words(self, key: str) -> Sequence[str]:
        """A list of one string or more."""
        words = self.take(key, list)
        if not words or not all(isinstance(word, str) and "\0" not in word for word in words):
            raise self.error(f"{key} must be a list of strings such as [/bin/sh, -i]")
        return tuple(words)

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        """One of a few words."""
        # YAML 1.1 reads a bare on, off, yes or no as a boolean.
        value = self.take(key, (str, bool), default)
        if isinstance(value, bool):
            value = {True: "on", False: "off"}[value]
        if value not in choices:
            raise self.error(f"{key} must be one of {', '.join(choices)}, not {value!r}")
        return str(value)

    def number(self, key: str, least: float, most: float, default: float | None = None) -> float:
        """A number between two, which it may be; such as seconds."""
        value = self.take(key, float, default)
        if not least <= value <= most:
            raise self.error(f"{key} must be between {least:g} and {most:g}, not {value!r}")
        return float(value)

    def size(self, key: str, least: str, most: str, default: int | str | None = None) -> int:
        """A quantity between two, such as ``128Mi``; in bytes."""
        text = self.take(key, (str, int), default)
        try:
            amount = quantity.value(text)
        except ValueError:
            raise self.error(f"{key}: {text!r} is no quantity such as 512Mi") from None
        if not quantity.value(least) <= amount <= quantity.value(most):
            raise self.error(f"{key}: {text!r} is not between {least} and {most}")
        return amount

    def environment(self, key: str) -> Mapping[str, str]:
        """Variables for a process."""
        variables: dict[str, str] = self.take(key, dict, {})
        for name, value in variables.items():
            if not _is_variable(name) or not isinstance(value, str) or "\0" in value:
                raise self.error(f"{key}: {name!r} must be a name, its value a string")
        return variables

    def mappings(self, key: str) -> Mapping[str, Reader]:
        """
        A mapping of names to mappings, one or more; each to be read and to be :meth:`done`.

        A value that is missing (``NAME:`` alone) is an empty one.
        """
        section = self.take(key, dict)
        if not section:
            raise self.error(f"{key} is empty")
        readers = {}
        for name, value in section.items():
            if not isinstance(name, str) or not name:
                raise self.error(f"{key}: {name!r} is no name")
            reader = Reader({} if value is None else value, f"{self.where}: {key}[{name}]")
            reader.name = name
            readers[name] = reader
        return readers

    def done(self) -> None:
        """:raises ConfigError: keys are left that nobody asked for."""
        for key in self._left:
            near = difflib.get_close_matches(str(key), self._known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise self.error(f"unknown key {key!r}{hint}")


def _is_variable(name: object) -> bool:
    return (
        isinstance(name, str)
        and 0 < len(name) <= 128
        and not name[0].isdigit()
        and set(name) <= _VARIABLE_CHARACTERS
    )


_KINDS = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
    (str, int): "a quantity such as 128Mi",
    (str, bool): "a word",
}


def _kind_name(kind: Any) -> str:
    return _KINDS.get(kind, "something else")
