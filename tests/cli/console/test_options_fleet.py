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
            (["vm", "--all"], "NAME is one machine, -l and --all select many"),
            (["-l", "a", "--all"], "-l selects machines, and --all takes all of them"),
            (["--all", "-A", "-n", "lab"], "-n names a namespace, and -A takes all of them"),
            (["vm", "-A"], "-A is for many machines: give -l SELECTOR or --all"),
            (["vm", "--tail", "0"], "--tail is for many machines"),
            (["vm", "--state", "f"], "--state is for many machines"),
            (["vm", "--tiled"], "give -l SELECTOR or --all instead of NAME, or leave --tiled out"),
            (["--all", "--request"], "--request is for one machine: give its NAME"),
            (["--all", "--expect", "x"], "--expect or --send is for one machine"),
            (["--all", "--linger", "1"], "NAME instead of -l or --all, or leave --linger out"),
            (["--all", "--tiled", "--run", "id"], "give either --tiled or --run"),
            (["--all", "--tiled", "--state", "f"], "--state goes without --tiled and --run"),
            (["--all", "--run", "id", "--tail", "1"], "--tail goes without --tiled and --run"),
            (["--all", "--force"], "--force goes with --tiled or --run"),
            (["--all", "--record"], "--record goes with --tiled or --run"),
            (["--all", "--record-input", "all"], "--record goes with --tiled or --run"),
            (["--all", "--tail", "-1"], '"-1" is not a number of lines, such as 100'),
        ):
            stderr = io.StringIO()
            with redirect_stderr(stderr), self.assertRaises(SystemExit):
                parse_options(words)
            self.assertIn(reason, stderr.getvalue())
