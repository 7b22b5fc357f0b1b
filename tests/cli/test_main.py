"""
Tests for :mod:`twisted_exec.cli.main`.
"""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.main import main


class MainTests(SynchronousTestCase):
    """Tests for :func:`main`."""

    def run_main(self, *arguments: str) -> tuple[int | str | None, str, str]:
        """Exit code, standard output and standard error."""
        stdout, stderr = io.StringIO(), io.StringIO()
        code: int | str | None
        with redirect_stdout(stdout), redirect_stderr(stderr):
            try:
                code = main(arguments)
            except SystemExit as exit:
                code = exit.code
        return code, stdout.getvalue(), stderr.getvalue()

    def test_pki(self) -> None:
        """A command prints the files that it made."""
        directory = os.path.join(self.mktemp(), "pki")
        code, stdout, stderr = self.run_main("pki", "init", directory)
        self.assertEqual((code, stderr), (0, ""))
        self.assertIn(os.path.join(directory, "ca.crt"), stdout)

    def test_mistakes(self) -> None:
        """A mistake is one line on standard error, and exit code 1."""
        for arguments in ([], ["pki"], ["frob"], ["pki", "user", "nowhere", "--user", "ann"]):
            code, stdout, stderr = self.run_main(*arguments)
            self.assertEqual((code, stdout), (1, ""), arguments)
            self.assertEqual(len(stderr.splitlines()), 1, stderr)

    def test_help(self) -> None:
        """Help lists the commands."""
        code, stdout, _ = self.run_main("--help")
        self.assertEqual(code, 0)
        self.assertIn("pki", stdout)
        self.assertIn("iri", stdout)
