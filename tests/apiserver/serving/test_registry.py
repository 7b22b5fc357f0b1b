"""
Tests for :mod:`twisted_exec.apiserver.serving.registry`.
"""

from __future__ import annotations

from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import kinds
from twisted_exec.api.dialects import DIALECTS
from twisted_exec.apiserver.serving.registry import KindRegistry


class RegistryTests(SynchronousTestCase):
    """The kinds of a server."""

    def test_all_dialects(self) -> None:
        """A server can have all dialects, although two of them share an API group."""
        KindRegistry(kinds.served(DIALECTS))
        KindRegistry(kinds.aggregated(DIALECTS))

    def test_repeated(self) -> None:
        """A kind that is listed twice is an error, even if the second has another name."""
        machines = kinds.MACHINES
        renamed = replace(machines, resource=replace(machines.resource, kind="Other"))
        for again, name in ((machines, "Machine"), (renamed, "Other")):
            with self.assertRaises(ValueError) as caught:
                KindRegistry([machines, again])
            self.assertIn(
                f"machines of compute.ironcore.dev/v1alpha1 is listed twice, as Machine and {name}",
                str(caught.exception),
            )
