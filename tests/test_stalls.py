"""
Tests for :mod:`tests.stalls`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.tiers import PROGRAMS

ROOT = Path(__file__).parents[1]

_SCRIPT = """
import os, subprocess, sys, time
from tests.stalls import Stalls

threads = "import sys, threading, time\\n[threading.Thread(target=time.sleep, args=[600], daemon=True).start() for _ in '12']"
echo = "print('up', flush=True)\\nfor line in sys.stdin: print(line, end='', flush=True)"
process = subprocess.Popen(
    [sys.executable, "-c", f"{threads}\\n{echo}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
assert process.stdout.readline() == b"up\\n"
tasks = os.listdir(f"/proc/{process.pid}/task")
assert len(tasks) == 3

def stopped():
    stalls.look()
    stats = [open(f"/proc/{process.pid}/task/{each}/stat").read() for each in tasks]
    return [stat.rpartition(") ")[2][0] == "t" for stat in stats]

stalls = Stalls()
assert stalls.begin(process.pid, 3600)
while not all(stopped()):
    time.sleep(0.001)
process.stdin.write(b"x\\n")
process.stdin.flush()
assert not stalls.begin(process.pid, 9)
stalls._stalls[process.pid].end = 0.0  # the hour has passed
while any(stopped()):
    time.sleep(0.001)
assert process.stdout.readline() == b"x\\n"
"""


class StallTests(SynchronousTestCase):
    """A stall that stops nothing would let every test pass."""

    starts = PROGRAMS
    skip = None if sys.platform.startswith("linux") else "ptrace(2) of Linux is needed"

    def test_stands_still(self) -> None:
        """A process stands still in all its threads, until the stall is over; then it goes on."""
        # In a process of its own, because it takes the exit codes of all children.
        command = [sys.executable, "-c", _SCRIPT]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
