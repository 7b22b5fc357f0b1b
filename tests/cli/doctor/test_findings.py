"""
Tests for :mod:`twisted_exec.cli.doctor.findings`.
"""

from __future__ import annotations

import json
import re

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.doctor.findings import Findings
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
