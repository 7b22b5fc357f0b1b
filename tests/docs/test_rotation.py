"""
Tests for ``docs/reference/rotation.rst``.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from . import pages
from .test_options import TAPS, of_tap

_PRIVATE = {"--state-dir"}
"""Paths that only the program itself writes."""


def files(program: str) -> set[str]:
    """Return the options of a program that name files."""
    options = TAPS[program]()
    named = {f"--{name}" for name in options.paths}
    for name in of_tap(options):
        if name.endswith("-file") or name in ("--kubeconfig", "--audit-log", "--cert-dir"):
            named.add(name)
    return named - _PRIVATE


class RotationPageTests(SynchronousTestCase):
    """The page covers every file of every program."""

    def test_options(self) -> None:
        """Each section lists every option that names a file, and only options of the program."""
        page = pages.page("reference/rotation")
        for program, make in TAPS.items():
            listed = pages.first_column(pages.section(page, program))
            self.assertLessEqual(files(program), listed, program)
            self.assertLessEqual(listed, set(of_tap(make())), program)
