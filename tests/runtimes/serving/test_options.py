"""
Tests for :mod:`twisted_exec.runtimes.serving.options`; the tests of each program have its other options.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.iri.target import TargetError
from twisted_exec.runtimes.serving.options import unix_path


class PathTests(SynchronousTestCase):
    """Tests for :func:`unix_path`."""

    def test_paths(self) -> None:
        """A colon may be escaped; options are not taken; the path is absolute."""
        self.assertEqual(unix_path("unix:/run/a\\:b"), "/run/a:b")
        for address in ("unix:/run/a:mode=666", "unix:run/a", "unix:"):
            with self.assertRaises(TargetError):
                unix_path(address)
