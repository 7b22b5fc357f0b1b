"""
Tests for :mod:`twisted_exec.program.options.log_level`.
"""

from __future__ import annotations

import io
import subprocess
import sys
import warnings

from twisted.logger import LogBeginner, Logger, LogPublisher, textFileLogObserver
from twisted.trial.unittest import SynchronousTestCase

from tests.tiers import PROGRAMS
from twisted_exec.program.options.command_line import ProgramOptions
from twisted_exec.program.options.log_level import limit_log, read_level

_PROGRAM = """
import sys
from twisted.logger import Logger, globalLogBeginner, textFileLogObserver
from twisted_exec.program.options.command_line import ProgramOptions
log = Logger()
log.warn("early warning")
log.info("early news")
ProgramOptions().parseOptions(sys.argv[1:])
globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.__stdout__)])
for level in ("debug", "info", "warn", "error", "critical"):
    getattr(log, level)("late {name}", name=level)
"""


class LimitLogTests(SynchronousTestCase):
    """Tests for :func:`limit_log`."""

    starts = PROGRAMS

    def test_levels(self) -> None:
        """Messages below the level are left out; the last call counts."""
        written, publisher = io.StringIO(), LogPublisher()
        beginner = LogBeginner(publisher, io.StringIO(), sys, warnings)
        limit_log("error", beginner)
        limit_log("warn", beginner)
        log = Logger(observer=publisher)
        log.warn("early")
        beginner.beginLoggingTo([textFileLogObserver(written)], redirectStandardIO=False)
        self.addCleanup(setattr, warnings, "showwarning", warnings.showwarning)
        log.info("quiet")
        log.error("loud")
        words = [line.split()[-1] for line in written.getvalue().splitlines()]
        self.assertEqual(words, ["early", "loud"])

    def test_read(self) -> None:
        """An unknown level is an error that lists the levels."""
        self.assertEqual(read_level("warn"), "warn")
        with self.assertRaises(ValueError) as caught:
            read_level("loud")
        self.assertEqual(
            str(caught.exception), "'loud' is no level: give debug, info, warn or error"
        )

    def logged(self, *arguments: str) -> list[str]:
        """The last words of the lines that a program logs with these options."""
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, *arguments],
            capture_output=True,
            timeout=600,
            check=True,
        )
        return [line.split()[-1] for line in done.stdout.decode().splitlines()]

    def test_options(self) -> None:
        """``--log-level`` and ``--quiet`` limit the whole log; an explicit ``--log-level`` wins."""
        severe = ["error", "critical"]
        for arguments, words in (
            ([], ["warning", "news", "info", "warn", *severe]),
            (["--log-level=debug"], ["warning", "news", "debug", "info", "warn", *severe]),
            (["--quiet"], ["warning", "warn", *severe]),
            (["--quiet", "--log-level=error"], severe),
            (["--log-level=info", "--quiet"], ["warning", "news", "info", "warn", *severe]),
        ):
            self.assertEqual(self.logged(*arguments), words, arguments)

    def test_wrong_level(self) -> None:
        """A wrong value is an error of the option."""
        with self.assertRaises(SystemExit) as caught:
            ProgramOptions().parseOptions(["--log-level=loud"])
        self.assertIn(
            "'loud' is no level: give debug, info, warn or error", str(caught.exception.code)
        )
