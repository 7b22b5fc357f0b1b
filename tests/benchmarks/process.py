"""What the kernel says of a process: CPU seconds and resident bytes."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def _family(pid: int) -> list[int]:
    """A process and its children (nginx works in a child)."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(int(child) for child in children)]


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its children so far."""
    total = 0
    for member in _family(pid):
        fields = Path(f"/proc/{member}/stat").read_text().rsplit(") ", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its children."""
    total = 0
    for member in _family(pid):
        for line in Path(f"/proc/{member}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) * 1024
    return total


def open_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
