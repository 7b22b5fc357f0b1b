"""
Tests for :mod:`tests.stalls`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).parents[1]

_BEGINNING = """
import os, signal, subprocess, sys, time
from tests.stalls import Stalls

stalls = Stalls()

def start(script):
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\\n"
    return process

def state(pid):
    return open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1][0]

def until(condition):
    end, ended = time.monotonic() + 600, {}
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)
        ended.update(stalls.look())
    return ended

ECHO = "import sys\\nprint('up', flush=True)\\nfor line in sys.stdin: print(line, flush=True)"
"""


class StallTests(SynchronousTestCase):
    """Each in a process of its own, because it takes the exit codes of all children."""

    skip = None if sys.platform.startswith("linux") else "ptrace(2) of Linux is needed"

    def check(self, script: str) -> None:
        directory = self.mktemp()
        os.mkdir(directory)
        command = [sys.executable, "-c", _BEGINNING + script, os.path.abspath(directory)]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_stands_still(self) -> None:
        """A process does nothing, in none of its threads, for as long as it shall; then it goes on."""
        self.check("""
threads = "import threading, time; [threading.Thread(target=time.sleep, args=[9], daemon=True).start() for _ in '12']\\n"
process = start(threads + ECHO)
tasks = os.listdir(f"/proc/{process.pid}/task")
assert len(tasks) == 3
began = time.monotonic()
until(lambda: stalls.begin(process.pid, 0.2))
assert not stalls.begin(process.pid, 9)
until(lambda: all(state(each) == "t" for each in tasks))
process.stdin.write(b"x\\n"); process.stdin.flush()
until(lambda: all(state(each) != "t" for each in tasks))
assert time.monotonic() - began >= 0.2
assert process.stdout.readline() == b"x\\n"
os.kill(process.pid, signal.SIGKILL)
""")

    def test_signals(self) -> None:
        """A signal waits until the process goes on."""
        self.check("""
process = start("import signal\\nprint('up', flush=True)\\nwhile True: signal.pause()")
until(lambda: stalls.begin(process.pid, 0.2))
until(lambda: state(process.pid) == "t")
os.kill(process.pid, signal.SIGTERM)
assert until(lambda: not os.path.exists(f"/proc/{process.pid}")) == {process.pid: -signal.SIGTERM}
""")

    def test_killed(self) -> None:
        """A process that stands still can be killed at once."""
        self.check("""
process = start(ECHO)
until(lambda: stalls.begin(process.pid, 3600))
until(lambda: state(process.pid) == "t")
os.kill(process.pid, signal.SIGKILL)
assert until(lambda: not os.path.exists(f"/proc/{process.pid}")) == {process.pid: -signal.SIGKILL}
""")

    def test_stopped(self) -> None:
        """A process that a test has stopped stays so; one that a test lets go on goes on later."""
        self.check("""
process = start(ECHO)
os.kill(process.pid, signal.SIGSTOP)
until(lambda: state(process.pid) == "T")
until(lambda: stalls.begin(process.pid, 0.1))
until(lambda: state(process.pid) == "t")
until(lambda: state(process.pid) == "T")
until(lambda: stalls.begin(process.pid, 0.1))
os.kill(process.pid, signal.SIGCONT)
until(lambda: state(process.pid) == "S")
os.kill(process.pid, signal.SIGKILL)
""")

    def test_run(self) -> None:
        """The exit code is the program's; daemons stand still, too."""
        self.check("""
import random
from tests import stalls as module
module.LONGEST_CALM_SECONDS = module.LONGEST_SECONDS = 0.1
daemon = "import subprocess, time; subprocess.Popen(['sleep', '2'], start_new_session=True)"
code = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {daemon!r}]); time.sleep(1.5); sys.exit(7)"
path = os.path.join(sys.argv[1], "log")
assert module.run([sys.executable, "-c", code], random.Random(1), path) == 7
assert "sleep 2" in open(path).read()
""")
