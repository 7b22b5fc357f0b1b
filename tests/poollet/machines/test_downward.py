"""Tests for :mod:`twisted_exec.poollet.machines.downward`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.poollet.doubles import CONFIG, machine
from twisted_exec.poollet.machines import downward
from twisted_exec.poollet.machines.config import MachineConfig
from twisted_exec.poollet.machines.downward import Downward
from twisted_exec.poollet.machines.runtime_machine import runtime_machine


class DownwardTests(SynchronousTestCase):
    """Fields of objects that runtimes get."""

    def test_values(self) -> None:
        """A single entry, all entries, or a name; a missing field is empty."""
        obj = {"metadata": {"name": "vm", "uid": "u", "labels": {"b": "2", "a": "1"}}}
        paths = {
            "n": "metadata.name",
            "one": "metadata.labels['a']",
            "all": "metadata.labels",
            "none": "metadata.annotations['x']",
        }
        for path in paths.values():
            self.assertEqual(downward.check(path), path)
        self.assertEqual(
            downward.values(paths, obj, "p/"),
            {"p/n": "vm", "p/one": "1", "p/all": 'a="1"\nb="2"', "p/none": ""},
        )

    def test_refused(self) -> None:
        """Other fields are refused with the supported ones."""
        for path in ("spec.power", "metadata.labels[a]", "", "metadata.labels['']"):
            with self.assertRaises(ValueError) as caught:
                downward.check(path)
            self.assertIn("metadata.labels['KEY']", str(caught.exception))

    def test_told(self) -> None:
        """The runtime gets them as labels and annotations, under the dialect's prefix."""
        fields = Downward({"team": "metadata.labels['team']"}, {"of": "metadata.namespace"})
        obj = machine()
        obj["metadata"].update(uid="u", namespace="lab", labels={"team": "red"})
        created = runtime_machine(obj, MachineConfig(CONFIG.dialect, "pool-a", "memory", fields))
        prefix = "downward-api.machinepoollet.ironcore.dev/"
        self.assertEqual(created.metadata.labels[f"{prefix}team"], "red")
        self.assertEqual(created.metadata.annotations[f"{prefix}of"], "lab")
