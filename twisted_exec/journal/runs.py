"""
The file ``run``: whether the last run of the program lost output in a power cut.

Each start has a number.  A run that did not stop cleanly, on a kernel that has been booted since,
ended by a power cut: output that viewers saw in its last seconds may not be on the disk.  The same is
true if its file in memory (:mod:`.front`) is gone.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

from .layer import opened, sync_directory

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class Run:
    """
    One run of the program.

    :param kernel: identifies the boot of the kernel.
    :param clean: the run ended, and everything is on the disk.
    :param cut: number of the last run that a power cut ended; 0 if there was none.
    :param time_ns: when the file was written.
    :param front: name of the file in memory that the run has; empty for releases without such a file,
        which wrote output before anybody saw it.
    """

    number: int
    kernel: str
    clean: bool
    cut: int
    time_ns: int
    front: str = ""


def kernel_boot() -> str:
    """Return what identifies the boot of the kernel; empty if it does not say."""
    try:
        with open(_BOOT_ID) as file:
            return file.read(100).strip()
    except OSError:
        return ""


def next_run(
    last: Run | None,
    kernel: str,
    now: int,
    *,
    is_new: bool,
    front: str = "",
    has_lost: bool = False,
) -> Run:
    """
    Return the run that begins now.

    :param last: the last run; ``None`` if there was none, or its file is damaged.
    :param is_new: there are no journals yet.
    :param front: name of the file in memory of the run that begins.
    :param has_lost: the file in memory of the last run is gone.
    """
    if last is None:
        if is_new:
            return Run(1, kernel, False, 0, now, front)
        number = max(2, now // 1_000_000_000)  # beyond every number before
        return Run(number, kernel, False, number - 1, now, front)  # assume the worst
    was_cut = has_lost or (not last.clean and (last.kernel != kernel or not kernel))
    return Run(last.number + 1, kernel, False, last.number if was_cut else last.cut, now, front)


def read_run(layer: Any, path: str) -> Run | None:
    """Read the file; ``None`` if it is missing or damaged."""
    try:
        with opened(layer, path) as descriptor:
            return Run(**json.loads(layer.pread(descriptor, 4096, 0)))
    except (OSError, ValueError, TypeError):
        return None


def write_run(layer: Any, path: str, run: Run) -> None:
    """
    Write the file, and force it to the disk.

    :raises OSError: the disk is full or not writable.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with opened(layer, f"{path}.new", flags) as descriptor:
        fields = asdict(run)
        if not run.front:  # earlier releases refuse names that they do not know
            del fields["front"]
        layer.write(descriptor, json.dumps(fields).encode())
        layer.fsync(descriptor)
    layer.rename(f"{path}.new", path)
    sync_directory(layer, os.path.dirname(path))
