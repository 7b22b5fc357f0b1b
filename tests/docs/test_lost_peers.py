"""
Tests for the decision record about sessions of lost programs.
"""

from __future__ import annotations

import re

from twisted.trial.unittest import SynchronousTestCase

from . import pages
from .named_tests import exists

PROGRAMS = (
    "API server",
    "Poollet",
    "Runtime",
    "Broker",
    "Node server",
    "exec-standalone",
    "Keeper",
    "Space manager",
)
_PAGE = "explanation/decisions/0023-sessions-of-lost-programs"
_ROW = re.compile(
    r"^   \* - (.+?)\n     - (.+?)\n     - (.+?)\n     - (.+?)(?=\n   \* |\n*\Z)", re.M | re.S
)
_LIKE_ANOTHER = re.compile(r"\\-|(.*, )?the same( tests?)?|as direct")
"""A cell without clients, or whose test another cell names."""
_NAME = re.compile(r"``([a-z_][\w.]*\.[A-Z]\w*\.test_\w+)``")


class LostPeersPageTests(SynchronousTestCase):
    """Every cell of the tables has a test, or says which other cell it is like."""

    def test_every_program(self) -> None:
        """Each program has its events, and each cell names a test or is like another cell."""
        for title in PROGRAMS:
            header, *rows = _ROW.findall(pages.table(pages.page(_PAGE), title))
            self.assertEqual(header, ("event", "path", "our client", "stock client"))
            events = ", ".join(row[0] for row in rows).split(", ")
            if "any" not in events:
                self.assertLessEqual({"stop", "crash"}, set(events), title)
            for event, path, *cells in rows:
                where = f"{title}: {event}, {path}"
                self.assertTrue(_NAME.search("".join(cells)), where)
                for cell in cells:
                    self.assertTrue(_NAME.search(cell) or _LIKE_ANOTHER.fullmatch(cell), where)

    def test_every_test(self) -> None:
        """Every named test exists."""
        names = _NAME.findall(pages.page(_PAGE))
        self.assertGreater(len(names), 60)
        self.assertEqual([name for name in names if not exists(name)], [])

    def test_vanished(self) -> None:
        """A test that does not exist in its class is noticed."""
        this = "docs.test_lost_peers"
        self.assertTrue(exists(f"{this}.LostPeersPageTests.test_vanished"))
        self.assertFalse(exists(f"{this}.LostPeersPageTests.test_nothing"))
        self.assertFalse(exists(f"{this}.Nothing.test_vanished"))
        self.assertFalse(exists("docs.test_nothing.LostPeersPageTests.test_vanished"))
