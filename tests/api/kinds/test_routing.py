"""
Tests for :mod:`twisted_exec.api.kinds.routing`, through the way into the store.
"""

from __future__ import annotations

from typing import Any

from tests.api.kinds.support import KindTestCase
from twisted_exec.api import table
from twisted_exec.api.dialects import IRONCORE, ONMETAL
from twisted_exec.api.kinds import Kind, Object, networks, routing, served, storage

DOMAIN = "api.onmetal.de"
ALIAS_PREFIXES, LOAD_BALANCERS, NAT_GATEWAYS = routing.routed(DOMAIN)
ALIAS_ROUTINGS, _, NAT_ROUTINGS = routing.routings(DOMAIN)


def plurals(*kinds: Kind) -> set[str]:
    return {kind.resource.plural for kind in kinds}


class ServedTests(KindTestCase):
    """Dialects that serve the routing kinds."""

    def test_dialects(self) -> None:
        """onmetal-api serves these kinds; ironcore does not."""
        own = plurals(*routing.kinds(DOMAIN))
        self.assertEqual(len(own), 7)
        self.assertLessEqual(own, plurals(*served((ONMETAL,))))
        self.assertEqual(own & plurals(*served((IRONCORE,))), set())

    def test_older_fields(self) -> None:
        """Only onmetal-api has handles of networks, images of volumes, and these phases."""
        for kinds, path in (
            (networks.networks, ("spec", "handle")),
            (networks.networkinterfaces, ("status", "phase")),
            (storage.volumes, ("spec", "image")),
            (storage.volumes, ("status", "phase")),
        ):
            section, key = path
            for older in (False, True):
                schema = kinds("x.example", older=older).schema[section]
                self.assertIs(key in schema["properties"], older, path)


class RoutedTests(KindTestCase):
    """Alias prefixes, load balancers, NAT gateways."""

    kind = NAT_GATEWAYS

    def shown(self, kind: Kind, obj: Object) -> Any:
        return table.table(kind, [obj], 0.0, metadata={})["rows"][0]["cells"][1]

    def test_network(self) -> None:
        """``networkRef`` is required and immutable."""
        self.assertEqual(
            self.refused(spec={"type": "Public", "networkRef": {}}),
            ["spec.networkRef.name: Required value: must specify a name"],
        )
        old = self.create(spec={"type": "Public", "networkRef": {"name": "lan"}})
        (told,) = self.update_refused(old, spec={**old["spec"], "networkRef": {"name": "wan"}})
        self.assertEqual(told, "spec.networkRef: Forbidden: field is immutable")

    def test_columns(self) -> None:
        """Columns show the addresses of the status, or ``<none>``."""
        made = self.create(spec={"type": "Public", "networkRef": {"name": "lan"}})
        self.assertEqual(self.shown(self.kind, made), "<none>")
        made["status"] = {"ips": [{"name": "a", "ip": "192.0.2.1"}]}
        self.assertEqual(self.shown(self.kind, made), "192.0.2.1")
        self.assertEqual(self.shown(LOAD_BALANCERS, {**made, "status": {"ips": ["x", "y"]}}), "x,y")
        prefix = {**made, "status": {"prefix": "10.0.0.0/8"}}
        self.assertEqual(self.shown(ALIAS_PREFIXES, prefix), "10.0.0.0/8")
        targets = {"networkRef": {"name": "lan"}, "destinations": [{"name": "nic", "uid": "u"}]}
        self.assertEqual(self.shown(ALIAS_ROUTINGS, {**made, **targets}), "nic")


class RoutingTests(KindTestCase):
    """Routings."""

    kind = NAT_ROUTINGS

    def test_destinations(self) -> None:
        """Each destination has its addresses and ports."""
        network = {"networkRef": {"name": "lan", "uid": "u"}}
        one = {"name": "nic", "uid": "v", "ips": [{"ip": "192.0.2.1", "port": 1, "endPort": 64}]}
        made = self.create(**network, destinations=[one])
        self.assertEqual(made["destinations"], [one])
        self.assertEqual(len(self.refused(**network, destinations=[{"name": "nic"}])), 1)
        self.assertEqual(self.refused(), ["networkRef: Required value"])
        self.update(made, destinations=[])
