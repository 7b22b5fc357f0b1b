"""
Tests for :mod:`tests.needs`.
"""

from __future__ import annotations

import configparser
import re
import sys
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from types import ModuleType

from twisted.trial.unittest import SynchronousTestCase

from tests import needs

ROOT = Path(__file__).parents[1]


class WithoutTests(SynchronousTestCase):
    """Tests for :func:`tests.needs.without`."""

    def test_restored(self) -> None:
        """After a test everything is as before, whether the module had been imported or not."""
        loaded = {
            "tests.nothing": ModuleType("nothing"),
            "tests.nothing.inner": ModuleType("inner"),
        }
        for name in loaded:
            self.addCleanup(sys.modules.pop, name)
        for before in ({}, loaded):
            sys.modules.update(before)
            inner = SynchronousTestCase()
            needs.without(inner, "tests.nothing")
            self.assertRaises(ImportError, import_module, "tests.nothing")
            inner.doCleanups()
            kept = {
                name: sys.modules[name] for name in sys.modules if name.startswith("tests.nothing")
            }
            self.assertEqual(kept, before)


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
