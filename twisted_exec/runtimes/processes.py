"""
Families of processes: everything that one machine started, found and ended.

A machine's process leads a session (``setsid``).  What it starts mostly stays in that session;
what leaves it still carries a mark in its environment.  So a family is whoever is in one
of the leaders' sessions, or bears the mark.  A process id alone names nobody, ids are used again:
a process is a process id *and* its start time.

A leader is written to disk as soon as it is known.  When the runtime itself was
killed, the next one reads who was running and ends them before it serves.

All of it is read from ``/proc``: see proc(5), proc_pid_stat(5).
"""

from __future__ import annotations

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

# What is asked of a family, and for how long it may take; the last cannot be refused.
_STEPS = ((signal.SIGHUP, 0.5), (signal.SIGTERM, 1.0), (signal.SIGKILL, 2.0))
_LOOK_SECONDS = 0.02
_LOOK_AGAIN_SECONDS = 0.5

# What says nothing about the process that one wanted to look at.
_WANT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

_log = Logger()


@dataclass(frozen=True)
class Process:
    """One running process, as ``/proc`` told it."""

    pid: int
    start: int
    """Clock ticks after boot: with the id it names a process for ever."""
    session: int
    parent: int
    terminal: int
    """Device number of the terminal that controls it, 0 for none."""


@dataclass(frozen=True)
class Leader:
    """The first process of a session that a machine owns."""

    pid: int
    start: int

    @property
    def session(self) -> int:
        return self.pid


def read_process(pid: int) -> Process | None:
    """
    The process, or ``None`` when there is none, or only its remains (a zombie).

    :raises OSError: it cannot be looked at for want of descriptors or memory.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command's name may hold spaces and parentheses; fields count after the last.
            fields = file.read().rpartition(b")")[2].split()
    except OSError as error:
        if error.errno in _WANT:
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
    """The process as leader of its session, or ``None`` when it has ended already."""
    found = read_process(pid)
    return None if found is None else Leader(pid, found.start)


def boot_id() -> str:
    """Differs after each boot: process ids of another boot mean nothing."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


class ProcessTable:
    """
    Looks at all processes, once for everybody who asks at about the same time.

    :param variable: of the environment that marks families; its value tells which one.
    """

    def __init__(self, clock: IReactorTime, variable: str) -> None:
        self.clock = clock
        self._prefix = variable.encode() + b"="
        self._marks: dict[tuple[int, int], str] = {}
        self._asking: list[Deferred[dict[int, tuple[Process, str]]]] = []
        self._problem = ""

    def look(self) -> Deferred[dict[int, tuple[Process, str]]]:
        """Fires soon, with every process and its mark (or nothing) at that time, by id."""
        asking: Deferred[dict[int, tuple[Process, str]]] = Deferred()
        if not self._asking:
            self.clock.callLater(_LOOK_SECONDS, self._answer)
        self._asking.append(asking)
        return asking

    def look_now(self) -> dict[int, tuple[Process, str]]:
        """The same at once, at the price of reading ``/proc`` for one caller."""
        found = {}
        marks = {}
        ours = os.getpid()
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            process = read_process(int(name))
            if process is None:
                continue
            key = process.pid, process.start
            # Read once: marks are inherited, so who was born without one never has one.
            # Except for our own children, who get theirs by exec.
            mark = self._marks.get(key)
            if mark is None:
                mark = self._read_mark(process.pid)
            if mark or (mark is not None and process.parent != ours):
                marks[key] = mark
            found[process.pid] = process, mark or ""
        self._marks = marks
        return found

    def _answer(self) -> None:
        try:
            found = self.look_now()
        except OSError as error:
            self._look_again(error.strerror or str(error))
            return
        self._problem = ""
        asking, self._asking = self._asking, []
        for one in asking:
            one.callback(found)

    def _look_again(self, problem: str) -> None:
        """Who asks wants to end processes: better late than believing that there are none."""
        if problem != self._problem:
            self._problem = problem
            _log.error("cannot look at processes: {problem}", problem=problem)
        self.clock.callLater(_LOOK_AGAIN_SECONDS, self._answer)

    def _read_mark(self, pid: int) -> str | None:
        """``None`` when there is no environment: in the kernel, or in the middle of an exec."""
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            return ""  # gone, or of a user whom we could not end either
        if not environment:
            return None
        for setting in environment.split(b"\0"):
            if setting.startswith(self._prefix):
                return setting[len(self._prefix) :].decode("utf-8", "replace")
        return ""


class ProcessFamily:
    """
    The processes of one machine.

    :param belongs: whether a mark's value is this family's.
    :param leaders: whose sessions are this family's.
    """

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
        Ask politely, then less so, until nobody is left.  Who asks meanwhile joins in.

        :return: fires with those that could not be ended in time: nobody,
            unless the kernel itself holds a process.
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
        members = self._members(await self._table.look())
        for number, seconds in steps:
            deadline = self._table.clock.seconds() + seconds
            told: set[Process] = set()
            while members:
                for member in members:
                    if member not in told and _signal(member, number):
                        told.add(member)
                if self._table.clock.seconds() >= deadline:
                    break
                members = self._members(await self._table.look())
        return members

    def _members(self, found: dict[int, tuple[Process, str]]) -> list[Process]:
        sessions = set()
        for one in self._leaders:
            alive = found.get(one.pid)
            # A session outlives its leader, and keeps the id from being used again.
            if alive is None or alive[0].start == one.start:
                sessions.add(one.session)
        return [
            process
            for process, mark in found.values()
            # A leader that was just forked does not lead yet.
            if process.session in sessions
            or process.pid in sessions
            or (mark and self._belongs(mark))
        ]


def _signal(process: Process, number: int) -> bool:
    """
    Signal exactly this process, not one that was given its id meanwhile.

    :return: whether that needs no repetition.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError as error:
        return error.errno not in _WANT
    try:
        found = read_process(process.pid)
        if found is not None and found.start == process.start:
            signal.pidfd_send_signal(descriptor, number)
            if number != signal.SIGKILL:
                # A stopped process could not act on what it was told.
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


class RunRecords:
    """
    Who is running, on disk: one file per machine, for the runtime after a crash.

    :param directory: private; made when it is missing.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def open(self) -> dict[str, list[Leader]]:
        """Make the directory; :return: the leaders that an earlier runtime left, by machine id."""
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        boot = boot_id()
        return {
            name: _read_record(os.path.join(self._directory, name), boot)
            for name in os.listdir(self._directory)
        }

    def clear(self, kept: Collection[str] = ()) -> None:
        """The earlier runtime's machines are ended, but for those that are kept."""
        for name in os.listdir(self._directory):
            if name not in kept:
                os.unlink(os.path.join(self._directory, name))

    def write(self, machine_id: str, leaders: Collection[Leader]) -> None:
        """Keep a machine's leaders; none removes its file."""
        path = os.path.join(self._directory, machine_id)
        if not leaders:
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
            return
        record = {"boot": boot_id(), "leaders": [[one.pid, one.start] for one in leaders]}
        with open(f"{path}.new", "w") as file:
            json.dump(record, file)
        # Not synced: after a power failure nobody is left to be found.
        os.replace(f"{path}.new", path)


def _read_record(path: str, boot: str) -> list[Leader]:
    """The leaders in one file; none from another boot or from a torn file."""
    try:
        with open(path) as file:
            record: Any = json.load(file)
        if record["boot"] != boot:
            return []
        return [Leader(int(pid), int(start)) for pid, start in record["leaders"]]
    except (OSError, ValueError, KeyError, TypeError):
        _log.warn("record {path} of an earlier run cannot be read", path=path)
        return []
