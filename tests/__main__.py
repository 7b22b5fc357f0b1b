"""
Run a tier of the tests: ``python -m tests [quick|full|all] [TEST ...]`` (see ``tests/tiers.py``).

Under trial, in several processes.  It prints each failure when it happens, a line with counts every 15 seconds, with the
tests that were running 15 seconds ago already, and at the end all failures again.  A failure of a test that starts
programs is run once more, alone, in a fresh process, as far as :func:`may_run_again` allows that.  If at most two tests
pass only then, the run passes, and its last lines name them, after the output of both of their runs.

The temporary directory is removed unless a test has failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any
from unittest import TestCase

from twisted.internet import reactor
from twisted.internet.process import reapProcessHandlers
from twisted.internet.task import LoopingCall
from twisted.trial._dist.distreporter import DistReporter
from twisted.trial._dist.disttrial import DistTrialRunner
from twisted.trial.reporter import Reporter
from twisted.trial.unittest import TestSuite

from tests import soak, tiers

TIERS = {"quick": tiers.is_quick, "full": tiers.is_full, "all": lambda test: True}
PROGRESS_SECONDS = 15.0
SECOND_RUNS = Path(__file__).with_name("second_runs.txt")
"""Tests that passed only on a second run, one in each line: they have none until they are mended."""
MOST_SECOND_RUNS = 2
"""More tests that pass only on a second run fail the run: then something is wrong with the tree, not with the machine."""
MOST_FAILED = 10
"""If more tests fail, none has a second run: a process of the tests may have died, which fails all that follow in it."""


class Progress(Reporter):
    """
    Counts while the tests run, and failures as they happen.

    :ivar expected: how many tests will run.
    :ivar running: the names of those that run now.
    """

    expected = 0
    _is_over = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.running: Collection[str] = ()
        self._ran_before: set[str] = set()
        self._began = self._getTime()
        self._line = LoopingCall(self._print_progress)
        self._line.clock = reactor
        self._line.start(PROGRESS_SECONDS, now=False)
        reactor.addSystemEventTrigger("before", "shutdown", self._stop)

    def addFailure(self, test: TestCase, failure: Any) -> None:
        super().addFailure(test, failure)
        self._print_failure(test, self.failures[-1][1])

    def addError(self, test: TestCase, error: Any) -> None:
        super().addError(test, error)
        self._print_failure(test, self.errors[-1][1])

    def failed(self) -> list[TestCase]:
        """Return the tests that failed, each once."""
        every = {test.id(): test for test, _ in (*self.failures, *self.errors)}
        every |= {test.id(): test for test, _ in self.unexpectedSuccesses}
        return list(every.values())

    def text(self, test: TestCase) -> str:
        """Return what is known of a test's failures."""
        failures = (*self.failures, *self.errors)
        return "".join(
            self._formatFailureTraceback(failure)
            for each, failure in failures
            if each.id() == test.id()
        )

    def done(self) -> None:
        self._is_over = True
        self._line.stop()
        self._print_counts()

    def _stop(self) -> None:
        if not self._is_over:
            # A signal.  trial would count the present tests as failed, and go on with the others.
            self._print_counts()
            self._writeln("interrupted")
            sys.stdout.flush()
            for worker in reapProcessHandlers:
                os.kill(worker, signal.SIGTERM)
            os._exit(1)

    def _print_failure(self, test: TestCase, failure: Any) -> None:
        self._writeln("FAILED %s\n%s", test.id(), self._formatFailureTraceback(failure))

    def _print_progress(self) -> None:
        self._print_counts()
        for name in sorted(self._ran_before.intersection(self.running)):
            self._writeln("        still running: %s", name)
        self._ran_before = set(self.running)

    def _print_counts(self) -> None:
        self._writeln(
            "%4.0f s: %d of %d tests, %d failed, %d skipped",
            self._getTime() - self._began,
            self.testsRun,
            self.expected,
            len(self.failed()),
            len(self.skips),
        )


class Running(DistReporter):
    """Shows :class:`Progress` a test from its start on; trial shows it the calls about a test at its end."""

    def __init__(self, original: Progress) -> None:
        super().__init__(original)
        original.running = self.running


class Runner(DistTrialRunner):
    """trial's own, with :class:`Running`."""

    _distReporterFactory = Running


def run(tests: list[TestCase], jobs: int, directory: str) -> Progress:
    """Run tests under trial in ``jobs`` processes, and return what happened."""
    Progress.expected = len(tests)
    runner = Runner(
        reporterFactory=Progress,
        maxWorkers=jobs,
        workerArguments=[],
        workingDirectory=directory,
    )
    result: Any = runner.run(TestSuite(tests))
    return result


def may_run_again(test: TestCase) -> bool:
    """
    Return whether the test may run a second time if it fails.

    Not if it starts nothing, is exact or has a figure of ``tests/soak.py``, or is listed in ``second_runs.txt``.
    """
    lines = SECOND_RUNS.read_text().splitlines()
    listed = {line.partition("#")[0].strip() for line in lines}
    never = tiers.is_exact(test) or soak.name(test) or test.id() in listed
    return bool(tiers.starts(test)) and not never


def second_run(test: TestCase, directory: str) -> tuple[bool, str]:
    """Run one test alone in a fresh process; return whether it passed, and what it printed."""
    command = [sys.executable, "-m", "twisted.trial", f"--temp-directory={directory}", test.id()]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return ended.returncode == 0, ended.stdout.decode(errors="replace")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tier", choices=TIERS, nargs="?", default="quick")
    parser.add_argument("tests", nargs="*", default=["tests"], metavar="TEST")
    parser.add_argument("--jobs", type=int, default=3, help="processes (3)")
    parser.add_argument("--temp-directory", default="_trial_temp", metavar="DIRECTORY")
    options = parser.parse_intermixed_args(arguments)  # options may stand before the tests, too
    chosen = [test for test in tiers.load(options.tests) if TIERS[options.tier](test)]
    if not chosen:  # trial would wait for ever
        print(f"there are no {options.tier} tests among {' '.join(options.tests)}")
        return 1
    result = run(chosen, options.jobs, options.temp_directory)
    failed, passed_again = [], []
    every = result.failed()
    for test in every:
        again, output = False, ""
        if len(every) <= MOST_FAILED and may_run_again(test):
            again, output = second_run(test, f"{options.temp_directory}/second-run")
        (passed_again if again else failed).append(test)
        print(f"\n{'=' * 79}\n{test.id()}\n{result.text(test)}")
        if output:
            print(f"{'-' * 79}\nIts second run:\n{output}")
    for reason, number in Counter(str(reason) for _, reason in result.skips).most_common():
        print(f"{number} skipped: {reason}")
    if passed_again:
        names = ", ".join(test.id() for test in passed_again)
        whose = "its" if len(passed_again) == 1 else "their"
        print(f"{len(passed_again)} passed only on {whose} second run: {names}")
        print("Add each of them to tests/second_runs.txt, and mend it next.")
    if len(passed_again) > MOST_SECOND_RUNS:
        print(f"More than {MOST_SECOND_RUNS} passed only on a second run: the run fails.")
    for test in failed:
        print(f"FAILED {test.id()}")
    passes = not failed and len(passed_again) <= MOST_SECOND_RUNS
    if passes and not passed_again:
        shutil.rmtree(options.temp_directory, ignore_errors=True)
    # Not ``successes``: trial counts a test there, too, of which only a cleanup fails.
    passed = result.testsRun - len(every) - len(result.skips) + len(passed_again)
    print(f"{passed} passed, {len(failed)} failed, {len(result.skips)} skipped", flush=True)
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
