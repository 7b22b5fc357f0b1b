"""
The configuration file of ``exec-runtime``: which classes this host offers.

::

    classes:
    - name: shell              # as the MachineClass
      driver: pty
      command: [/bin/sh, -i]
      user: console            # or, instead, same_user: true
      capabilities: {cpu: "1", memory: 64Mi}
      quantity: 100
    - name: vm
      driver: qemu
      memory: 128Mi            # of the guest; default: capabilities.memory
      capabilities: {cpu: "1", memory: 128Mi}
      quantity: 10

Everything is checked when it is read; whether the host *has* what a class needs is found
out when the runtime starts.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from twisted_exec.api import quantity

from .interfaces import IMachineDriver
from .processes import ProcessTable
from .pty import PtyDriver, PtyOptions
from .qemu import FIRMWARE, PROGRAM, QemuDriver, QemuOptions
from .service import RuntimeClass

_MAX_FILE_BYTES = 1 << 20
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_MIB = 1 << 20

Build = Callable[[Any, ProcessTable], IMachineDriver]


class ConfigError(Exception):
    """The configuration cannot be used; the message is one line that says where and why."""


@dataclass(frozen=True)
class ClassConfig:
    """One class; :meth:`build` makes it real."""

    name: str
    resources: Mapping[str, int]
    quantity: int
    driver: Build

    def build(self, reactor: Any, table: ProcessTable) -> RuntimeClass:
        return RuntimeClass(self.name, self.driver(reactor, table), self.resources, self.quantity)


def load(path: str) -> list[ClassConfig]:
    """
    Read a file.

    :raises ConfigError: it cannot be read, is not YAML, or says what cannot be meant.
    """
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if len(text) > _MAX_FILE_BYTES:
        raise ConfigError(f"{path} is larger than {_MAX_FILE_BYTES} bytes")
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {_first_line(error)}") from None
    return parse(document, path)


def _first_line(error: Exception) -> str:
    """Where it is and what is wrong; YAML's own text draws the place over several lines."""
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    problem = getattr(error, "problem", None) or str(error)
    return place + (str(problem).splitlines() or ["unreadable"])[0]


def parse(document: object, source: str = "configuration") -> list[ClassConfig]:
    """
    Read a document.

    :param source: named in messages.
    :raises ConfigError: it says what cannot be meant.
    """
    reader = _Reader(document, source)
    entries = reader.take("classes", list)
    reader.done()
    if not entries:
        raise ConfigError(f"{source}: classes is empty; a runtime needs one class or more")
    classes = [_class(entry, f"{source}: classes[{at}]") for at, entry in enumerate(entries)]
    names = [one.name for one in classes]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{source}: class {name!r} is there more than once")
    return classes


def _class(entry: object, where: str) -> ClassConfig:
    reader = _Reader(entry, where)
    name = reader.take("name", str)
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: {name!r} is no name for a class (such as small-vm)")
    reader.where = f"{where} ({name})"
    resources = _resources(reader)
    count = reader.take("quantity", int, 100)
    if not 0 < count <= 100_000:
        raise reader.error("quantity must be between 1 and 100000")
    kind = reader.take("driver", str)
    if kind not in _DRIVERS:
        raise reader.error(f"there is no driver {kind!r}; there are: {', '.join(_DRIVERS)}")
    driver = _DRIVERS[kind](reader, resources)
    reader.done()
    return ClassConfig(name, resources, count, driver)


def _resources(reader: _Reader) -> dict[str, int]:
    """Capabilities in the units of the interface, which has whole numbers only."""
    found = {}
    for name, text in reader.take("capabilities", dict, {}).items():
        try:
            exact = quantity.parse(text)
        except ValueError:
            raise reader.error(f"capabilities.{name}: {text!r} is no quantity") from None
        if exact <= 0 or exact != int(exact) or exact >= 1 << 63:
            raise reader.error(f"capabilities.{name}: {text!r} is no positive whole number")
        found[str(name)] = int(exact)
    for name in ("cpu", "memory"):
        if name not in found:
            raise reader.error(f"capabilities.{name} is missing: machine classes are matched by it")
    return found


def _pty(reader: _Reader, resources: Mapping[str, int]) -> Build:
    environment = reader.take("environment", dict, {})
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(str(name)) or not isinstance(value, str) or "\0" in value:
            raise reader.error(f"environment: {name!r} must be a name, its value a string")
    options = PtyOptions(
        command=reader.words("command"),
        user=reader.take("user", str, ""),
        same_user=reader.take("same_user", bool, False),
        environment=environment,
        directory=reader.take("directory", str, ""),
        term=reader.take("term", str, PtyOptions.term),
    )
    if bool(options.user) == options.same_user:
        raise reader.error(
            "a pty class needs either user: NAME, or same_user: true to run as the runtime's own"
        )
    return lambda reactor, table: PtyDriver(options, reactor, table)


def _qemu(reader: _Reader, resources: Mapping[str, int]) -> Build:
    memory = reader.take("memory", (str, int), resources["memory"])
    try:
        mebibytes = quantity.value(memory) // _MIB
    except ValueError:
        raise reader.error(f"memory: {memory!r} is no quantity") from None
    if not 16 <= mebibytes <= 1 << 20:
        raise reader.error(f"memory: {memory!r} is not between 16Mi and 1Ti")
    options = QemuOptions(
        memory_mib=mebibytes,
        firmware=reader.take("firmware", str, FIRMWARE),
        program=reader.take("program", str, PROGRAM),
    )
    return lambda reactor, table: QemuDriver(options, reactor, table)


class _Reader:
    """One mapping of the file: each key is taken once, and what is left is a mistake."""

    def __init__(self, document: object, where: str) -> None:
        self.where = where
        if not isinstance(document, dict):
            raise ConfigError(f"{where} must be a mapping")
        self._left = dict(document)
        self._known: list[str] = []

    def error(self, why: str) -> ConfigError:
        return ConfigError(f"{self.where}: {why}")

    def take(self, key: str, kind: Any, default: Any = None) -> Any:
        """
        The value of ``key``; ``default`` when it is missing and may be.

        :raises ConfigError: it is missing and may not be, or is of another kind.
        """
        self._known.append(key)
        value = self._left.pop(key, default)
        if value is None:
            raise self.error(f"{key} is missing")
        # A bool is an int to Python, but not to who wrote the file.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(f"{key} must be {_kind_name(kind)}, not {value!r}")
        if isinstance(value, str) and "\0" in value:
            raise self.error(f"{key} holds a NUL")
        return value

    def words(self, key: str) -> Sequence[str]:
        """A list of one string or more."""
        found = self.take(key, list)
        if not found or not all(isinstance(one, str) and "\0" not in one for one in found):
            raise self.error(f"{key} must be a list of strings such as [/bin/sh, -i]")
        return tuple(found)

    def done(self) -> None:
        """:raises ConfigError: keys are left that nobody asked for."""
        for key in self._left:
            near = difflib.get_close_matches(str(key), self._known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise self.error(f"unknown key {key!r}{hint}")


def _kind_name(kind: Any) -> str:
    names = {str: "a string", int: "a whole number", bool: "true or false", list: "a list"}
    return names.get(kind, "a mapping" if kind is dict else "a quantity such as 128Mi")


_DRIVERS: Mapping[str, Callable[[_Reader, Mapping[str, int]], Build]] = {
    "pty": _pty,
    "qemu": _qemu,
}
