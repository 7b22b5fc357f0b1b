"""
Tests for :mod:`tests.needs`.
"""

from __future__ import annotations

import configparser
import re
from fnmatch import fnmatch
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).parents[1]


class VariableTests(SynchronousTestCase):
    """The variables that say where programs are."""

    def test_passed(self) -> None:
        """Each is passed on by tox; else what they say would count in a shell alone."""
        tox = configparser.ConfigParser(interpolation=None)
        tox.read(ROOT / "tox.ini")
        passed = tox["testenv"]["pass_env"].split()
        text = (ROOT / "tests" / "needs.py").read_text()
        read = set(re.findall(r"environ(?:\.get\(|\[)\"(\w+)\"", text)) - {"PATH"}
        read -= {line.partition("=")[0].strip() for line in tox["testenv"]["set_env"].splitlines()}
        self.assertIn("KUBE_APISERVER", read)
        kept = {name for name in read if any(fnmatch(name, each) for each in passed)}
        self.assertEqual(read - kept, set())
