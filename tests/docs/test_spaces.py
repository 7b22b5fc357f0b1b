"""
Tests for ``docs/reference/spaces.rst``.
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


class SpacesPageTests(SynchronousTestCase):
    """The page has what the kinds have."""

    def setUp(self) -> None:
        self.page = pages.page("reference/spaces")

    def keys(self, title: str) -> set[str]:
        return {
            key
            for cell in pages.first_column(pages.table(self.page, title))
            for key in cell.split(", ")
        }

    def test_fields(self) -> None:
        """All fields, and no others."""
        for kind in (kinds.SPACES, kinds.SPACEPROVIDERDESCS):
            for part in ("spec", "status"):
                known = set(kind.schema[part]["properties"])
                self.assertEqual(self.keys(f"``{part}`` of a {kind.resource.kind}"), known)

    def test_conditions(self) -> None:
        """The conditions that there are."""
        known = {
            spaces.PROVIDER_REACHABLE,
            spaces.CREDENTIALS_VALID,
            spaces.PHYSICAL_SPACE_READY,
            spaces.SYNCED,
        }
        self.assertEqual(self.keys("Conditions"), known)

    def test_marks(self) -> None:
        """Annotations and labels of ours, and the one of upstream's."""
        known = {
            value
            for name, value in vars(spaces).items()
            if isinstance(value, str) and name.isupper() and "/" in value
        }
        self.assertEqual(
            self.keys("Annotations and labels"), known - {spaces.FINALIZER, spaces.MANAGED_BY}
        )

    def test_example(self) -> None:
        """What is shown is accepted."""
        found = re.search(r"\.\. code-block:: yaml\n\n((?:   .*\n|\n)+)", self.page)
        assert found is not None
        text = re.sub(r"(?m)^   ", "", found[1])
        made = [
            strategy.for_create(kind, body, namespace=body["metadata"].get("namespace", ""), now=0)
            for kind, body in zip(
                (kinds.SPACEPROVIDERDESCS, kinds.SPACES), yaml.safe_load_all(text), strict=True
            )
        ]
        self.assertEqual(made[1]["spec"]["accessscopetype"], spaces.BOTH)


class ManagerPageTests(SynchronousTestCase):
    """The page of the manager has the reasons that it gives in conditions."""

    def test_reasons(self) -> None:
        """Whatever is told of what does not hold can be looked up."""
        told = set(re.findall(r"``([A-Za-z]+)``", pages.page("reference/spacemanager")))
        found = set(reasons())
        self.assertGreater(len(found), 20)
        self.assertEqual(sorted(found - told), [])

    def test_words(self) -> None:
        """No reason is told of that nobody gives."""
        page = pages.page("reference/spacemanager")
        known = "".join(path.read_text() for path in MANAGER.glob("*.py"))
        for title in ("Conditions of a Space", "Conditions of a SpaceProviderDesc"):
            for word in re.findall(r"``([A-Za-z]+)``", pages.table(page, title)):
                self.assertIn(word, known)


def reasons() -> Iterator[str]:
    """What stands behind False or Unknown, in tuples and in calls."""
    for path in MANAGER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            parts = getattr(node, "elts", None) or getattr(node, "args", None)
            words = [each.value for each in parts[:2]] if _are_words(parts) else []
            if len(words) == 2 and words[0] in ("False", "Unknown"):
                yield words[1]


def _are_words(parts: Any) -> bool:
    return isinstance(parts, list) and all(isinstance(each, ast.Constant) for each in parts[:2])
