"""
Sessions, as the audit records of all hops show them.

Only the runtime's records count the typed bytes without framing.
"""

from __future__ import annotations

import glob
import gzip
import json
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, BinaryIO, cast
from urllib.parse import parse_qs

from twisted_exec.ssh.people import SSH_ADDRESS

_HOPS = ("apiserver", "nodeserver", "poollet", "broker", "runtime")
"""The first hop knows most about the user, the last one least."""

START, END = "start", "end"
_OBSERVE = "observe"
_CLOSED = ("client closed", "backend closed")
READS = frozenset({"log", "screen", "content", "recording"})
"""Subresources of readers; ``recording`` is the runtime's word for ``content`` of a ConsoleRecording."""

Key = tuple[str, str, str]

LONGEST_LINE_BYTES = 1 << 20
"""Longer lines count as damaged."""

_LARGEST = 1 << 60
_NAMED = 5
_MOST_EXTRA = 100
_PASSES = 5
"""Most listings of the old files, which a rotation may rename meanwhile."""
_OLD = re.compile(r"\.(\d{1,6})(\.gz)?")


@dataclass
class HopSession:
    started: datetime
    ended: datetime | None = None
    start: AuditRecord | None = None
    end: AuditRecord | None = None
    bytes_to_machine: int = 0
    bytes_to_user: int = 0
    _recorded: set[tuple[str, datetime]] = field(default_factory=set)

    def add(self, record: AuditRecord) -> None:
        """Add a start or an end; copies of a record do not count."""
        if (record.event, record.time) in self._recorded:
            return
        self._recorded.add((record.event, record.time))
        if record.event == START:
            self.started = min(self.started, record.time)
            self.start = record
            # A second attempt after a refusal; but records of the same instant may be in any order.
            if self.ended is not None and record.time > self.ended:
                self.ended = self.end = None
            return
        self.ended, self.end = record.time, record
        self.bytes_to_machine += int(record.number("bytes_to_machine"))
        self.bytes_to_user += int(record.number("bytes_to_user"))

    @property
    def record(self) -> AuditRecord:
        record = self.end or self.start
        assert record is not None
        return record


class AuditedSession:
    """A session at the hops whose records were read."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.hops: dict[str, HopSession] = {}
        self.later: list[AuditedSession] = []

    def add(self, record: AuditRecord) -> None:
        hop = self.hops.get(record.hop)
        if hop is None:
            hop = self.hops[record.hop] = HopSession(record.time)
        hop.add(record)

    @property
    def best(self) -> HopSession:
        """The hop that knows most about the user."""
        return self.hops[min(self.hops, key=_rank)]

    def text(self, key: str) -> str:
        """Return a fact of the best hop that knows it."""
        texts = (self.hops[hop].record.text(key) for hop in sorted(self.hops, key=_rank))
        return next((text for text in texts if text), "")

    @property
    def caller(self) -> str:
        """The user who acted for the session's user."""
        apiserver = self.hops.get("apiserver")
        return apiserver.record.text("caller") if apiserver is not None else ""

    @property
    def extra(self) -> dict[str, list[str]]:
        """What the caller said about the user, such as the login by ssh; empty without a caller."""
        apiserver = self.hops.get("apiserver")
        text = apiserver.record.text("extra") if apiserver is not None else ""
        try:
            return parse_qs(text, max_num_fields=_MOST_EXTRA)
        except ValueError:
            return {}

    @property
    def place(self) -> str:
        """The address that the user came from, also through an ssh server."""
        address, beyond = self.text("address"), self.extra.get(SSH_ADDRESS)
        return f"{beyond[0]} by {address}" if beyond else address

    @property
    def resumes(self) -> str:
        return "" if self.code else self.text("resumes")

    @property
    def last(self) -> AuditedSession:
        return self.later[-1] if self.later else self

    @property
    def cause(self) -> str:
        """
        Why the session ended: the first reason other than that a side has closed, or else that of
        the hop nearest to the machine.
        """
        hops = self.last.hops
        ends = (hops[each].end for each in sorted(hops, key=_rank))
        reasons = [end.text("reason") for end in ends if end is not None]
        causes = [reason for reason in reasons if reason not in _CLOSED]
        return [*causes, *reasons[::-1], ""][0]

    @property
    def started(self) -> datetime:
        return min(hop.started for hop in self.hops.values())

    @property
    def ended(self) -> datetime | None:
        """The end at the best hop, or else the latest end at another hop."""
        if self.later:
            return self.last.ended
        if self.best.ended is not None:
            return self.best.ended
        return max((hop.ended for hop in self.hops.values() if hop.ended), default=None)

    @property
    def code(self) -> int:
        """The HTTP status of a refusal; 0 if the session was opened."""
        end = self.best.end
        return int(end.number("code")) if end is not None else 0

    @property
    def drove(self) -> bool | None:
        """Whether the user typed; ``None`` if the records do not say."""
        each = [self._drove, *(connection.drove for connection in self.later)]
        return True if True in each else None if None in each else False

    @property
    def _drove(self) -> bool | None:
        runtime = self.hops.get("runtime")
        if runtime is not None and runtime.ended is not None:
            return runtime.bytes_to_machine > 0
        if self.code or self.text("right") == _OBSERVE or self.text("subresource") in READS:
            return False
        ended = [hop for hop in self.hops.values() if hop.ended is not None]
        return False if ended and all(hop.bytes_to_machine == 0 for hop in ended) else None

    @property
    def _last_record(self) -> datetime:
        each = [self, *self.later]
        hops = [hop for session in each for hop in session.hops.values()]
        return max(hop.ended or hop.started for hop in hops)

    @property
    def seconds(self) -> float:
        """
        From the start to the end.

        Without an end to the last record: the session may be open, or a program was killed, which
        writes no end. No record tells which: another program of the same hop may have started.
        """
        if self.best.end is not None and not self.later and self.best.ended == self.ended:
            return self.best.end.number("seconds")
        return max(0.0, ((self.ended or self._last_record) - self.started).total_seconds())

    def as_json(self) -> dict[str, Any]:
        connections = [self, *self.later]
        counted = [each.hops.get("runtime", each.best) for each in connections]
        ended = self.ended
        facts = ("user", "namespace", "machine", "uid", "resource", "subresource", "pool")
        return {
            "session": self.key[0],
            **{key: self.text(key) for key in facts},
            "caller": self.caller,
            "started": _stamp(self.started),
            "ended": None if ended is None else _stamp(ended),
            "seconds": round(self.seconds, 3),
            "drove": self.drove,
            "bytes_to_machine": sum(each.bytes_to_machine for each in counted),
            "bytes_to_user": sum(each.bytes_to_user for each in counted),
            "address": self.text("address"),
            "extra": self.extra,
            "agent": self.text("agent"),
            "declared_reason": self.text("declared_reason"),
            "right": self.last.text("right"),
            "policy": self.text("policy"),
            "end": self.cause,
            "code": self.code or None,
            "hops": sorted({hop for each in connections for hop in each.hops}),
            "connections": [each.key[0] for each in connections],
        }


def _rank(hop: str) -> int:
    return _HOPS.index(hop) if hop in _HOPS else len(_HOPS)


def _stamp(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def collect(
    records: Iterable[AuditRecord],
    matches: Callable[[AuditRecord], bool],
    since: datetime | None = None,
) -> list[AuditedSession]:
    """
    Return sessions in the order of their starts.

    :param matches: whether a record selects its session; later records of that session are taken, too.
    :param since: leave out sessions that ended before.
    """
    sessions: dict[Key, AuditedSession] = {}
    for record in records:
        if record.event not in (START, END):
            continue
        key = (record.text("session"), record.text("namespace"), record.text("machine"))
        session = sessions.get(key)
        if session is None:
            if not matches(record):
                continue
            session = sessions[key] = AuditedSession(key)
        session.add(record)
    return [each for each in _joined(sessions.values()) if not _before(each, since)]


def _joined(connections: Iterable[AuditedSession]) -> list[AuditedSession]:
    sessions: dict[Key, AuditedSession] = {}  # by the key of each connection
    for connection in sorted(connections, key=lambda each: each.started):
        _, namespace, machine = connection.key
        before = sessions.get((connection.resumes, namespace, machine))
        if (
            not connection.resumes
            or before is None
            or before.text("user") != connection.text("user")
        ):
            sessions[connection.key] = connection
        else:
            before.later.append(connection)
            sessions[connection.key] = before
    return list(dict.fromkeys(sessions.values()))


def _before(session: AuditedSession, since: datetime | None) -> bool:
    ended = session.ended
    return since is not None and ended is not None and ended < since


class AuditFileError(Exception):
    """A file cannot be read; the message is one line."""


@dataclass
class Damage:
    """
    Lines that are no records.

    :ivar named: the first of them, as ``FILE:LINE: problem``.
    """

    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, name: str, number: int, problem: str) -> None:
        self.count += 1
        if len(self.named) < _NAMED:
            self.named.append(f"{name}:{number}: {problem}")


@dataclass(frozen=True)
class AuditRecord:
    """
    One record.

    :param time: when it was written, timezone-aware.
    """

    time: datetime
    hop: str
    event: str
    facts: dict[str, Any]

    def text(self, key: str) -> str:
        value = self.facts.get(key, "")
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> float:
        """Return a number of the record, or 0."""
        value = self.facts.get(key, 0)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return 0
        return value if 0 <= value < _LARGEST else 0


def read_records(path: str, damage: Damage) -> Iterator[AuditRecord]:
    """
    Yield the records of an audit file and of its predecessors, the oldest first.

    :param path: of the newest file, or ``-`` for standard input.
    :raises AuditFileError: the file cannot be read, or has only other lines.
    """
    damaged_before, has_records, name = damage.count, False, path
    with ExitStack() as stack:
        try:
            for name, stream in _opened(path, stack):
                for record in _records(name, stream, damage):
                    has_records = True
                    yield record
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or "it is damaged"
            raise AuditFileError(f"cannot read {name}: {reason}") from None
    if not has_records and damage.count > damaged_before:
        raise AuditFileError(f"{path} has no audit records: name a file of --audit-log")


def _opened(path: str, stack: ExitStack) -> list[tuple[str, BinaryIO]]:
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
    names: dict[int, str] = {}
    for name in glob.glob(f"{glob.escape(path)}.*"):
        match = _OLD.fullmatch(name[len(path) :])
        if match is not None and (not match[2] or int(match[1]) not in names):
            names[int(match[1])] = name
    return [names[number] for number in sorted(names)]


def _records(name: str, stream: BinaryIO, damage: Damage) -> Iterator[AuditRecord]:
    for number, line in _lines(stream):
        if line is None:
            damage.add(name, number, f"longer than {LONGEST_LINE_BYTES >> 20} MiB")
        elif line.strip():
            try:
                yield _record(line)
            except (ValueError, RecursionError) as problem:
                damage.add(name, number, _why(problem))


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
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


def _record(line: bytes) -> AuditRecord:
    facts = json.loads(line)
    if not isinstance(facts, dict):
        raise ValueError("not an object")
    for key in ("time", "hop", "event"):
        if not isinstance(facts.get(key), str):
            raise ValueError(f"without {key}")
    return AuditRecord(_time(facts["time"]), facts["hop"], facts["event"], facts)


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is not None:
            return time.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError("without a time such as 2026-11-20T06:00:24.319Z")
