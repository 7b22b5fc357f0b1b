"""
Tests.  They mirror the package; ``python -m twisted.trial tests`` and pytest run the same.

Under trial each test writes its CPU seconds into trial's temporary directory; ``python -m tests.costs`` prints them.
A deprecation that code of ``twisted_exec`` causes is an error of the test, under both runners, and so is a program
that a test starts although its class has no ``starts`` (``tests/tiers.py``).  A test that hangs fails, also where
trial's own timeout does not reach it, because the test never returns to the reactor.
"""

import gc
import os
import re
import resource
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TextIO

from hypothesis import HealthCheck, settings
from twisted.trial import util
from twisted.trial.unittest import SynchronousTestCase

import twisted_exec
from tests import tiers
from twisted_exec.program import disk_thread

# The ``timeout`` of a test only ends one that hangs, also on a machine that does many other things.
util.DEFAULT_TIMEOUT_DURATION = 600.0

# Whether this machine's disk answers within 20 ms is no subject of a test; tests of slow disks have a limit of their own.
disk_thread.WAIT_SECONDS = disk_thread.LONG_WAIT_SECONDS = 60.0

# A full collection visits the 300 000 objects of the test modules: by default a fifth of many packages' CPU time.
gc.set_threshold(20_000, 10, 10)

# How long an example takes says something about the machine, not about the code.
settings.register_profile(
    "random", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
# Two runs of one tree try the same examples.  HYPOTHESIS_PROFILE=random looks for new ones.
settings.register_profile("same", settings.get_profile("random"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@cache
def _costs() -> TextIO | None:
    """Open this process's file of CPU seconds; ``None`` unless trial runs the tests."""
    # A worker of `--jobs` runs in a subdirectory of the temporary directory.
    if not any(os.path.exists(f"{where}/_trial_marker") for where in (os.curdir, os.pardir)):
        return None
    return open("costs", "w", buffering=1)


def cpu_seconds() -> float:
    """CPU time of this process and of the programs that it has started and that have ended."""
    usages = (
        resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


_STARTS = {
    *("os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"),
    "tests.program",  # that of forked and of shared programs
}
"""Audit events of a start of a program."""
_started: list[str] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _STARTS:
        _started.append(f"{event} {arguments[0] if arguments else ''}".rstrip())


sys.addaudithook(_audit)


def _check_starts(test: SynchronousTestCase) -> None:
    if _started and not tiers.starts(test):
        test.fail(f"{_started[0]}: the class of a test that starts programs says starts = PROGRAMS")


_AGAIN_SECONDS = 10.0


@contextmanager
def _ended_if_hung(test: SynchronousTestCase) -> Iterator[None]:
    """
    Raise an exception in a test that is still running five minutes after its timeout.

    It is raised again until the test ends: Python only prints exceptions that reach a finalizer or a callback.
    """
    seconds = max(float(getattr(test, "timeout", 0)), util.DEFAULT_TIMEOUT_DURATION) + 300

    def alarm(*_: Any) -> None:
        raise test.failureException(f"{test.id()} was still running after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


_PRODUCT = re.escape(os.path.dirname(os.path.abspath(twisted_exec.__file__))) + "/"
"""The beginning of the names of the product's files, which is what ``warnings`` compares."""


def _run_and_record(self: SynchronousTestCase, result: Any) -> None:
    file, before = _costs(), cpu_seconds()
    with warnings.catch_warnings(), _ended_if_hung(self):
        # trial collects the warnings of a test, and warns again at its end: with these filters.
        for category in (DeprecationWarning, PendingDeprecationWarning):
            warnings.filterwarnings("error", category=category, module=_PRODUCT)
        _started.clear()
        self.addCleanup(_check_starts, self)
        _run(self, result)
    if file is not None:
        file.write(f"{self.id()} {cpu_seconds() - before:.3f}\n")


_run = SynchronousTestCase.run
SynchronousTestCase.run = _run_and_record
