"""
Tests for :mod:`twisted_exec.api.kinds`: properties of every kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import kinds, strategy
from twisted_exec.api.dialects import DIALECTS
from twisted_exec.api.status import Invalid


class DescriptionTests(SynchronousTestCase):
    """Descriptions that ``kubectl explain`` shows."""

    def test_every_field(self) -> None:
        """Every field has a description, at any depth."""

        def unexplained(schema: Any, path: str) -> Iterator[str]:
            for key, inner in schema.get("properties", {}).items():
                if not inner.get("description"):
                    yield f"{path}.{key}"
                yield from unexplained(inner, f"{path}.{key}")
            for part in ("items", "additionalProperties"):
                if isinstance(schema.get(part), dict):
                    yield from unexplained(schema[part], path)

        for kind in kinds.served(DIALECTS):
            name = kind.resource.kind
            self.assertTrue(kind.description, name)
            self.assertEqual(list(unexplained(strategy.full_schema(kind), name)), [])


class AllTests(SynchronousTestCase):
    """Properties of every kind."""

    def test_unique(self) -> None:
        """No server has two kinds with the same group, version and plural, whatever its dialects."""
        for several in (kinds.ALL, kinds.served(DIALECTS), kinds.aggregated(DIALECTS)):
            counts = Counter(
                (kind.resource.group, kind.resource.version, kind.resource.plural)
                for kind in several
            )
            self.assertEqual([key for key, count in counts.items() if count > 1], [])

    def test_empty_bodies(self) -> None:
        """An object with nothing but a name is stored or refused, nothing else."""
        for kind in kinds.served(DIALECTS):
            namespace = "default" if kind.resource.namespaced else ""
            try:
                strategy.for_create(kind, {"metadata": {"name": "a"}}, namespace=namespace, now=0)
            except Invalid:
                continue
