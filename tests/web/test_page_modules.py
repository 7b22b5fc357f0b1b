"""
The modules of the page that need no browser: their own tests, under node's test runner.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests import needs
from tests.tiers import PROGRAMS

PAGE = Path(__file__).with_name("page")


class PageModulesTests(TestCase):
    """The tests in ``tests/web/page``."""

    starts = PROGRAMS
    skip = needs.node()

    def test_pass(self) -> None:
        """All of them pass, and there are some."""
        tests = sorted(map(str, PAGE.rglob("*.test.mjs")))
        self.assertTrue(tests)
        result = subprocess.run(
            ["node", "--test", "--test-reporter=spec", *tests],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
