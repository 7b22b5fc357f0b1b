"""Tests for :mod:`twisted_exec.program.maker`: signals and processes of release 0.2.0."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.tiers import PROGRAMS
from twisted_exec.program.maker import refuse_hand_over

VARIABLE = "TWISTED_EXEC_HANDOVER"

_ASKED = """
import os, signal, sys
from twisted_exec.program.maker import end_on_interrupt
end_on_interrupt()
os.kill(os.getpid(), signal.SIGUSR2)  # before there is a reactor
from twisted.internet import reactor
from twisted.logger import globalLogBeginner, textFileLogObserver
globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stdout)], redirectStandardIO=False)
reactor.callWhenRunning(os.kill, os.getpid(), signal.SIGUSR2)
reactor.callWhenRunning(reactor.callLater, 0.1, reactor.stop)
reactor.run()
"""


class HandOverTests(SynchronousTestCase):
    """Release 0.2.0 handed over to another process; this release is replaced by a restart."""

    starts = PROGRAMS

    def test_signal(self) -> None:
        """SIGUSR2 is answered by one line that says what to do, and ends nothing."""
        told = subprocess.run(
            [sys.executable, "-c", _ASKED], capture_output=True, timeout=600, check=True
        )
        self.assertEqual(told.stdout.count(b"replaced by a restart"), 1, told.stdout)

    def test_refused(self) -> None:
        """A process of 0.2.0 that starts this release reads the reason, and this process ends."""
        theirs, ours = socket.socketpair()
        environ = {VARIABLE: str(ours.detach())}
        with theirs:
            end = self.assertRaises(SystemExit, refuse_hand_over, "exec-runtime", environ)
            (line,) = theirs.makefile("rb").readlines()
        self.assertIn("restart", json.loads(line)["failed"])
        self.assertIn("exec-runtime", str(end))
        self.assertEqual(environ, {})

    def test_program(self) -> None:
        """A program that is started like that changes nothing before it ends."""
        theirs, ours = socket.socketpair()
        directory = self.mktemp()
        os.mkdir(directory)
        with theirs, ours:
            program = subprocess.run(
                [sys.executable, "-m", "twisted", "exec-runtime", "--state-dir", directory],
                env={**os.environ, VARIABLE: str(ours.fileno())},
                pass_fds=[ours.fileno()],
                capture_output=True,
                timeout=600,
                check=False,
            )
            answer = json.loads(theirs.recv(4096))
        self.assertIn("restart", answer["failed"])
        self.assertEqual(program.returncode, 1)
        self.assertEqual(os.listdir(directory), [])

    def test_alone(self) -> None:
        """A variable that names no socket, or none, refuses nothing that it should not."""
        refuse_hand_over("exec-runtime", {})
        refuse_hand_over("exec-runtime", {VARIABLE: "x"})
