"""Tests that the tables of lives in the documentation are those of the code."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.docs.pages import DOCS

_MARK = "lives: "


def _tables() -> dict[str, dict[str, set[str]]]:
    """Return the tables behind a comment ``lives: MODULE.NAME``: what may follow each phase."""
    found = {}
    for page in sorted((DOCS / "explanation").rglob("*.rst")):
        lines = page.read_text().split("\n")
        for number, line in enumerate(lines):
            if line.startswith(f".. {_MARK}"):
                found[line.partition(_MARK)[2]] = _rows("\n".join(lines[number + 1 :]))
    return found


def _rows(text: str) -> dict[str, set[str]]:
    """Return the first and last column of the first simple table; lines of one row are joined."""
    rule, *rest = text[text.index("\n==") :].strip().split("\n")
    end = [number for number, line in enumerate(rest) if line == rule][1]
    last = rule.rindex(" ")
    rows: list[tuple[str, str]] = []
    for line in rest[rest.index(rule) + 1 : end]:
        life, following = line[: rule.index(" ")].strip(), line[last:].strip()
        if life:
            rows.append((life, following))
        else:
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {following}")
    return {
        life: {each.strip() for each in following.split(",") if each.strip()}
        for life, following in rows
    }


class LivesTests(SynchronousTestCase):
    def test_tables(self) -> None:
        """Each table of a life has the phases of the code, and what may follow each of them."""
        tables = _tables()
        self.assertTrue(tables)
        for name, rows in tables.items():
            module, _, attribute = name.rpartition(".")
            transitions: Any = getattr(import_module(module), attribute)
            expected = {
                life.value: {each.value for each in following}
                for life, following in transitions.items()
            }
            self.assertEqual(rows, expected, name)
