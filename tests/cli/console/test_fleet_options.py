"""Tests for :mod:`twisted_exec.cli.console.options`."""

from __future__ import annotations

import io
from contextlib import redirect_stderr

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.console.options import is_fleet, parse_options


class FleetOptionsTests(SynchronousTestCase):
    """Options for many machines."""

    def test_fleet(self) -> None:
        """A selector or --all replaces the name."""
        self.assertFalse(is_fleet(parse_options(["vm"])))
        for words in (["-l", "app=web"], ["--all"], ["--all", "-A"], ["-l", "a", "--run", "id"]):
            self.assertTrue(is_fleet(parse_options(words)), words)

    def test_wrong(self) -> None:
        """Options that do not go together are refused, each with its reason."""
        for words, reason in (
            ([], "give the NAME of a machine, or select machines with -l or --all"),
            (["-l", ""], "give the NAME of a machine, or select machines with -l or --all"),
            (["vm", "--all"], "give either NAME, or -l or --all"),
            (["-l", "a", "--all"], "give either -l or --all"),
            (["--all", "-A", "-n", "lab"], "give either -n or -A"),
            (["vm", "-A"], "-A goes with -l or --all"),
            (["vm", "--tail", "0"], "--tail goes with -l or --all"),
            (["vm", "--state", "f"], "--state goes with -l or --all"),
            (["vm", "--tiled"], "--tiled goes with -l or --all"),
            (["--all", "--request"], "--request goes with one machine only"),
            (["--all", "--expect", "x"], "--expect or --send goes with one machine only"),
            (["--all", "--linger", "1"], "--linger goes with one machine only"),
            (["--all", "--tiled", "--run", "id"], "give either --tiled or --run"),
            (["--all", "--tiled", "--state", "f"], "--state goes without --tiled and --run"),
            (["--all", "--run", "id", "--tail", "1"], "--tail goes without --tiled and --run"),
            (["--all", "--force"], "--force goes with --tiled or --run"),
            (["--all", "--record"], "--record goes with --tiled or --run"),
            (["--all", "--record-input", "all"], "--record goes with --tiled or --run"),
            (["--all", "--tail", "-1"], "'-1' is not a number of lines"),
        ):
            stderr = io.StringIO()
            with redirect_stderr(stderr), self.assertRaises(SystemExit):
                parse_options(words)
            self.assertIn(reason, stderr.getvalue())
