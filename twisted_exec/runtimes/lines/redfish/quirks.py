"""
What is special about the consoles of BMCs, as data: ``quirks.yaml`` and a file of the operator.

::

    quirks:
    - name: Dell iDRAC
      manufacturer: ["dell*"]
      firmware: {from: "4.00", before: "8.00"}
      transports: [vendor-ssh, ipmi]
      entry:
      - commands: ["connect com2"]
      prompts: ["racadm>>"]
      never_send: ["\\x1c"]
      exclusive: true
      source: https://...

A row fits a server if each of its ``manufacturer``, ``model``, ``controller`` and ``firmware`` does; a missing key fits
all. The first row that fits counts, and rows of the operator come first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from twisted_exec.program.config_file import ConfigError, Reader, read_yaml, suggestion

_OURS = os.path.join(os.path.dirname(__file__), "quirks.yaml")

_MAX_ROWS = 1000
_MAX_TEXTS = 16
_MAX_TEXT_BYTES = 64
_MAX_NAME = 256
"""Limit for names and firmware of a BMC that are compared; what is behind it does not count."""

_DOTTED = re.compile(r"\d{1,9}(?:\.\d{1,9})+")
_PART = re.compile(r"\d{1,9}|[a-z]+")


class Transport(Enum):
    """A way to the console of a server."""

    WEBSOCKET = "websocket"
    """``WebSocket`` in ``SerialConsole`` of a ComputerSystem 1.26."""
    OPENBMC = "openbmc"
    """``/console/ID`` or ``/console0`` of bmcweb."""
    SSH = "ssh"
    """``SSH`` in ``SerialConsole`` of a ComputerSystem: a port that is the console."""
    VENDOR_SSH = "vendor-ssh"
    """The BMC's shell, with a command that enters the console."""
    IPMI = "ipmi"
    """Serial over LAN."""


DEFAULT_ORDER = tuple(Transport)


@dataclass(frozen=True)
class Entry:
    """
    A way from the BMC's prompt to the console.

    :param commands: without line ends; each but the last returns to the prompt.
    :param release: commands that end another session of the console, typed before.
    """

    commands: tuple[bytes, ...]
    release: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Quirk:
    """
    The console of one sort of BMC.

    ``entry_commands``, ``prompts`` and ``never_send`` are about its console over SSH.

    :param entry_commands: tried in order, the next one after an answer with one of ``refusals``.
    :param begins: texts whose line is the last before the machine's output; without them the console
        begins when no prompt follows the command.
    :param prompts: of the BMC's shell; at the start of a line they mean that the console has ended.
    :param never_send: sequences with which users would leave the console.
    :param exclusive: the BMC has one session of the console.
    :param transports: those to try, the best first, also if the BMC does not announce them.
    :param source: public document of the row.
    """

    name: str
    manufacturer: tuple[str, ...] = ("*",)
    model: tuple[str, ...] = ("*",)
    controller: tuple[str, ...] = ("*",)
    firmware_from: str = ""
    firmware_before: str = ""
    transports: tuple[Transport, ...] = ()
    entry_commands: tuple[Entry, ...] = ()
    refusals: tuple[bytes, ...] = ()
    begins: tuple[bytes, ...] = ()
    prompts: tuple[bytes, ...] = ()
    never_send: tuple[bytes, ...] = ()
    exclusive: bool = False
    keep_alive_seconds: float = 60.0
    source: str = ""

    def fits(self, manufacturer: str, model: str, firmware: str, controller: str = "") -> bool:
        """Return whether the row is about such a server."""
        return (
            _fits(self.manufacturer, manufacturer)
            and _fits(self.model, model)
            and _fits(self.controller, controller)
            and self._has_firmware(firmware[:_MAX_NAME])
        )

    def _has_firmware(self, firmware: str) -> bool:
        if not self.firmware_from and not self.firmware_before:
            return True
        version = _version(firmware)
        if not version:
            return False  # which one, nobody knows
        if self.firmware_from and version < _version(self.firmware_from):
            return False
        return not self.firmware_before or version < _version(self.firmware_before)


GENERIC = Quirk("a BMC without a row")
"""For servers that no row is about: only what their BMC announces is tried."""


def find(
    quirks: Iterable[Quirk], manufacturer: str, model: str, firmware: str, controller: str = ""
) -> Quirk:
    """
    Return the first row about a server, or :data:`GENERIC`.

    :param model: of the server, such as ``PowerEdge R750``.
    :param firmware: of the BMC.
    :param controller: model of the BMC, such as ``OpenBmc``.
    """
    for quirk in quirks:
        if quirk.fits(manufacturer, model, firmware, controller):
            return quirk
    return GENERIC


def load(path: str = "") -> tuple[Quirk, ...]:
    """
    Return the rows of the operator's file, if there is one, and ours behind them.

    :raises ConfigError: the file is wrong; the message has its path, and the line.
    """
    return (_load(path) if path else ()) + _ours()


@lru_cache(1)
def _ours() -> tuple[Quirk, ...]:
    return _load(_OURS)


def _load(path: str) -> tuple[Quirk, ...]:
    reader = Reader(read_yaml(path), path)
    rows = reader.take("quirks", list)
    reader.done()
    if len(rows) > _MAX_ROWS:
        raise reader.error(f"quirks has more than {_MAX_ROWS} rows", "quirks")
    return tuple(_row(Reader(row, f"{path}: quirks[{number}]")) for number, row in enumerate(rows))


def _row(reader: Reader) -> Quirk:
    name = reader.take("name", str)
    reader.where += f" ({name[:_MAX_TEXT_BYTES]})"
    firmware_from, firmware_before = _range(reader)
    quirk = Quirk(
        name=name,
        manufacturer=_patterns(reader, "manufacturer"),
        model=_patterns(reader, "model"),
        controller=_patterns(reader, "controller"),
        firmware_from=firmware_from,
        firmware_before=firmware_before,
        transports=_transports(reader),
        entry_commands=_entries(reader),
        refusals=_texts(reader, "refusals"),
        begins=_texts(reader, "begins"),
        prompts=_texts(reader, "prompts"),
        never_send=_texts(reader, "never_send"),
        exclusive=reader.take("exclusive", bool, False),
        keep_alive_seconds=reader.number("keep_alive_seconds", 5, 3600, 60),
        source=reader.take("source", str),
    )
    reader.done()
    if quirk.entry_commands and not quirk.prompts:
        raise reader.error(
            "entry needs prompts: without them nobody notices that the console ended in the BMC's shell",
            "entry",
        )
    for prompt in quirk.prompts:
        if not prompt.decode("latin-1").isprintable() or prompt != prompt.strip():
            raise reader.error(
                f"prompts: {prompt!r} must be printable, without blanks around it", "prompts"
            )
    return quirk


def _range(reader: Reader) -> tuple[str, str]:
    if not reader.has("firmware"):
        reader.take("firmware", dict, {})
        return "", ""
    limits = Reader(reader.take("firmware", dict), f"{reader.where}: firmware")
    found = limits.take("from", str, ""), limits.take("before", str, "")
    limits.done()
    if not any(found):
        raise limits.error("it needs from, before, or both")
    for key, text in zip(("from", "before"), found, strict=True):
        if text and not _version(text):
            raise limits.error(f"{key} {text!r} has neither digits nor letters", key)
    if all(found) and _version(found[0]) >= _version(found[1]):
        raise limits.error(f"no firmware is from {found[0]} and before {found[1]}", "before")
    return found


def _patterns(reader: Reader, key: str) -> tuple[str, ...]:
    if not _has(reader, key):
        return ("*",)
    return tuple(word.casefold() for word in _words(reader, key))


def _transports(reader: Reader) -> tuple[Transport, ...]:
    if not _has(reader, "transports"):
        return ()
    known = [transport.value for transport in Transport]
    words = _words(reader, "transports")
    for word in words:
        if word not in known:
            hint = suggestion(word, known)
            raise reader.error(
                f"transports: {word!r} is none of {', '.join(known)}{hint}", "transports"
            )
    if len(set(words)) < len(words):
        raise reader.error("transports names one of them twice", "transports")
    return tuple(Transport(word) for word in words)


def _entries(reader: Reader) -> tuple[Entry, ...]:
    if not _has(reader, "entry"):
        return ()
    rows = reader.take("entry", list)
    if not 0 < len(rows) <= _MAX_TEXTS:
        raise reader.error(f"entry must be a list of 1 to {_MAX_TEXTS} mappings", "entry")
    entries = []
    for number, row in enumerate(rows):
        part = Reader(row, f"{reader.where}: entry[{number}]")
        entries.append(Entry(_commands(part, "commands"), _commands(part, "release")))
        part.done()
        if not entries[-1].commands:
            raise part.error("commands is missing")
    return tuple(entries)


def _commands(reader: Reader, key: str) -> tuple[bytes, ...]:
    commands = _texts(reader, key)
    for command in commands:
        if not command.decode("latin-1").isprintable():
            raise reader.error(f"{key}: {command!r} is no command in one line", key)
    return commands


def _texts(reader: Reader, key: str) -> tuple[bytes, ...]:
    """Return a list of texts as bytes, in which ``\\x80`` to ``\\xff`` are one byte."""
    if not _has(reader, key):
        return ()
    texts = []
    for word in _words(reader, key):
        try:
            texts.append(word.encode("latin-1"))
        except UnicodeEncodeError:
            raise reader.error(f"{key}: {word!r} is no text of bytes", key) from None
    return tuple(texts)


def _has(reader: Reader, key: str) -> bool:
    """Return whether an optional key is there; in any case it is a known one."""
    if reader.has(key):
        return True
    reader.take(key, list, [])
    return False


def _words(reader: Reader, key: str) -> Sequence[str]:
    words: list[Any] = reader.take(key, list)
    if not 0 < len(words) <= _MAX_TEXTS:
        raise reader.error(f"{key} must be a list of 1 to {_MAX_TEXTS} texts", key)
    for word in words:
        if not isinstance(word, str) or not 0 < len(word) <= _MAX_TEXT_BYTES:
            raise reader.error(f"{key}: {word!r} is no text of 1 to {_MAX_TEXT_BYTES} bytes", key)
    return words


def _fits(patterns: tuple[str, ...], name: str) -> bool:
    folded = name[:_MAX_NAME].strip().casefold()
    return any(fnmatchcase(folded, pattern) for pattern in patterns)


def _version(text: str) -> tuple[tuple[int, int, str], ...]:
    """
    Return a key that orders firmware: by the first dotted number, such as 2.90 of ``iLO 5 v2.90``, or else by all
    numbers and words.
    """
    dotted = _DOTTED.search(text)
    parts = _PART.findall(text.casefold() if dotted is None else dotted[0])
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)


__all__ = [
    "DEFAULT_ORDER",
    "GENERIC",
    "ConfigError",
    "Entry",
    "Quirk",
    "Transport",
    "find",
    "load",
]
