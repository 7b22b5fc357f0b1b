"""
Tests for :mod:`twisted_exec.api.kinds.routings`, through the way into the store.
"""

from __future__ import annotations

from tests.api.test_kinds import KindTestCase
from twisted_exec.api import kinds
from twisted_exec.api.dialects import DIALECTS, ONMETAL
from twisted_exec.api.kinds import routings


class RoutingTests(KindTestCase):
    """What leads to interfaces, and what they leave by."""

    def test_whole(self) -> None:
        """Everything that a network plugin writes is kept."""
        leading, _, leaving = routings.kinds(ONMETAL.domain)
        interface = {"name": "nic", "uid": "u-2"}
        port = {"ip": "192.0.2.1", "port": 1024, "endPort": 2047}
        network = {"networkRef": {"name": "lan", "uid": "u-1"}}
        for self.kind, destination in (
            (leading, interface),
            (leaving, {**interface, "ips": [port]}),
        ):
            made = self.create(**network, destinations=[destination])
            self.assertEqual(made["destinations"], [destination])
            self.assertEqual([column.read(made) for column in self.kind.columns], ["lan"])

    def test_bad(self) -> None:
        """A port that no network has is refused."""
        self.kind = routings.kinds(ONMETAL.domain)[2]
        port = {"ip": "192.0.2.1", "port": 65536}
        (told,) = self.refused(destinations=[{"name": "nic", "ips": [port]}])
        self.assertTrue(told.startswith("destinations[0].ips[0].port: "), told)

    def test_where(self) -> None:
        """Only those dialects have them whose poollets follow them."""
        for dialect in DIALECTS:
            names = [kind.resource.plural for kind in kinds.served((dialect,))]
            self.assertEqual("natgatewayroutings" in names, dialect.routings, dialect.name)
