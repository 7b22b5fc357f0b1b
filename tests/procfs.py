"""What the kernel says of a process: CPU seconds and resident bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_SCHEDULED = 2
"""The kind of CPU clock that ``clock_getcpuclockid(3)`` returns for a process."""
_TICKS = os.sysconf("SC_CLK_TCK")


def _family(pid: int, name: str) -> Iterator[str]:
    """Yield this file of a process and of its children (nginx works in a child)."""
    yield Path(f"/proc/{pid}/{name}").read_text()
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            yield Path(f"/proc/{child}/{name}").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its children so far."""
    total = 0
    for stat in _family(pid, "stat"):
        fields = stat.rsplit(") ", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def exact_cpu_seconds(pid: int) -> float:
    """The same of a process alone, in nanoseconds and not in ticks."""
    return time.clock_gettime(~pid << 3 | _SCHEDULED)


def waited_seconds(pid: int) -> float:
    """How long its threads were ready to run, and waited for a processor."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # the thread has just ended
            total += int((thread / "schedstat").read_text().split()[1])
    return total / 1e9


def is_running(pid: int) -> bool:
    """Whether its main thread works, or waits for a processor; false when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].startswith("R")
    except OSError:
        return False


def is_alive(pid: int) -> bool:
    """Whether the process exists, and is no zombie."""
    try:
        return not Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].startswith("Z")
    except OSError:
        return False


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its children."""
    total = 0
    for status in _family(pid, "status"):
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) * 1024
    return total


def own_bytes(pid: int) -> int:
    """Memory of a process alone that it shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def open_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def open_sockets(pid: int) -> int:
    """Sockets that a process has open; 0 when it is gone."""
    count = 0
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed meanwhile
                count += os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:")
    return count


def loopback_connections(pid: int) -> int:
    """TCP connections to 127.0.0.1 that a process or one of its descendants has opened."""
    sockets = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[2].startswith("0100007F:"):
            sockets.add(f"socket:[{fields[9]}]")
    count = 0
    for process in (pid, *descendants(pid)):
        with suppress(OSError):
            for name in os.listdir(f"/proc/{process}/fd"):
                with suppress(OSError):  # closed meanwhile
                    count += os.readlink(f"/proc/{process}/fd/{name}") in sockets
    return count


def written_bytes(pid: int) -> int:
    """What a process has handed to ``write`` so far."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    raise ValueError(f"the kernel does not count what {pid} writes")


def name(pid: int) -> str:
    """A process's short name; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def descendants(pid: int) -> list[int]:
    """All processes below one, without those that end meanwhile."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        tasks: list[str] = []
        with suppress(OSError):
            tasks = os.listdir(f"/proc/{parent}/task")
        for task in tasks:  # each thread has children of its own
            with suppress(OSError):
                children = Path(f"/proc/{parent}/task/{task}/children").read_text().split()
                waiting += [int(child) for child in children]
                found += [int(child) for child in children]
    return found


def with_argument(text: str) -> list[int]:
    """Processes whose command line contains a text, such as the path of a test's directory."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has just ended
            if text.encode() in Path(f"/proc/{process}/cmdline").read_bytes():
                found.append(int(process))
    return found


def machines_of(state: str) -> list[int]:
    """The processes of machines, by the mark of the runtime with this state directory."""
    try:
        mark = b"TWISTED_EXEC_MACHINE=" + Path(state, "runtime-id").read_bytes().strip()
    except FileNotFoundError:
        return []
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in Path(f"/proc/{process}/environ").read_bytes():
                found.append(int(process))
        except OSError:  # it has just ended, or is not ours
            continue
    return found
