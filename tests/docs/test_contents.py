"""
Tests for the tables of contents: how a reader comes from the first page to all others.
"""

from __future__ import annotations

import posixpath

from twisted.trial.unittest import SynchronousTestCase

from . import pages

STEPS = 2


def next_pages(name: str) -> list[str]:
    """Return the pages in the tables of contents of a page."""
    directory = posixpath.dirname(name)
    return [
        posixpath.normpath(posixpath.join(directory, entry))
        for entry in pages.contents(pages.page(name))
    ]


class ContentsTests(SynchronousTestCase):
    """The tables of contents, from the first page on."""

    def test_steps(self) -> None:
        """Two steps lead from the first page to every page."""
        reached, last = {"index"}, ["index"]
        for _ in range(STEPS):
            last = [page for name in last for page in next_pages(name)]
            reached.update(last)
        self.assertEqual([name for name in pages.names() if name not in reached], [])
        self.assertEqual(sorted(reached - set(pages.names())), [])

    def test_once(self) -> None:
        """No page is in two tables: the sidebar would show it at one of the places only."""
        listed = [page for name in pages.names() for page in next_pages(name)]
        self.assertEqual(sorted({page for page in listed if listed.count(page) > 1}), [])

    def test_doors(self) -> None:
        """The first page begins with four doors, and describes each of them."""
        first = pages.page("index")
        doors = pages.contents(first)[:4]
        self.assertEqual(doors, ["use", "run", "embed", "change"])
        for door in doors:
            self.assertIn(f":doc:`{door}`", first)

    def test_reading_order(self) -> None:
        """Operators read in an order that names pages from the first start to upgrades."""
        order = pages.section(pages.page("run"), "Reading order")
        self.assertLess(order.index("first-console"), order.index("three-hosts"))
        self.assertLess(order.index("three-hosts"), order.index("upgrade"))
