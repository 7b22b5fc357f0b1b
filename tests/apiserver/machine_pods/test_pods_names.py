"""
Tests for :mod:`twisted_exec.apiserver.machine_pods.conversion`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import IRONCORE, ONMETAL, SPHERIC
from twisted_exec.apiserver.machine_pods.conversion import PodNames


class PodNamesTests(SynchronousTestCase):
    """Tests for :class:`PodNames`."""

    def setUp(self) -> None:
        self.names = PodNames([SPHERIC, IRONCORE])

    def test_both_ways(self) -> None:
        """The first dialect's names are plain, the others' carry theirs."""
        for dialect, machine, pod in (
            (SPHERIC, "vm-1", "vm-1"),
            (IRONCORE, "vm-1", "vm-1.ironcore"),
        ):
            self.assertEqual(self.names.pod(dialect, machine), pod)
            self.assertEqual(self.names.machine(pod), (dialect, machine))

    def test_others(self) -> None:
        """Any other dot is part of a name that no machine has."""
        for pod in ("vm.spheric", f"vm.{ONMETAL.name}", "vm.ironcore.ironcore", ".", ""):
            self.assertEqual(self.names.machine(pod), (SPHERIC, pod))
