"""
Tests for :mod:`twisted_exec.api.kinds.networks` and ``ipam``, through the way into the
store.
"""

from __future__ import annotations

from typing import Any

from tests.api.kinds.support import KindTestCase
from twisted_exec.api import table
from twisted_exec.api.kinds import networks

DOMAIN = "ironcore.dev"
TEMPLATE = {"ephemeral": {"prefixTemplate": {"spec": {"parentRef": {"name": "root"}}}}}


class InterfaceTests(KindTestCase):
    """NetworkInterfaces."""

    kind = networks.networkinterfaces(DOMAIN)
    good = {"networkRef": {"name": "lan"}, "ips": [{"value": "10.0.0.1"}]}

    def spec_refused(self, **spec: Any) -> list[str]:
        return self.refused(spec={**self.good, **spec})

    def test_families(self) -> None:
        """Without ``ipFamilies``, the families are those of the addresses."""
        ips = [{"value": "10.0.0.1"}, {"value": "2001:db8::1"}]
        made = self.create(spec={**self.good, "ips": ips})
        self.assertEqual(made["spec"]["ipFamilies"], ["IPv4", "IPv6"])
        self.assertEqual(self.create(spec={"networkRef": {"name": "lan"}})["spec"]["ips"], [])

    def test_made_for_it(self) -> None:
        """The Prefix template of an address has a length of one address."""
        made = self.create(spec={**self.good, "ipFamilies": ["IPv6"], "ips": [TEMPLATE]})
        (source,) = made["spec"]["ips"]
        self.assertEqual(
            source["ephemeral"]["prefixTemplate"]["spec"],
            {"parentRef": {"name": "root"}, "ipFamily": "IPv6", "prefixLength": 128},
        )
        self.assertNotIn("ipFamily", TEMPLATE["ephemeral"]["prefixTemplate"]["spec"])

    def test_bad(self) -> None:
        """An invalid spec is refused with the path of the field."""
        for spec, path in (
            ({"networkRef": {}}, "spec.networkRef.name"),
            ({"machineRef": {"name": "a.b"}}, "spec.machineRef.name"),
            ({"ipFamilies": ["IPv6"]}, "spec.ips[0].value"),
            ({"ipFamilies": ["IPv4", "IPv6"]}, "spec.ips"),
            ({"ips": [{"value": "x"}], "ipFamilies": ["IPv4"]}, "spec.ips[0].value"),
            ({"ips": [{}], "ipFamilies": ["IPv4"]}, "spec.ips[0]"),
            ({"prefixes": [{"value": "10.0.0.1/8"}]}, "spec.prefixes[0].value"),
            ({"prefixes": [{}]}, "spec.prefixes[0]"),
            ({"virtualIP": {}}, "spec.virtualIP"),
        ):
            (told,) = self.spec_refused(**spec)
            self.assertTrue(told.startswith(f"{path}: "), (spec, told))
        self.assertEqual(
            self.spec_refused(ipFamilies=["IPv4", "IPv4"], ips=[*self.good["ips"]] * 2),
            ['spec.ipFamilies: Duplicate value: ["IPv4","IPv4"]'],
        )

    def test_changes(self) -> None:
        """A poollet can set ``machineRef`` and ``providerID``; ``networkRef`` is immutable."""
        old = self.create(spec=self.good)
        told = {"machineRef": {"name": "vm", "uid": "u"}, "providerID": "x"}
        new = self.update(old, spec={**old["spec"], **told})
        self.assertEqual(new["spec"]["providerID"], "x")
        (refused,) = self.update_refused(old, spec={**old["spec"], "networkRef": {"name": "wan"}})
        self.assertEqual(refused, "spec.networkRef: Forbidden: field is immutable")

    def test_columns(self) -> None:
        """Columns are the same as in ironcore."""
        made = self.create(spec=self.good)
        made["status"]["ips"] = ["10.0.0.1", "10.0.0.2"]
        shown = table.table(self.kind, [made], 0.0, metadata={})
        self.assertEqual(
            shown["rows"][0]["cells"][:7],
            ["a", "lan", "<none>", "10.0.0.1,10.0.0.2", "<none>", "<none>", "Pending"],
        )


class NetworkTests(KindTestCase):
    """Networks."""

    kind = networks.networks(DOMAIN)

    def test_provider(self) -> None:
        """``providerID`` can be set later and is immutable once set."""
        old = self.create(spec={})
        named = self.update(old, spec={"providerID": "a"})
        (told,) = self.update_refused(named, spec={"providerID": "b"})
        self.assertEqual(told, "spec.providerID: Forbidden: field is immutable")

    def test_peerings(self) -> None:
        """A network can be peered with other networks only, and once with each."""

        def peering(name: str, other: str, **more: Any) -> dict[str, Any]:
            return {"name": name, "networkRef": {"name": other}, **more}

        for peerings, told in (
            ([peering("x", "a")], "cannot peer a network with itself"),
            ([peering("x", "b"), peering("y", "b")], "Duplicate value"),
            ([peering("x", "b", prefixes=[{"name": "p", "prefix": "q"}])], "valid IP range"),
        ):
            (found,) = self.refused(spec={"peerings": peerings})
            self.assertIn(told, found)
