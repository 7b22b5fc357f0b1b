"""Tests that the tables of lives in the documentation are those of the code."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

import twisted_exec
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


def _lives() -> set[str]:
    """Return the names of all tables of transitions in the code."""
    root = Path(twisted_exec.__path__[0])
    return {
        ".".join((root.name, *path.relative_to(root).with_suffix("").parts, name))
        for path in root.rglob("*.py")
        for name in re.findall(r"^\w*TRANSITIONS\b(?=:)", path.read_text(), re.M)
    }


class LivesTests(SynchronousTestCase):
    def test_tables(self) -> None:
        """Each life in the code has a table with its phases, and what may follow each of them."""
        tables = _tables()
        self.assertEqual(set(tables), _lives())
        for name, rows in tables.items():
            module, _, attribute = name.rpartition(".")
            transitions: Any = getattr(import_module(module), attribute)
            expected = {
                life.value: {each.value for each in following}
                for life, following in transitions.items()
            }
            self.assertEqual(rows, expected, name)
