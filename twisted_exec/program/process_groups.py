"""
Programs that lead a process group of their own, so that their children can be ended with them.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence

_LEADING = "import os, sys; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])"


def leading(words: Sequence[str]) -> list[str]:
    """Return a command that runs another one in a session of its own: its pid is that of the group."""
    setsid = shutil.which("setsid")
    # macOS has no setsid(1).
    start = [setsid] if setsid else [sys.executable, "-I", "-S", "-c", _LEADING]
    return [*start, *words]


def kill_group(number: int) -> bool:
    """Kill a process group; return whether it was killed."""
    if number <= 0:
        return False  # to kill(2), 0 is the group of the caller
    try:
        os.killpg(number, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True
