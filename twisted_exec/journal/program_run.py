"""
The file ``run`` beside the journals: whether the last run of the program may have lost output.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from twisted_exec.journal.file_access import opened, sync_directory
from twisted_exec.program.state_files import from_document

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class ProgramRun:
    """
    One run of the program.

    :param cut: number of the last run that may have lost output that viewers saw; 0 if there was
        none.
    :param front: name of the file in memory of the run; empty after a clean end.
    """

    number: int
    kernel: str
    clean: bool
    cut: int
    time_ns: int
    front: str = ""


def kernel_boot() -> str:
    """Return an id of the boot of the kernel, or an empty text."""
    try:
        with open(_BOOT_ID) as file:
            return file.read(100).strip()
    except OSError:
        return ""


def next_run(
    last: ProgramRun | None,
    kernel: str,
    now: int,
    *,
    is_new: bool,
    front: str = "",
    has_lost: bool = False,
) -> ProgramRun:
    """
    Return the run that begins now.

    :param has_lost: the file in memory of the last run is gone.
    """
    if last is None:
        if is_new:
            return ProgramRun(1, kernel, False, 0, now, front)
        number = max(2, now // 1_000_000_000)  # beyond every number before
        return ProgramRun(number, kernel, False, number - 1, now, front)  # assume the worst
    was_cut = has_lost or (not last.clean and (last.kernel != kernel or not kernel))
    return ProgramRun(
        last.number + 1, kernel, False, last.number if was_cut else last.cut, now, front
    )


def read_run(layer: Any, path: str) -> ProgramRun | None:
    """Read the file, or return ``None`` if that fails."""
    try:
        with opened(layer, path) as descriptor:
            return from_document(ProgramRun, json.loads(layer.pread(descriptor, 4096, 0)))
    except (OSError, ValueError, TypeError):
        return None


def write_run(
    layer: Any, path: str, run: ProgramRun, check: Callable[[], None] = lambda: None
) -> None:
    """
    Write the file.

    :param check: raises an error if the file must not be replaced any more; maybe in a thread.
    """
    with suppress(FileNotFoundError):  # a call that still waits for the disk may write to it
        layer.unlink(f"{path}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with opened(layer, f"{path}.new", flags) as descriptor:
        layer.write(descriptor, json.dumps(asdict(run)).encode())
        layer.fsync(descriptor)
    check()
    layer.rename(f"{path}.new", path)
    sync_directory(layer, os.path.dirname(path))
