"""
Which tests run when.

``quick`` tests start no program: they say yes or no in minutes, and on any machine.  ``full`` tests start real
programs or a browser.  A test case of the second kind says so in its class, with ``starts = PROGRAMS`` or
``starts = BROWSER``; a quick test that starts a program fails (``tests/__init__.py``).  :data:`SMOKE` is a small
set of full tests that runs with the quick ones.

A full test that fails may have met a busy machine, so ``python -m tests`` runs it once more.  Tests that compare every
byte, try interleavings or count what is left never run again, because a fault of that kind shows only now and then:
their classes say ``exact = True``.
"""

from __future__ import annotations

from collections.abc import Iterable
from unittest import TestCase, TestSuite

from twisted.trial.runner import TestLoader

PROGRAMS, BROWSER = "programs", "a browser"
"""What a test starts: values of ``starts`` in a test case's class."""

SMOKE = (
    "tests.cli.console.test_program_process.PipeTests.test_closed_standard_error",
    "tests.flows.kubectl.test_streams.ExecTests.test_exit_code",
    "tests.flows.outages.test_restarted_machines.OffTests.test_stays_off",
    "tests.flows.sessions.test_answers.CredentialTests.test_wrong_token",
    "tests.flows.sessions.test_demo_shell.DemoShellTests.test_window",
    "tests.flows.sessions.test_scripts.ScriptTests.test_login_prompt",
    "tests.flows.test_three_programs.EndedProgramsTests.test_deleted_pool",
    "tests.flows.test_three_programs.EndedProgramsTests.test_drain",
    "tests.flows.test_three_programs.ThreeProgramsTests.test_kubectl_console",
    "tests.standalone.test_tap_program.RefusedTests.test_port_in_use",
)
"""Full tests that the quick tier runs, too: one of each of the main ways through the programs."""


def starts(test: TestCase) -> str:
    """Return what the test starts: :data:`PROGRAMS` (all of ``tests.interop`` do), :data:`BROWSER`, or nothing."""
    if type(test).__module__.startswith("tests.interop."):
        return PROGRAMS
    return str(getattr(test, "starts", ""))


def is_exact(test: TestCase) -> bool:
    """Return whether the test compares every byte, tries interleavings or counts what is left."""
    return bool(getattr(test, "exact", False))


def is_quick(test: TestCase) -> bool:
    """Return whether the test belongs to the quick tier."""
    return not starts(test) or test.id() in SMOKE


def is_full(test: TestCase) -> bool:
    """Return whether the test belongs to the full tier: the smoke set has passed before that runs."""
    return not is_quick(test)


def load(names: Iterable[str]) -> list[TestCase]:
    """Return all tests below packages, modules, classes or methods."""
    return flat(TestLoader().loadByNames(list(names), recurse=True))


def flat(suite: TestSuite) -> list[TestCase]:
    """Return the tests of a suite and of the suites in it."""
    return [
        test for each in suite for test in (flat(each) if isinstance(each, TestSuite) else [each])
    ]
