"""
Tests for :mod:`tests.soak`.
"""

from __future__ import annotations

import os

from twisted.trial.unittest import SynchronousTestCase

from tests import soak
from tests.streaming import test_proxy_chain


class FiguresTests(SynchronousTestCase):
    """The figures."""

    def test_inherited(self) -> None:
        """``SOAK`` selects the figure, also for a test of a base class."""
        test = test_proxy_chain.SPDYChainTests("test_many")
        figure = soak.FIGURES[soak.name(test)]
        for value, selected in (("", figure.default), ("1", figure.soak)):
            self.patch(os, "environ", {"SOAK": value})
            self.assertEqual(soak.figure(test), selected)
