"""
Tests for :mod:`twisted_exec.api.kinds.storage`, through the way into the store.
"""

from __future__ import annotations

from typing import Any

from tests.api.kinds.support import KindTestCase
from twisted_exec.api import strategy, table
from twisted_exec.api.kinds import storage

DOMAIN = "ironcore.dev"


class VolumeTests(KindTestCase):
    """Volumes."""

    kind = storage.volumes(DOMAIN)
    good = {"volumeClassRef": {"name": "fast"}, "resources": {"storage": "1Gi"}}

    def spec_refused(self, **spec: Any) -> list[str]:
        return self.refused(spec={**self.good, **spec})

    def test_group(self) -> None:
        """The group is the dialect's."""
        other = storage.volumes("api.onmetal.de").resource
        self.assertEqual(other.api_version, "storage.api.onmetal.de/v1alpha1")

    def test_good(self) -> None:
        """A new volume is Pending, whatever status its creator sends."""
        made = self.create(spec=self.good, status={"state": "Available"})
        self.assertEqual(made["status"], {"state": "Pending"})
        self.assertEqual(made["metadata"]["generation"], 1)

    def test_size(self) -> None:
        """A volume with a class needs a valid size."""
        for resources, told in (
            ({}, "Required value"),
            ({"storage": "0"}, "must be greater than zero"),
            ({"storage": "x"}, "quantities must match"),
        ):
            (found,) = self.spec_refused(resources=resources)
            self.assertIn("spec.resources[storage]", found)
            self.assertIn(told, found)

    def test_without_class(self) -> None:
        """A volume without a class must not have a size, a pool or a data source."""
        self.create(spec={})
        found = self.refused(
            spec={
                "resources": {"storage": "1Gi"},
                "volumePoolRef": {"name": "p"},
                "dataSource": {"osImage": {"image": "i"}},
            }
        )
        self.assertEqual(len(found), 3)
        self.assertIn("must not specify if volume class is empty", found[0])

    def test_references(self) -> None:
        """References and selectors are validated."""
        for spec in (
            {"volumePoolRef": {}},
            {"claimRef": {"name": "A b"}},
            {"encryption": {"secretRef": {}}},
            {"volumePoolSelector": {"-": "x"}},
            {"unclaimable": True, "claimRef": {"name": "vm"}},
        ):
            self.assertEqual(len(self.spec_refused(**spec)), 1, spec)

    def test_claim(self) -> None:
        """A poollet can set ``claimRef``."""
        old = self.create(spec=self.good)
        claimed = {**old, "spec": {**old["spec"], "claimRef": {"name": "vm", "uid": "u"}}}
        self.assertEqual(strategy.for_update(self.kind, claimed, old)["spec"], claimed["spec"])

    def test_stays(self) -> None:
        """The class is immutable, and so is the pool once set."""
        old = self.create(spec={**self.good, "volumePoolRef": {"name": "p"}})
        for change in ({"volumeClassRef": {"name": "slow"}}, {"volumePoolRef": {"name": "q"}}):
            (told,) = self.update_refused(old, spec={**old["spec"], **change})
            self.assertTrue(told.endswith("Forbidden: field is immutable"), told)

    def test_columns(self) -> None:
        """Columns are the same as in ironcore."""
        made = self.create(spec={**self.good, "dataSource": {"osImage": {"image": "i"}}})
        shown = table.table(self.kind, [made], 0.0, metadata={})
        names = [column["name"] for column in shown["columnDefinitions"]]
        self.assertEqual(names, ["Name", "VolumePoolRef", "Image", "VolumeClass", "State", "Age"])
        self.assertEqual(shown["rows"][0]["cells"][:5], ["a", "<none>", "i", "fast", "Pending"])


class VolumeClassTests(KindTestCase):
    """VolumeClasses."""

    kind = storage.volumeclasses(DOMAIN)

    def test_capabilities(self) -> None:
        """``tps`` and ``iops`` are required; capabilities are immutable."""
        self.assertEqual(len(self.refused()), 2)
        old = self.create(capabilities={"tps": "1Mi", "iops": 100})
        self.assertEqual(old["resizePolicy"], "Static")
        (told,) = self.update_refused(old, capabilities={"tps": "2Mi", "iops": 100})
        self.assertEqual(told, "capabilities: Forbidden: field is immutable")


class VolumePoolTests(KindTestCase):
    """VolumePools."""

    kind = storage.volumepools(DOMAIN)

    def test_provider(self) -> None:
        """``providerID`` can be set later and is immutable once set."""
        old = self.create(spec={})
        named = strategy.for_update(self.kind, {**old, "spec": {"providerID": "a"}}, old)
        (told,) = self.update_refused(named, spec={"providerID": "b"})
        self.assertEqual(told, "spec.providerID: Forbidden: field is immutable")
