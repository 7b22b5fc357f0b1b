"""
Tests for :mod:`twisted_exec.program.descriptors`.
"""

from __future__ import annotations

import os
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.tiers import PROGRAMS

_PROGRAM = """
import resource, subprocess, sys
from twisted.internet import reactor
from twisted.internet.defer import succeed
from twisted.logger import globalLogBeginner, textFileLogObserver
from twisted_exec.program.descriptors import restore_descriptor_limit
from twisted_exec.program.options.sessions import SessionOptions
from twisted_exec.program.start import make_service
globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stdout)], redirectStandardIO=False)
options = SessionOptions()
options.parseOptions(sys.argv[1:])

class Service:
    def when_ready(self):
        return succeed(None)

make_service("exec-x", lambda reactor: Service(), limits=options.session_limits)
print("soft limit", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
restore_descriptor_limit(child.pid)
print("child's limit", resource.prlimit(child.pid, resource.RLIMIT_NOFILE)[0])
child.communicate()
restore_descriptor_limit(child.pid)
"""


class StartTests(SynchronousTestCase):
    """A program that starts."""

    starts = PROGRAMS

    def start(self, *arguments: str, soft: int = 256, hard: int = 600) -> tuple[int, str]:
        argv = [sys.executable, "-c", _PROGRAM, *arguments]
        shell = f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"'
        done = subprocess.run(
            ["sh", "-c", shell, "sh", *argv],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        return done.returncode, done.stdout + done.stderr

    def test_raised_and_announced(self) -> None:
        """It raises its soft limit to the hard one, and logs in one line what that allows."""
        code, output = self.start()
        self.assertEqual(code, 0, output)
        self.assertIn("soft limit 600", output)
        lines = [line for line in output.splitlines() if "exec-x: at most" in line]
        self.assertEqual(len(lines), 1, output)
        self.assertIn(
            "at most 250 sessions, 62 of one user; the limit of file descriptors is 600", lines[0]
        )

    def test_children(self) -> None:
        """Users' shells keep the limit that the program was started with."""
        code, output = self.start()
        self.assertEqual(code, 0, output)
        self.assertIn("child's limit 256", output)

    def test_refused(self) -> None:
        """More sessions than fit are refused in one line, with the exit code 1."""
        code, output = self.start("--max-sessions=300")
        self.assertEqual(code, 1)
        self.assertIn("exec-x: --max-sessions: 300 sessions need 700 file descriptors", output)
        self.assertNotIn("Traceback", output)
