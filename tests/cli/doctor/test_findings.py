"""
Tests for :mod:`twisted_exec.cli.doctor.findings`.
"""

from __future__ import annotations

import json
import re

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.doctor.findings import FindingLevel, Findings
from twisted_exec.cli.messages import painted


class ReportTests(SynchronousTestCase):
    """Tests for :class:`Findings`."""

    def test_text(self) -> None:
        """Each check is one line, with its remedy below; the last line counts the problems."""
        report = Findings("vm")
        report.ok("clock", "as the server's clock")
        report.warning("user", "odd", "log in")
        report.error("server", "gone\nfor\x1b[2J good", "start it")
        self.assertEqual(
            report.text(),
            "ok       clock   as the server's clock\n"
            "warning  user    odd\n"
            "                 -> log in\n"
            "error    server  gone for?[2J good\n"
            "                 -> start it\n"
            "vm: 1 error, 1 warning\n",
        )
        self.assertFalse(report.is_healthy)

    def test_healthy(self) -> None:
        """Warnings and skipped checks are no errors, and the summary counts both."""
        report = Findings()
        report.skipped("clock", "no date")
        self.assertTrue(report.is_healthy)
        self.assertEqual(report.text().splitlines()[-1], "no problem found, 1 check skipped")
        report.warning("user", "odd", "log in")
        report.warning("user", "odd", "log in")
        self.assertTrue(report.is_healthy)
        self.assertEqual(report.text().splitlines()[-1], "2 warnings, 1 check skipped")

    def test_cause_of_warning(self) -> None:
        """An error that has the remedy of a warning about the same part makes that an error."""
        report = Findings("vm")
        report.warning("machine", "it is not ready", "mend it")
        report.warning("rights", "may not read", "mend it")
        report.error("machine", "it has no console", "mend it")
        levels = [(each.check, each.level) for each in report.findings]
        expected = [("machine", FindingLevel.ERROR), ("rights", FindingLevel.WARNING)]
        self.assertEqual(levels, expected)
        self.assertEqual(report.findings[0].message, "it is not ready; it has no console")

    def test_one_cause(self) -> None:
        """Two problems of one part with the same remedy are one error."""
        report = Findings("vm")
        report.error("poollet", "is not ready", "start it")
        report.error("line", "is broken", "start it")
        report.error("poollet", "refuses connections", "start it")
        report.error("poollet", "has a certificate of another pool", "change it")
        first, _, third = report.findings
        self.assertEqual(first.message, "is not ready; refuses connections")
        self.assertEqual(third.remedy, "change it")
        self.assertIn("vm: 3 errors\n", report.text())

    def test_narrow_terminal(self) -> None:
        """A terminal gets messages and remedies broken at blanks, below each other, and a command in a row of its own."""
        report = Findings("vm")
        report.error(
            "server", "no answer from the server", "see its log: kubectl logs -n kube-system x"
        )
        self.assertEqual(
            report.text(columns=40).splitlines(),
            [
                "error    server  no answer from the",
                "                   server",
                "                 -> see its log:",
                "                   kubectl logs -n kube-system x",
                "vm: 1 error",
            ],
        )

    def test_colours(self) -> None:
        """On a terminal the word for the result has a colour; columns stay in line."""
        report = Findings()
        report.ok("a", "fine")
        report.error("b", "bad", "mend it")
        text = report.text(painted)
        self.assertIn("\x1b[32mok      \x1b[m a  fine\n", text)
        self.assertIn("\x1b[31merror   \x1b[m b  bad\n", text)
        self.assertEqual(re.sub("\x1b\\[\\d*m", "", text), report.text())

    def test_json(self) -> None:
        """The JSON object has the result of each check."""
        report = Findings("vm")
        report.error("pool", "p is gone", "start it")
        document = json.loads(report.json())
        self.assertEqual((document["machine"], document["ok"]), ("vm", False))
        self.assertEqual(
            document["checks"],
            [{"check": "pool", "status": "error", "message": "p is gone", "remedy": "start it"}],
        )
