"""
Tests for the graphs of ``docs/explanation/flames.rst``.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from twisted.trial.unittest import SynchronousTestCase

from . import pages


class FlamesPageTests(SynchronousTestCase):
    """Graphs of py-spy."""

    def test_graphs(self) -> None:
        """The graphs are small, and name files from their package on, not where they were measured."""
        graphs = [*(pages.DOCS / "explanation/flames").rglob("*.svg")]
        self.assertNotEqual(graphs, [])
        for path in graphs:
            text = path.read_text()
            self.assertEqual(ElementTree.fromstring(text).tag, "{http://www.w3.org/2000/svg}svg")
            self.assertLess(len(text), 150_000, path)
            self.assertNotIn("(/", "".join(re.findall("<title>([^<]*)", text)), path)
