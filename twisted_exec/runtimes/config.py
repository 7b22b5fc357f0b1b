"""
The configuration file of ``exec-runtime``: the machine classes of this host.

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
      journal: {days: 7, size: 16Mi}
      answer_queries: false    # default: true for lines without a size

Each driver reads its own keys (:mod:`.drivers`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import twisted.plugins
from twisted_exec.api import quantity
from twisted_exec.journal.retention import DEFAULT_RETENTION, Retention
from twisted_exec.program.config_file import ConfigError, Reader, read_yaml, suggestion
from twisted_exec.runtimes.drivers import drivers
from twisted_exec.runtimes.interfaces import (
    Build,
    IAdoptsMachines,
    IHardware,
    IMachineDriver,
    IRunsHostProcesses,
)
from twisted_exec.runtimes.processes import ProcessTable

__all__ = [
    "AUTO",
    "CAPABILITIES",
    "NAME",
    "ClassConfig",
    "ConfigError",
    "RuntimeClass",
    "load",
    "parse",
]


NAME, CAPABILITIES, AUTO = "name", "capabilities", "auto"
"""
Selects a class: by the name of a MachineClass, by its capabilities as well, or as the driver says.
"""
_WITHOUT_SIZE = frozenset({"ipmi", "libvirt", "qemu", "redfish", "serial", "socket"})
"""Drivers of lines that have no size: programs on them ask the terminal."""
_QUANTITY = 100
_SPARE = 100
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class RuntimeClass:
    """
    One machine class of this host.

    :param resources: capabilities: ``memory`` in bytes, ``cpu`` in whole units, others in units of
        their own.
    :param spare: number of machines beyond ``quantity`` that can be created as well.
    :param retention: limits of the retained output; by default those of the runtime.
    :param answers_queries: see :class:`~twisted_exec.console.shared_console.SharedConsole`.
    """

    name: str
    driver: IMachineDriver
    resources: Mapping[str, int] = field(default_factory=dict)
    quantity: int = 100
    spare: int = 0
    retention: Retention | None = None
    match: str = AUTO
    answers_queries: bool = False

    @property
    def only_by_name(self) -> bool:
        """True if capabilities alone do not select the class."""
        return self.match == NAME or (
            self.match == AUTO and bool(IRunsHostProcesses.providedBy(self.driver))
        )

    @property
    def can_adopt(self) -> bool:
        """True if machines of the class can outlive a runtime."""
        return bool(IAdoptsMachines.providedBy(self.driver))

    @property
    def has_hardware(self) -> bool:
        return bool(IHardware.providedBy(self.driver))


@dataclass(frozen=True)
class ClassConfig:
    """The configuration of one class; see :class:`RuntimeClass`."""

    name: str
    resources: Mapping[str, int]
    quantity: int
    driver: Build
    spare: int = 0
    retention: Retention | None = None
    match: str = AUTO
    answers_queries: bool = False

    def build(self, reactor: Any, table: ProcessTable) -> RuntimeClass:
        driver = self.driver(reactor, table)
        return RuntimeClass(
            self.name,
            driver,
            self.resources,
            self.quantity,
            self.spare,
            self.retention,
            self.match,
            self.answers_queries,
        )


def load(path: str) -> list[ClassConfig]:
    """
    Read a file.

    :raises ConfigError: the file cannot be used.
    """
    return parse(read_yaml(path), path)


def parse(document: object, source: str = "configuration") -> list[ClassConfig]:
    """
    Read a document.

    :raises ConfigError: the document cannot be used.
    """
    reader = Reader(document, source)
    entries = reader.take("classes", list)
    reader.done()
    if not entries:
        raise reader.error("classes is empty; a runtime needs one class or more", "classes")
    classes: dict[str, ClassConfig] = {}
    reserved: dict[object, Reader] = {}  # across classes
    for at, entry in enumerate(entries):
        entry_reader = Reader(entry, f"{source}: classes[{at}]", reserved)
        each = _class(entry_reader)
        if each.name in classes:
            raise entry_reader.error("another class has this name; rename or remove one", "name")
        classes[each.name] = each
    return list(classes.values())


def _class(reader: Reader) -> ClassConfig:
    name = reader.take("name", str)
    if not _NAME.fullmatch(name):
        raise reader.error(f"{name!r} is not a valid name of a class, such as small-vm", "name")
    reader.where, reader.name = f"{reader.where} ({name})", name
    resources = _resources(reader)
    retention = _retention(reader)
    match = reader.choice("match", (AUTO, NAME, CAPABILITIES), AUTO)
    kind = reader.take("driver", str)
    makers = drivers()
    if kind not in makers:
        raise reader.error(
            f"there is no driver {kind!r}{suggestion(kind, makers)} (drivers: {', '.join(makers)}; "
            f"plugins are in {', '.join(filter(os.path.isdir, twisted.plugins.__path__))})",
            "driver",
        )
    driver = makers[kind].configure(reader, resources)
    lines = reader.quantity
    count = reader.take("quantity", int, _QUANTITY if lines is None else lines)
    if not 0 < count <= 100_000:
        raise reader.error("quantity must be between 1 and 100000", "quantity")
    answers_queries = reader.take("answer_queries", bool, kind in _WITHOUT_SIZE)
    reader.done()
    spare = 0 if lines is None else _SPARE
    return ClassConfig(name, resources, count, driver, spare, retention, match, answers_queries)


def _retention(reader: Reader) -> Retention | None:
    limits = reader.take("journal", dict, {})
    if not limits:
        return None
    journal = Reader(limits, f"{reader.where}: journal")
    days = journal.number("days", 0, 3650, DEFAULT_RETENTION.days)
    size = journal.size("size", "0", "1Ti", DEFAULT_RETENTION.machine_bytes)
    journal.done()
    return Retention(days, size)


def _resources(reader: Reader) -> dict[str, int]:
    resources = {}
    for name, text in reader.take("capabilities", dict, {}).items():
        try:
            exact = quantity.parse(text)
        except ValueError:
            raise reader.error(
                f"capabilities.{name}: {text!r} is not a quantity such as 1 or 512Mi",
                "capabilities",
            ) from None
        if exact <= 0 or exact != int(exact) or exact >= 1 << 63:
            raise reader.error(
                f"capabilities.{name}: {text!r} is not a positive whole number", "capabilities"
            )
        resources[str(name)] = int(exact)
    for name in ("cpu", "memory"):
        if name not in resources:
            raise reader.error(
                f"capabilities.{name} is missing: machine classes are matched by it", "capabilities"
            )
    return resources
