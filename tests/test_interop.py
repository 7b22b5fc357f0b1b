"""The command that builds foreign programs and runs the suites with them."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from .interop import __main__ as command
from .interop import builds, results

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


class BuildTests(SynchronousTestCase):
    """Programs are built once, outside the repository."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.work = Path(directory.name)
        self.program = builds.Build(
            "part", "bin/part", "test ! -e $BIN/part && touch $BIN/part", {"PART": "bin/part"}
        )

    def test_once(self) -> None:
        """A program that is there is not built again."""
        for _ in range(2):
            self.assertEqual(builds.build([self.program], self.work), [])
        self.assertEqual(self.program.path(self.work), self.work / "bin/part")

    def test_fails(self) -> None:
        """A failed build is named, and the others are built."""
        broken = builds.Build("broken", "bin/broken", "echo no such module >&2; exit 3")
        self.assertEqual(builds.build([broken, self.program], self.work), ["broken"])
        self.assertIn("no such module", (self.work / "log/broken.log").read_text())

    def test_makes_nothing(self) -> None:
        """A build that succeeds without its program has failed."""
        empty = builds.Build("empty", "bin/empty", "true")
        self.assertEqual(builds.build([empty], self.work), ["empty"])

    def test_unknown(self) -> None:
        """An unknown name is refused with the known ones."""
        with self.assertRaisesRegex(LookupError, "no program 'ironcor'; there are kernel, "):
            list(builds.select(["ironcor"]))


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


class PackageTests(SynchronousTestCase):
    """Debian packages that the suites use."""

    def test_from_elsewhere(self) -> None:
        """A package is missing if dpkg does not know it and its command is not on PATH."""
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        for name in ("dpkg-query", "kubectl", "npm"):
            program = directory / name
            program.write_text("#!/bin/sh\necho zsh ii\n")
            program.chmod(0o700)
        self.patch(builds.os, "environ", {"PATH": str(directory)})
        missing = builds.missing_packages()
        self.assertIn("fish", missing)
        for name in ("kubernetes-client", "npm", "zsh"):
            self.assertIn(name, builds.DEBIAN_PACKAGES)
            self.assertNotIn(name, missing)
