"""
Tests for ``docs/reference/spaces.rst``.
"""

from __future__ import annotations

import re

import yaml
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import kinds, spaces, strategy

from . import pages


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
