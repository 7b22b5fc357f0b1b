"""
Tests for ``docs/reference/kinds.rst``.
"""

from __future__ import annotations

import re

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import kinds
from twisted_exec.api.dialects import DIALECTS

from . import pages

_WORD = re.compile(r"[A-Za-z]+")


class KindsPageTests(SynchronousTestCase):
    """The page covers every kind."""

    def test_every_kind(self) -> None:
        """Each kind that is stored is named; machines, pools and classes are on the page of dialects."""
        listed = set(_WORD.findall(pages.page("reference/kinds")))
        by_dialect = {kind.resource.kind for dialect in DIALECTS for kind in kinds.of(dialect)}
        stored = {kind.resource.kind for kind in kinds.served(DIALECTS) if kind.stored}
        # A row names the kinds that have a routing; it does not repeat each name.
        named = {name.removesuffix("Routing") for name in stored - by_dialect}
        self.assertEqual(named - listed, set())
