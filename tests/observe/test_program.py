"""
Tests for :mod:`twisted_exec.observe.program`.
"""

from __future__ import annotations

import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.observe.program import ProgramOptions, refusal

_FAILING = """
from twisted.internet import reactor, task
from twisted.internet.defer import fail
from twisted.logger import globalLogBeginner, textFileLogObserver
import sys
from twisted_exec.observe.program import fail_program
globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stdout)], redirectStandardIO=False)
reactor.callWhenRunning(
    lambda: fail(ValueError("port 6443 is in use")).addErrback(fail_program, "exec-x", reactor)
)
reactor.run()
"""


class ProgramOptionsTests(SynchronousTestCase):
    """Tests for :class:`ProgramOptions`."""

    def test_one_line(self) -> None:
        """A mistake is one line that says where to read more, and exit code 1."""

        class XOptions(ProgramOptions):
            program = "exec-x"
            optParameters = [["port", "p", "6443", "Where to listen."]]

        for arguments in (["--prot", "1"], ["surplus"], ["--port"]):
            with self.assertRaises(SystemExit) as caught:
                XOptions().parseOptions(arguments)
            line = str(caught.exception.code)
            self.assertTrue(line.startswith("exec-x: "), line)
            self.assertIn("see twistd exec-x --help", line)
            self.assertNotIn("\n", line)

    def test_refusal(self) -> None:
        """Python prints it and exits with 1."""
        self.assertEqual(
            refusal("exec-x", "no --kubeconfig\nis given").code,
            "exec-x: no --kubeconfig is given; see twistd exec-x --help",
        )


class FailProgramTests(SynchronousTestCase):
    """Tests for :func:`fail_program`."""

    def test_ends(self) -> None:
        """A start that fails is one line in the log, and the program ends with 1."""
        told = subprocess.run(
            [sys.executable, "-c", _FAILING], capture_output=True, timeout=60, check=False
        )
        self.assertEqual(told.returncode, 1)
        self.assertIn(b"exec-x: port 6443 is in use\n", told.stdout)
        self.assertNotIn(b"Traceback", told.stdout)
        self.assertEqual(told.stderr, b"")
