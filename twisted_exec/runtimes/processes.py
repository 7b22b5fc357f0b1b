"""
All processes of one machine: how to find and end them.

They are found by the session of a leader (the first process, after ``setsid``) and by a mark in
their environment. A process is identified by its id *and* its start time, because ids are reused.
Everything is read from ``/proc``: see proc(5) and proc_pid_stat(5).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.display import reason_of
from twisted_exec.tls.files import owner_only

# Signals and the seconds to wait after each; SIGKILL cannot be ignored.
_STEPS = ((signal.SIGHUP, 0.5), (signal.SIGTERM, 1.0), (signal.SIGKILL, 2.0))
_SCAN_SECONDS = 0.02
_RETRY_SECONDS = 0.5

# Errors for want of resources of our own, which say nothing about the process.
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

_log = Logger()


@dataclass(frozen=True)
class Process:
    """One running process, from ``/proc``."""

    pid: int
    start: int
    """Start time in clock ticks after boot."""
    session: int
    parent: int
    terminal: int
    """Device number of the controlling terminal, 0 for none."""


@dataclass(frozen=True)
class Leader:
    """The first process of a session that a machine owns."""

    pid: int
    start: int

    @property
    def session(self) -> int:
        return self.pid


def read_process(pid: int) -> Process | None:
    """Read one process; ``None`` if there is no such process or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command name may contain spaces and parentheses: split after the last one.
            fields = file.read().rpartition(b")")[2].split()
    except OSError as error:
        if error.errno in _OUT_OF_RESOURCES:
            raise
        return None
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return Process(
        pid=pid,
        start=int(fields[19]),
        session=int(fields[3]),
        parent=int(fields[1]),
        terminal=int(fields[4]),
    )


def leader(pid: int) -> Leader | None:
    """Identify a POSIX session leader; ``None`` if it has ended already."""
    process = read_process(pid)
    return None if process is None else Leader(pid, process.start)


def boot_id() -> str:
    """Return the id of this boot; process ids of another boot mean nothing."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


class ProcessTable:
    """Scans all processes, once for all callers within 20 ms."""

    def __init__(self, clock: IReactorTime, variable: str) -> None:
        self.clock = clock
        self._prefix = variable.encode() + b"="
        self._marks: dict[tuple[int, int], str] = {}
        self._waiting: list[Deferred[dict[int, tuple[Process, str]]]] = []
        self._problem = ""

    def scan(self) -> Deferred[dict[int, tuple[Process, str]]]:
        """
        :return: fires with the processes of this host and their marks, empty for none, by process
            id.
        """
        waiter: Deferred[dict[int, tuple[Process, str]]] = Deferred()
        if not self._waiting:
            self.clock.callLater(_SCAN_SECONDS, self._answer)
        self._waiting.append(waiter)
        return waiter

    def scan_now(self) -> dict[int, tuple[Process, str]]:
        """Scan all of ``/proc`` synchronously; see :meth:`scan`."""
        processes = {}
        marks = {}
        ours = os.getpid()
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            process = read_process(int(name))
            if process is None:
                continue
            key = process.pid, process.start
            # Read once: a process that was forked without a mark never gets one.  The
            # exception is a child of our own, which gets its mark by exec.
            mark = self._marks.get(key)
            if mark is None:
                mark = self._read_mark(process.pid)
            if mark or (mark is not None and process.parent != ours):
                marks[key] = mark
            processes[process.pid] = process, mark or ""
        self._marks = marks
        return processes

    def _answer(self) -> None:
        try:
            processes = self.scan_now()
        except OSError as error:
            self._retry(reason_of(error))
            return
        self._problem = ""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(processes)

    def _retry(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            _log.error("cannot scan processes: {problem}", problem=problem)
        self.clock.callLater(_RETRY_SECONDS, self._answer)

    def _read_mark(self, pid: int) -> str | None:
        """Return the mark, empty for none; ``None`` for kernel threads and during exec."""
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            return ""  # ended, or of a user whose processes we cannot signal anyway
        if not environment:
            return None
        for setting in environment.split(b"\0"):
            if setting.startswith(self._prefix):
                return setting[len(self._prefix) :].decode("utf-8", "replace")
        return ""


class ProcessFamily:
    """The processes of one machine."""

    def __init__(
        self,
        table: ProcessTable,
        belongs: Callable[[str], bool],
        leaders: Collection[Leader] = (),
    ) -> None:
        self._table = table
        self._belongs = belongs
        self._leaders = list(leaders)
        self._waiting: list[Deferred[list[Process]]] = []

    def add(self, leader: Leader) -> None:
        self._leaders.append(leader)

    def end(self) -> Deferred[list[Process]]:
        """
        End all processes: by SIGHUP, SIGTERM, and at last SIGKILL.

        :return: fires with the processes that are left, which are usually none.
        """
        waiter: Deferred[list[Process]] = Deferred()
        self._waiting.append(waiter)
        if len(self._waiting) == 1:
            Deferred.fromCoroutine(self._end()).addBoth(self._ended)
        return waiter

    def _ended(self, outcome: list[Process] | Failure) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(outcome)  # a Failure fails it

    async def _end(self, steps: Iterable[tuple[int, float]] = _STEPS) -> list[Process]:
        members = self._members(await self._table.scan())
        for number, seconds in steps:
            deadline = self._table.clock.seconds() + seconds
            signalled: set[Process] = set()
            while members:
                for member in members:
                    if member not in signalled and _signal(member, number):
                        signalled.add(member)
                if self._table.clock.seconds() >= deadline:
                    break
                members = self._members(await self._table.scan())
        return members

    def _members(self, processes: dict[int, tuple[Process, str]]) -> list[Process]:
        sessions = set()
        for leader in self._leaders:
            alive = processes.get(leader.pid)
            # A session outlives its leader, and its id is not reused while it has members.
            if alive is None or alive[0].start == leader.start:
                sessions.add(leader.session)
        return [
            process
            for process, mark in processes.values()
            # A child between fork and setsid does not lead its session yet.
            if process.session in sessions
            or process.pid in sessions
            or (mark and self._belongs(mark))
        ]


def _signal(process: Process, number: int) -> bool:
    """Signal exactly this process, not a later one with its id; false if it must be tried again."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError as error:
        return error.errno not in _OUT_OF_RESOURCES
    try:
        current = read_process(process.pid)
        if current is not None and current.start == process.start:
            signal.pidfd_send_signal(descriptor, number)
            if number != signal.SIGKILL:
                # A stopped process handles the signal only after SIGCONT.
                signal.pidfd_send_signal(descriptor, signal.SIGCONT)
    except ProcessLookupError:
        pass
    except PermissionError:
        _log.warn("process {pid} of a machine may not be signalled", pid=process.pid)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def is_alive(leader: Leader) -> bool:
    process = read_process(leader.pid)
    return process is not None and process.start == leader.start


class RunRecords:
    """
    The leaders of running machines on disk, one file per machine, for the runtime after a crash.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def open(self) -> dict[str, list[Leader]]:
        """
        Create the directory if needed; return the leaders that an earlier runtime recorded, by
        machine id.
        """
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        boot = boot_id()
        return {
            name: _read_record(os.path.join(self._directory, name), boot)
            for name in os.listdir(self._directory)
        }

    def clear(self, retained: Collection[str] = ()) -> None:
        for name in os.listdir(self._directory):
            if name not in retained:
                os.unlink(os.path.join(self._directory, name))

    def add(self, machine_id: str, leader: Leader) -> None:
        """Record a machine's new leader, beside those of its leaders that still run."""
        path = os.path.join(self._directory, machine_id)
        earlier = _read_record(path, boot_id()) if os.path.exists(path) else []
        leaders = [each for each in earlier if each != leader and is_alive(each)] + [leader]
        record = {"boot": boot_id(), "leaders": [[each.pid, each.start] for each in leaders]}
        with open(f"{path}.new", "w", opener=owner_only) as file:
            json.dump(record, file)
        # No fsync: after a power failure no process is left.
        os.replace(f"{path}.new", path)

    def remove(self, machine_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._directory, machine_id))


def _read_record(path: str, boot: str) -> list[Leader]:
    try:
        with open(path) as file:
            record: Any = json.load(file)
        if record["boot"] != boot:
            return []
        return [Leader(int(pid), int(start)) for pid, start in record["leaders"]]
    except (OSError, ValueError, KeyError, TypeError):
        _log.warn("record {path} of an earlier run cannot be read", path=path)
        return []
