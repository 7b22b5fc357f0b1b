"""
Tests for ``docs/reference/rotation.rst``.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from . import pages
from .test_options import TAPS, of_tap

_KEPT = {"--state-dir"}
"""What a program writes for itself alone."""


def files(program: str) -> set[str]:
    """The options of a program whose value is a file, or names files."""
    options = TAPS[program]()
    named = {f"--{name}" for name in options.paths}
    for name in of_tap(options):
        if name.endswith("-file") or name in ("--kubeconfig", "--audit-log", "--cert-dir"):
            named.add(name)
    return named - _KEPT


class RotationPageTests(SynchronousTestCase):
    """The page tells of every file of every program."""

    def test_options(self) -> None:
        """Every option that is a file is there, and none that the program has not."""
        page = pages.page("reference/rotation")
        for program, make in TAPS.items():
            told = pages.first_column(pages.section(page, program))
            self.assertLessEqual(files(program), told, program)
            self.assertLessEqual(told, set(of_tap(make())), program)
