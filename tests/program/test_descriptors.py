"""
Tests for :mod:`twisted_exec.program.descriptors`.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.tiers import PROGRAMS
from twisted_exec.program.descriptors import MOST_SESSIONS, SessionLimits, descriptor_limit
from twisted_exec.program.options.sessions import SessionOptions


def with_descriptors(test: SynchronousTestCase, soft: int) -> None:
    """Set the soft limit of this process for one test."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    test.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (before, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class SessionLimitsTests(SynchronousTestCase):
    """Tests for :class:`SessionLimits`."""

    def test_default(self) -> None:
        """As many sessions as descriptors allow, two for each, and a quarter of them for a user."""
        with_descriptors(self, 1024)
        limits = SessionLimits.fitting()
        self.assertEqual((limits.total, limits.per_user), (462, 115))
        self.assertEqual(limits.descriptors, 1024)

    def test_many_descriptors(self) -> None:
        """Memory limits sessions, too."""
        self.patch(resource, "getrlimit", lambda _: (1 << 30, 1 << 30))
        self.assertEqual(SessionLimits.fitting().total, MOST_SESSIONS)

    def test_endless(self) -> None:
        """Descriptors may be unlimited."""
        self.patch(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
        self.assertGreater(descriptor_limit(), MOST_SESSIONS)
        self.assertEqual(SessionLimits.fitting().total, MOST_SESSIONS)

    def test_hardly_any(self) -> None:
        """A process with very few descriptors still serves one session."""
        with_descriptors(self, 64)
        limits = SessionLimits.fitting()
        self.assertEqual((limits.total, limits.per_user), (1, 1))
        self.assertGreater(limits.connections_beside(1), 0)

    def test_explicit(self) -> None:
        """An operator may ask for fewer; a user never has more than there are."""
        with_descriptors(self, 1024)
        limits = SessionLimits.fitting(400, 500)
        self.assertEqual((limits.total, limits.per_user), (400, 400))
        self.assertEqual(SessionLimits.fitting(400, users_share=1).per_user, 400)

    def test_too_many(self) -> None:
        """A limit that the descriptors cannot hold is refused, with the limit and a remedy."""
        with_descriptors(self, 1024)
        with self.assertRaises(ValueError) as caught:
            SessionLimits.fitting(500)
        message = str(caught.exception)
        self.assertIn("500 sessions need 1100 file descriptors, and the limit is 1024", message)
        self.assertIn("LimitNOFILE", message)

    def test_connections(self) -> None:
        """Other connections get half of the descriptors at most, and what sessions leave."""
        limits = SessionLimits(462, 115, 1024)
        self.assertEqual(limits.connections_beside(0), 512)
        self.assertEqual(limits.connections_beside(400), 1024 - 50 - 800)
        self.assertGreaterEqual(limits.connections_beside(462), 50)


class OptionsTests(SynchronousTestCase):
    """Tests for :class:`SessionOptions`."""

    def limits(self, *arguments: str) -> SessionLimits:
        options = SessionOptions()
        options.parseOptions(arguments)
        return options.session_limits()

    def test_given(self) -> None:
        """Both limits can be set."""
        limits = self.limits("--max-sessions=7", "--max-sessions-per-user=3")
        self.assertEqual((limits.total, limits.per_user), (7, 3))

    def test_wrong(self) -> None:
        """Invalid session counts are refused, and so are more sessions than descriptors allow."""
        with_descriptors(self, 1024)
        for option in ("--max-sessions", "--max-sessions-per-user"):
            for text in ("0", "-1", "x", "100001"):
                with self.assertRaises(SystemExit) as refused:
                    self.limits(f"{option}={text}")
                self.assertIn(f"{option}: ", str(refused.exception))
        with self.assertRaises(ValueError) as caught:
            self.limits("--max-sessions=99999")
        self.assertIn("--max-sessions: 99999 sessions need", str(caught.exception))


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
