"""
Tests for ``docs/reference/spaces.rst`` and ``docs/reference/spacemanager.rst``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec import spacemanager
from twisted_exec.api import kinds, spaces, strategy

from . import pages

MANAGER = Path(spacemanager.__file__).parent


def _sources() -> list[Path]:
    """The modules of the manager, without those of its providers."""
    return [path for path in MANAGER.rglob("*.py") if "providers" not in path.parts]


class SpacesPageTests(SynchronousTestCase):
    """The page documents conditions and annotations of the kinds completely."""

    def setUp(self) -> None:
        self.page = pages.page("reference/spaces")

    def keys(self, title: str) -> set[str]:
        return {
            key
            for cell in pages.first_column(pages.table(self.page, title))
            for key in cell.split(", ")
        }

    def test_conditions(self) -> None:
        """The table lists exactly the conditions of the kinds."""
        expected = {
            spaces.PROVIDER_REACHABLE,
            spaces.CREDENTIALS_VALID,
            spaces.PHYSICAL_SPACE_READY,
            spaces.SYNCED,
        }
        self.assertEqual(self.keys("Conditions"), expected)

    def test_marks(self) -> None:
        """The table lists our annotations and labels, and the one of upstream."""
        expected = {
            value
            for name, value in vars(spaces).items()
            if isinstance(value, str) and name.isupper() and "/" in value
        }
        self.assertEqual(
            self.keys("Annotations and labels"), expected - {spaces.FINALIZER, spaces.MANAGED_BY}
        )

    def test_example(self) -> None:
        """The example is valid."""
        match = re.search(r"\.\. code-block:: yaml\n\n((?:   .*\n|\n)+)", self.page)
        assert match is not None
        text = re.sub(r"(?m)^   ", "", match[1])
        objects = [
            strategy.for_create(kind, body, namespace=body["metadata"].get("namespace", ""), now=0)
            for kind, body in zip(
                (kinds.SPACEPROVIDERDESCS, kinds.SPACES), yaml.safe_load_all(text), strict=True
            )
        ]
        self.assertEqual(objects[1]["spec"]["accessscopetype"], spaces.BOTH)


class ManagerPageTests(SynchronousTestCase):
    """The page of the manager lists the reasons of its conditions."""

    def test_reasons(self) -> None:
        """The page has every reason of a condition that is False or Unknown."""
        listed = set(re.findall(r"``([A-Za-z]+)``", pages.page("reference/spacemanager")))
        used = set(reasons())
        self.assertGreater(len(used), 20)
        self.assertEqual(sorted(used - listed), [])

    def test_words(self) -> None:
        """The page has no reason that the manager does not use."""
        page = pages.page("reference/spacemanager")
        code = "".join(path.read_text() for path in _sources())
        for title in ("Conditions of a Space", "Conditions of a SpaceProviderDesc"):
            for word in re.findall(r"``([A-Za-z]+)``", pages.table(page, title)):
                self.assertIn(word, code)


def reasons() -> Iterator[str]:
    """Yield the words that follow False or Unknown in tuples and calls."""
    for path in _sources():
        for node in ast.walk(ast.parse(path.read_text())):
            parts = getattr(node, "elts", None) or getattr(node, "args", None)
            words = [each.value for each in parts[:2]] if _are_words(parts) else []
            if len(words) == 2 and words[0] in ("False", "Unknown"):
                yield words[1]


def _are_words(parts: Any) -> bool:
    return isinstance(parts, list) and all(isinstance(each, ast.Constant) for each in parts[:2])
