"""
Reading of YAML configuration files, then of each mapping key by key.

The file with options (``--config``) is TOML: :mod:`twisted_exec.program.options.toml_file`.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from twisted_exec.api import quantity
from twisted_exec.api.names import dns_label, dns_subdomain
from twisted_exec.api.yaml_reader import FILE, PlacedMapping, parse_yaml
from twisted_exec.tls.files import regular

MAX_FILE_BYTES = 4 << 20

_RULES = replace(FILE, placed=True)

_VARIABLE_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")

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


class ConfigError(Exception):
    """The configuration cannot be used."""


def read_yaml(path: str) -> object:
    """
    Return the document of a file.

    :raises ConfigError: it cannot be read, is too large, or is not YAML.
    """
    return parse_document(read_text(path), path)


def read_text(path: str) -> bytes:
    """
    Return the content of a file.

    :raises ConfigError: it cannot be read, or is too large.
    """
    try:
        with open(path, "rb", opener=regular) as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if len(text) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB")
    return text


def parse_document(text: bytes, path: str) -> object:
    """
    Return the document of a YAML file.

    :raises ConfigError: it is not YAML.
    """
    try:
        return parse_yaml(text, _RULES)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None


class Reader:
    """
    One mapping of the file.

    :param where: start of messages, such as ``runtime.yaml: classes[0] (vm)``.
    :param reserved: the addresses that the readers of the file have reserved, with the readers.
    :ivar quantity: number of lines of a machine class; ``None`` before :meth:`lines`.
    :ivar name: name of the mapping, such as the machine class's; empty if it has none.
    :raises ConfigError: it is not a mapping.
    """

    def __init__(
        self, document: object, where: str, reserved: dict[object, Reader] | None = None
    ) -> None:
        self.where = where
        self.name = ""
        self.quantity: int | None = None
        if not isinstance(document, dict):
            raise ConfigError(f"{where} must be a mapping")
        self._left = dict(document)
        self._known: list[str] = []
        self._parts: list[Reader] = []  # that are done with this one
        placed = document if isinstance(document, PlacedMapping) else PlacedMapping(0)
        self._line, self._places = placed.line, placed.places
        self.reserved: dict[object, Reader] = {} if reserved is None else reserved

    @property
    def keys(self) -> list[str]:
        """The keys looked for so far."""
        return list(self._known)

    def error(self, why: str, key: object = None) -> ConfigError:
        """
        Return an error about this mapping, to raise.

        :param key: the key that the error is about; the error tells its line in the file.
        """
        line = self._places[key].line if key in self._places else self._line
        return ConfigError(f"{self.where}: {why}" + (f" (line {line})" if line else ""))

    def _written(self, key: object, value: object) -> str:
        """Return a value as it is written in the file."""
        place = self._places.get(key)
        is_scalar = place is not None and not isinstance(value, str | list | dict)
        return place.value if place is not None and is_scalar else repr(value)

    def reserve(self, address: object, shown: str) -> None:
        """
        Reserve the address of this mapping's line, so that no other name of the file leads to it.

        :param address: what drivers that reach the same thing write for it, such as
            ``("unix", "/run/vm-7")``, ``("tcp", "10.0.0.5", 7001)`` or ``("serial", "/dev/ttyUSB0")``.
        :param shown: the address in a message, such as ``the socket /run/vm-7``.
        :raises ConfigError: another mapping of the file has it.
        """
        other = self.reserved.setdefault(address, self)
        if other is not self:
            raise self.error(
                f"two names must not lead to one line, and {other.where.partition(': ')[2]} has "
                f"{shown} already; remove one of the two"
            )

    def has(self, key: str) -> bool:
        """Return whether a key is present and not taken yet."""
        return key in self._left

    def take(self, key: str, kind: Any, default: Any = None) -> Any:
        """
        Return the value of ``key``, or ``default`` if it is missing.

        :param kind: ``str``, ``int``, ``float``, ``bool``, ``list``, ``dict``, or several.
        :raises ConfigError: it is missing or not valid.
        """
        self._known.append(key)
        value = self._left.pop(key, default)
        if value is None:
            # Suggest a similar key that is not taken yet; it may be a typing error.
            near = difflib.get_close_matches(key, [str(each) for each in self._left], 1, 0.8)
            hint = f"; is {near[0]!r} meant to be it?" if near else ""
            raise self.error(f"{key} is missing{hint}")
        kinds = kind if isinstance(kind, tuple) else (kind,)
        # In Python a bool is an int, but not in a configuration file; an int is fine for seconds.
        if float in kinds:
            kinds = (*kinds, int)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            problem = f"{key} must be {_kind_name(kind)}, not {self._written(key, value)}"
            if str in kinds and key in self._places and not isinstance(value, list | dict):
                problem += f"; in quotes it is text: {key}: '{self._written(key, value)}'"
            raise self.error(problem, key)
        if isinstance(value, str) and "\0" in value:
            raise self.error(f"{key} holds a NUL", key)
        return value

    def words(self, key: str) -> Sequence[str]:
        """Return a list of at least one string."""
        words = self.take(key, list)
        if not words or not all(isinstance(word, str) and "\0" not in word for word in words):
            raise self.error(f"{key} must be a list of strings such as [/bin/sh, -i]", key)
        return tuple(words)

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        """Return one of ``choices``."""
        # YAML 1.1 reads a bare on, off, yes or no as a boolean.
        value = self.take(key, (str, bool), default)
        written = self._written(key, value)
        if isinstance(value, bool):
            value = {True: "on", False: "off"}[value]
        if value not in choices:
            raise self.error(f"{key} must be one of {', '.join(choices)}, not {written}", key)
        return str(value)

    def number(self, key: str, least: float, most: float, default: float | None = None) -> float:
        """Return a number from ``least`` to ``most``."""
        value = self.take(key, float, default)
        if not least <= value <= most:
            raise self.error(f"{key} must be between {least:g} and {most:g}, not {value!r}", key)
        return float(value)

    def size(self, key: str, least: str, most: str, default: int | str | None = None) -> int:
        """Return a quantity such as ``128Mi`` in bytes, from ``least`` to ``most``."""
        text = self.take(key, (str, int), default)
        try:
            amount = quantity.value(text)
        except ValueError:
            raise self.error(f"{key}: {text!r} is no quantity such as 512Mi", key) from None
        if not quantity.value(least) <= amount <= quantity.value(most):
            raise self.error(f"{key}: {text!r} is not between {least} and {most}", key)
        return amount

    def environment(self, key: str) -> Mapping[str, str]:
        """Return environment variables for a process."""
        variables: dict[str, str] = self.take(key, dict, {})
        for name, value in variables.items():
            if not _is_variable(name) or not isinstance(value, str) or "\0" in value:
                raise self.error(f"{key}: {name!r} must be a name, its value a string", key)
        return variables

    def mappings(self, key: str) -> Mapping[str, Reader]:
        """
        Return a mapping of names to at least one mapping; call :meth:`done` of each after reading
        it.
        """
        section = self.take(key, dict)
        if not section:
            raise self.error(f"{key} is empty", key)
        readers = {}
        places = section.places if isinstance(section, PlacedMapping) else {}
        for name, value in section.items():
            where = f"{self.where}: {key}[{name}]"
            line = places[name].line if name in places else 0
            if not isinstance(name, str) or not name:
                written = places[name].key if name in places else name
                within = Reader(section, f"{self.where}: {key}")
                raise within.error(
                    f"{written} is not text in YAML, so it is no name; put it in quotes: '{written}'",
                    name,
                )
            reader = Reader({} if value is None else value, where, self.reserved)
            reader._line = line
            reader.name = name
            readers[name] = reader
        return readers

    def lines(self, key: str = "lines") -> Mapping[str, Reader]:
        """
        Return a reader for each line of a machine class, and set :attr:`quantity`.

        The names are ``NAME`` or ``NAMESPACE/NAME`` of a Machine. :meth:`done` of this reader checks
        the readers of the lines as well.

        :raises ConfigError: there are no lines, or no Machine can have the name of a line.
        """
        readers = self.mappings(key)
        for name, reader in readers.items():
            namespace, slash, machine = name.rpartition("/")
            if dns_subdomain(machine) or (slash and dns_label(namespace)):
                raise reader.error(
                    f"no Machine can have the name {name!r}; write NAME or NAMESPACE/NAME with "
                    f"lower-case letters, digits and hyphens, such as {_similar(name)}"
                )
        self._parts += readers.values()
        self.quantity = len(readers)
        return readers

    def done(self) -> None:
        """:raises ConfigError: there are unknown keys."""
        for part in self._parts:
            part.done()
        for key in self._left:
            raise self.error(f"unknown key {key!r}{suggestion(str(key), self._known)}", key)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown word: the known one that is most like it, if any is."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


def _similar(name: str) -> str:
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", ascii_name).strip("-")[:63].rstrip("-") or "web-1"


def _is_variable(name: object) -> bool:
    return (
        isinstance(name, str)
        and 0 < len(name) <= 128
        and not name[0].isdigit()
        and set(name) <= _VARIABLE_CHARACTERS
    )


def _kind_name(kind: Any) -> str:
    return _KINDS.get(kind, "something else")
