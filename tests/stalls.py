"""
Any process may stand still for up to two seconds at any moment: ``python -m tests.stalls [TEST ...]``.

Runs trial, and lets random processes below it stand still for random times: workers, programs of the tests, and
what these start.  A machine with too few processors, or a debugger, does the same.

The processes are stopped by ptrace(2), not by SIGSTOP: neither parents nor the processes notice, and a process
that a test itself has stopped stays so.  However this program ends, the kernel lets all of them go on.

``SEED`` repeats the choices of a run, ``STALLS_LOG`` names a file for a line about each stall.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests import procfs
from tests.flows.forks import prctl

SHORTEST_SECONDS, LONGEST_SECONDS = 0.1, 2.0
LONGEST_CALM_SECONDS = 2.5
"""Stalls of several processes may overlap."""
_LOOK_SECONDS = 0.01
_PR_SET_CHILD_SUBREAPER = 36
_PTRACE_DETACH, _PTRACE_SEIZE, _PTRACE_INTERRUPT = 17, 0x4206, 0x4207
_WALL = 0x40000000
"""``__WALL``: wait for threads of other processes, too; see waitpid(2)."""
_EVENT_STOP = 128

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes, _libc.ptrace.restype = [ctypes.c_long] * 4, ctypes.c_long


def _ptrace(request: int, thread: int, data: int = 0) -> bool:
    """Return whether the thread is still there and can be traced."""
    if _libc.ptrace(request, thread, 0, data) >= 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ESRCH, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number))


@dataclass
class _Stall:
    """
    A process that stands still.

    :ivar end: when it goes on, by the monotonic clock.
    :ivar threads: all that are traced, with the signal that each gets when it goes on; ``None``: it
        has not stopped yet.
    """

    end: float
    threads: dict[int, int | None] = field(default_factory=dict)


class Stalls:
    """
    Stalls of processes below this one.

    :ivar count: of all stalls so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._stalls: dict[int, _Stall] = {}

    def begin(self, pid: int, seconds: float) -> bool:
        """Stop a process; return whether it can be stopped."""
        if pid in self._stalls:
            return False
        stall = _Stall(time.monotonic() + seconds)
        self._stop_threads(pid, stall)
        if not stall.threads:
            return False
        self._stalls[pid] = stall
        self.count += 1
        return True

    def look(self) -> dict[int, int]:
        """
        Let go on what has stood still for long enough.

        :return: the exit codes of processes that have ended.
        """
        ended = self._reap()
        now = time.monotonic()
        for pid, stall in list(self._stalls.items()):
            if now < stall.end:
                self._stop_threads(pid, stall)  # those that began before all had stopped
            else:
                for thread, number in list(stall.threads.items()):
                    # A thread may wait in the kernel, such as in vfork(2): it stops later, and goes on then.
                    if number is not None and _ptrace(_PTRACE_DETACH, thread, number):
                        del stall.threads[thread]
            for thread in list(stall.threads):  # execve(2) ends threads without a word
                if not os.path.exists(f"/proc/{thread}"):
                    del stall.threads[thread]
            if not stall.threads:
                del self._stalls[pid]
        return ended

    def _stop_threads(self, pid: int, stall: _Stall) -> None:
        with contextlib.suppress(OSError):
            for thread in map(int, os.listdir(f"/proc/{pid}/task")):
                if thread not in stall.threads and _ptrace(_PTRACE_SEIZE, thread):
                    stall.threads[thread] = None
                    _ptrace(_PTRACE_INTERRUPT, thread)

    def _reap(self) -> dict[int, int]:
        ended: dict[int, int] = {}
        with contextlib.suppress(ChildProcessError):
            while (result := os.waitpid(-1, os.WNOHANG | _WALL))[0]:
                number, status = result
                for stall in self._stalls.values():
                    if number in stall.threads:
                        if os.WIFSTOPPED(status):
                            interrupted = status >> 16 == _EVENT_STOP
                            stall.threads[number] = 0 if interrupted else os.WSTOPSIG(status)
                        else:
                            del stall.threads[number]
                if not os.WIFSTOPPED(status):
                    ended[number] = os.waitstatus_to_exitcode(status)
        return ended


def _command(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode("utf-8", "replace")
        )
    except OSError:
        return ""


def run(argv: list[str], choice: random.Random, log: str = os.devnull) -> int:
    """
    Run a program while it and its descendants stand still now and then; return its exit code.

    :param log: a file for a line about each stall.
    """
    # Else daemons would not be found any more: they would become children of init.
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    stalls, due = Stalls(), time.monotonic()
    pid = os.posix_spawnp(argv[0], argv, os.environ, setsigdef=[signal.SIGINT])
    # The program gets a terminal's Ctrl-C, too, and ends after its clean-ups.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(pid, number))
    with open(log, "a", buffering=1) as file:
        while pid not in (ended := stalls.look()):
            now = time.monotonic()
            if now >= due:
                due = now + choice.uniform(0, LONGEST_CALM_SECONDS)
                seconds = choice.uniform(SHORTEST_SECONDS, LONGEST_SECONDS)
                target = choice.choice(sorted(procfs.descendants(os.getpid())) or [pid])
                if stalls.begin(target, seconds):
                    at = time.strftime("%H:%M:%S")
                    file.write(f"{at} {target} {seconds:.2f} s: {_command(target)[:150]}\n")
            time.sleep(_LOOK_SECONDS)  # wait: this program makes others wait
    print(f"{stalls.count} stalls", flush=True)
    return ended[pid]


def main() -> None:
    seed = os.environ.get("SEED") or str(random.getrandbits(32))
    print(f"SEED={seed}", flush=True)
    argv = [sys.executable, "-m", "twisted.trial", *(sys.argv[1:] or ["tests"])]
    log = os.environ.get("STALLS_LOG", os.devnull)
    sys.exit(run(argv, random.Random(seed), log))


if __name__ == "__main__":
    main()
