"""
Tests for ``docs/reference/dialects.rst``.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from . import dialect_table, pages


class DialectsPageTests(SynchronousTestCase):
    """The page shows the records of the dialects."""

    def test_current(self) -> None:
        """The table is up to date."""
        written = dialect_table.PAGE.read_text(encoding="utf-8")
        self.assertEqual(written, dialect_table.table(), "run: python -m tests.docs.dialect_table")

    def test_included(self) -> None:
        """The page includes the table."""
        self.assertIn("dialects-table.inc", pages.page("reference/dialects"))
