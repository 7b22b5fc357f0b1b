"""
Audit files and their rotated predecessors, read record by record.

Programs may write and rotate the files meanwhile.  All files of one name are opened first, the
newest before the older ones: a file that is renamed meanwhile is found again under its next name,
and is read once.
"""

from __future__ import annotations

import glob
import gzip
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, BinaryIO, cast

LONGEST_LINE_BYTES = 1 << 20
"""The longest record with two bodies has less than 200 KiB."""

_LARGEST = 1 << 60
_NAMED = 5
_PASSES = 5
"""A rotation after a listing gives the oldest file a name that the listing does not have."""
_OLD = re.compile(r"\.(\d{1,6})(\.gz)?")


class AuditFileError(Exception):
    """A file cannot be read.  ``str()`` is one line that says why."""


@dataclass
class Damage:
    """
    Lines that are no records.

    :ivar named: the first of them, as ``FILE:LINE: problem``.
    """

    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, name: str, number: int, problem: str) -> None:
        """Count a line."""
        self.count += 1
        if len(self.named) < _NAMED:
            self.named.append(f"{name}:{number}: {problem}")


@dataclass(frozen=True)
class Record:
    """
    One record.

    :param time: when it was written, timezone-aware.
    """

    time: datetime
    hop: str
    event: str
    facts: dict[str, Any]

    def text(self, key: str) -> str:
        """Return a text; empty if the record has none of that name."""
        value = self.facts.get(key, "")
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> float:
        """Return a number; 0 if the record has none of that name, or one that no program writes."""
        value = self.facts.get(key, 0)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return 0
        return value if 0 <= value < _LARGEST else 0


def read_records(path: str, damage: Damage) -> Iterator[Record]:
    """
    Yield the records of an audit file, the oldest first.

    :param path: the file without the number of an old file, or ``-`` for standard input.
    :param damage: receives the lines that are no records.
    :raises AuditFileError: there is no such file, it cannot be read, or it has other lines alone.
    """
    damaged_before, has_records = damage.count, False
    with ExitStack() as stack:
        try:
            for name, stream in _opened(path, stack):
                for record in _records(name, stream, damage):
                    has_records = True
                    yield record
        except (OSError, EOFError) as error:
            reason = getattr(error, "strerror", None) or "it is damaged"
            raise AuditFileError(f"cannot read {path}: {reason}") from None
    if not has_records and damage.count > damaged_before:
        raise AuditFileError(f"{path} has no audit records: name a file of --audit-log")


def _opened(path: str, stack: ExitStack) -> list[tuple[str, BinaryIO]]:
    """Open a file and its predecessors; the oldest is the first of the result."""
    if path == "-":
        return [("standard input", sys.stdin.buffer)]
    opened: dict[tuple[int, int], tuple[str, BinaryIO]] = {}
    problem = _open(path, opened, stack)
    for _ in range(_PASSES):
        before = len(opened)
        for name in _old_files(path):
            problem = _open(name, opened, stack) and problem
        if len(opened) == before:
            break
    if problem is not None and not opened:
        raise problem
    return list(opened.values())[::-1]


def _open(
    name: str, opened: dict[tuple[int, int], tuple[str, BinaryIO]], stack: ExitStack
) -> FileNotFoundError | None:
    """Open a file that is not open yet; return the error if there is none of that name."""
    try:
        stream = stack.enter_context(open(name, "rb"))  # noqa: SIM115
    except FileNotFoundError as error:
        return error
    status = os.fstat(stream.fileno())
    opened.setdefault((status.st_dev, status.st_ino), (name, _unpacked(name, stream, stack)))
    return None


def _unpacked(name: str, stream: BinaryIO, stack: ExitStack) -> BinaryIO:
    if not name.endswith(".gz"):
        return stream
    return cast(BinaryIO, stack.enter_context(gzip.open(stream, "rb")))


def _old_files(path: str) -> list[str]:
    """Return the names of old files, the newest first: ``FILE.1``, or ``FILE.1.gz`` by logrotate."""
    names: dict[int, str] = {}
    for name in glob.glob(f"{glob.escape(path)}.*"):
        match = _OLD.fullmatch(name[len(path) :])
        if match is not None and (not match[2] or int(match[1]) not in names):
            names[int(match[1])] = name
    return [names[number] for number in sorted(names)]


def _records(name: str, stream: BinaryIO, damage: Damage) -> Iterator[Record]:
    for number, line in _lines(stream):
        if line is None:
            damage.add(name, number, f"longer than {LONGEST_LINE_BYTES >> 20} MiB")
        elif line.strip():
            try:
                yield _record(line)
            except (ValueError, RecursionError) as problem:
                damage.add(name, number, _why(problem))


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield the number and the bytes of each line; ``None`` for a line that is too long."""
    number, is_long = 0, False
    while line := stream.readline(LONGEST_LINE_BYTES):
        is_complete = line.endswith(b"\n")
        if is_long:
            is_long = not is_complete
            continue
        number += 1
        is_long = not is_complete and len(line) >= LONGEST_LINE_BYTES
        yield number, None if is_long else line


def _why(problem: Exception) -> str:
    if isinstance(problem, (json.JSONDecodeError, RecursionError, UnicodeDecodeError)):
        return "not JSON"
    return str(problem)


def _record(line: bytes) -> Record:
    """:raises ValueError: the line is not a record."""
    facts = json.loads(line)
    if not isinstance(facts, dict):
        raise ValueError("not an object")
    for key in ("time", "hop", "event"):
        if not isinstance(facts.get(key), str):
            raise ValueError(f"without {key}")
    return Record(_time(facts["time"]), facts["hop"], facts["event"], facts)


def _time(text: str) -> datetime:
    """:raises ValueError: it is not a time with a zone."""
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is not None:
            return time.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError("without a time such as 2026-11-20T06:00:24.319Z")
