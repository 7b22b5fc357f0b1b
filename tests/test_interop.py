"""The suites with foreign programs: which to run, and what their results say."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from .interop import __main__ as command
from .interop import results

README = Path(__file__).with_name("README.rst")


class SuiteTests(SynchronousTestCase):
    """``tests/README.rst`` says which suites to run after which change."""

    def test_table(self) -> None:
        """The last column names every suite, and nothing else."""
        table = README.read_text().partition("Which tests to run")[2].partition("\nMap\n")[0]
        lines = table.splitlines()
        column = next(
            line.index("and with foreign") for line in lines if "and with foreign" in line
        )
        rows = [
            line[column:] for line in lines if line.startswith((" ", "`", "a ", "an ", "other"))
        ]
        words = {word for row in rows for word in re.findall(r"[a-z_0-9]+", row)}
        self.assertEqual(words - {"none", "all"}, set(command.suites()))


class ResultTests(SynchronousTestCase):
    """Results of a suite are read from what trial prints."""

    def test_mixed(self) -> None:
        """Reasons of skips come once, and failed tests by name."""
        log = (
            "tests.interop.a.A.test_one ... [OK]\n"
            "tests.interop.a.A.test_two ...                      [FAILURE]\n"
            "[SKIPPED]\nkcp is not on PATH\n\ntests.interop.a.A.test_3\n"
            "[SKIPPED]\nkcp is not on PATH\n\ntests.interop.a.A.test_4\n"
            "FAILED (skips=2, failures=1, successes=1)\n"
        )
        result = results.parse("a", log)
        self.assertEqual((result.passed, result.failed, result.skipped), (1, 1, 2))
        self.assertEqual(result.verdict, "failed")
        self.assertEqual(
            result.reasons, ["kcp is not on PATH", "tests.interop.a.A.test_two failed"]
        )

    def test_verdicts(self) -> None:
        """A suite that was skipped whole has not passed."""
        for closing, verdict in (
            ("PASSED (successes=3)", "passed"),
            ("PASSED (skips=1, successes=3)", "in part"),
            ("PASSED (skips=2)", "skipped"),
            ("FAILED (errors=1, successes=3)", "failed"),
            ("Segmentation fault", "failed"),
        ):
            self.assertEqual(results.parse("a", f"{closing}\n").verdict, verdict)
