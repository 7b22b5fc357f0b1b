"""
Tests for :mod:`twisted_exec.api.kinds.crds`; a real kube-apiserver judges in
``tests/interop/spaces_crds.py``.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object, crds


def keys(value: Any) -> set[str]:
    """Return all keys, at any depth."""
    if isinstance(value, dict):
        return set(value).union(*(keys(each) for each in value.values()))
    return set().union(*(keys(each) for each in value)) if isinstance(value, list) else set()


class DefinitionTests(SynchronousTestCase):
    """Definitions of kinds."""

    def version(self, kind: kinds.Kind, **more: Any) -> Object:
        (version,) = crds.definition(kind, **more)["spec"]["versions"]
        found: Object = version
        return found

    def test_names(self) -> None:
        """The definition has the names that kubectl uses."""
        made = crds.definition(kinds.SPACEPROVIDERDESCS)
        self.assertEqual(made["metadata"]["name"], "spaceproviderdescs.space.kubestellar.io")
        self.assertEqual(made["spec"]["scope"], "Cluster")
        self.assertEqual(made["spec"]["names"]["shortNames"], ["spd"])
        self.assertEqual(made["spec"]["names"]["listKind"], "SpaceProviderDescList")

    def test_status(self) -> None:
        """The definition has the status subresource."""
        self.assertEqual(self.version(kinds.SPACES)["subresources"], {"status": {}})

    def test_columns(self) -> None:
        """Columns are the same as ours, except that Age precedes the columns of ``-o wide``."""
        told = [each["name"] for each in self.version(kinds.SPACES)["additionalPrinterColumns"]]
        self.assertEqual(told[:6], ["Type", "Provider", "Phase", "Credentials", "Age", "Reachable"])

    def test_without_path(self) -> None:
        """A column without a JSON path cannot be part of a definition."""
        with self.assertRaisesRegex(ValueError, "column MachineClassRef of Machine has no path"):
            crds.definition(kinds.MACHINES)

    def test_name(self) -> None:
        """Restrictions on names are part of the schema of ``metadata``."""
        version = self.version(kinds.SPACES, name={"maxLength": 63})
        metadata = version["schema"]["openAPIV3Schema"]["properties"]["metadata"]
        told = {"name": {"type": "string", "maxLength": 63}}
        self.assertEqual(metadata, {"type": "object", "properties": told})

    def test_patches(self) -> None:
        """
        Definitions keep the list keys of our schema but not the keys of strategic merge patches.
        """
        self.assertIn("x-kubernetes-patch-merge-key", keys(kinds.SPACES.schema))
        found = keys(crds.definition(kinds.SPACES))
        self.assertFalse({each for each in found if "patch" in each})
        self.assertIn("x-kubernetes-list-map-keys", found)
