"""
Tests for ``docs/reference/kinds.rst``, and for the tables of fields on other pages.
"""

from __future__ import annotations

import re

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import kinds
from twisted_exec.api.dialects import DIALECTS

from . import pages

_WORD = re.compile(r"[A-Za-z]+")
_FIELDS_TITLE = re.compile(r"^\.\. list-table:: (``([\w.]+)`` of an? (\w+))$", re.MULTILINE)


class KindsPageTests(SynchronousTestCase):
    """The page covers every kind."""

    def test_every_kind(self) -> None:
        """Each kind that is stored is named."""
        listed = set(_WORD.findall(pages.page("reference/kinds")))
        stored = {kind.resource.kind for kind in kinds.served(DIALECTS) if kind.stored}
        # A row names the kinds that have a routing; it does not repeat each name.
        named = {name.removesuffix("Routing") for name in stored}
        self.assertEqual(named - listed, set())

    def test_groups(self) -> None:
        """The page says what MACHINES and DOMAIN mean in each dialect."""
        text = pages.page("reference/kinds")
        for dialect in DIALECTS:
            (row,) = [
                row for row in text.split("   * - ") if f"``{dialect.name}``" in row.split("\n")[0]
            ]
            self.assertIn(f"     - ``{dialect.group}``\n", row)
            self.assertIn(f"     - ``{dialect.domain}``\n" if dialect.domain else "none", row)


class FieldTablesTests(SynchronousTestCase):
    """Tables with a title such as "``spec`` of a Space"."""

    def test_fields(self) -> None:
        """Each table lists exactly the fields of that part of the kind."""
        by_name = {kind.resource.kind: kind for kind in kinds.served(DIALECTS)}
        compared = set()
        for name in pages.names():
            page = pages.page(name)
            for title, path, kind in _FIELDS_TITLE.findall(page):
                schema = {"properties": by_name[kind].schema}
                for part in path.split("."):
                    schema = schema["properties"][part]
                cells = pages.first_column(pages.table(page, title))
                listed = {field for cell in cells for field in cell.split(", ")}
                self.assertEqual(listed, set(schema["properties"]), f"{name}: {title}")
                compared.add(kind)
        with_tables = {
            "ConsolePolicy",
            "ConsoleRecording",
            "ConsoleSession",
            "Space",
            "SpaceProviderDesc",
        }
        self.assertEqual(with_tables - compared, set())
