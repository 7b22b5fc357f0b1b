"""Tests for :mod:`twisted_exec.nodeserver.nodes.addresses`."""

from __future__ import annotations

import itertools

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.nodes.addresses import (
    Address,
    addresses_of,
    chosen,
    not_chosen,
    parse_types,
    publication_order,
    root_family,
)

OURS = [("InternalDNS", "10.9.9.9")]
LEAF = [
    ("InternalIP", "192.168.7.1"),
    ("InternalIP", "fd00::1"),
    ("InternalIP", "192.168.7.2"),
    ("Hostname", "worker-1"),
    ("ExternalIP", "203.0.113.9"),
]


def node(name: str, *addresses: Address, **labels: str) -> Object:
    """A Node with these addresses."""
    status = [{"type": kind, "address": address} for kind, address in addresses]
    return {"metadata": {"name": name, "labels": labels}, "status": {"addresses": status}}


class PublishedTests(SynchronousTestCase):
    """Tests for :func:`publication_order`."""

    def test_order(self) -> None:
        """Ours, the leaf's InternalIPs of the root's family, its others, then all other types."""
        self.assertEqual(
            publication_order(OURS, LEAF, 6),
            [
                ("InternalDNS", "10.9.9.9"),
                ("InternalIP", "fd00::1"),
                ("InternalIP", "192.168.7.1"),
                ("InternalIP", "192.168.7.2"),
                ("Hostname", "worker-1"),
                ("ExternalIP", "203.0.113.9"),
            ],
        )

    def test_strict(self) -> None:
        """Equals keep their order, whatever the order is: Kosmos's comparison did not."""
        same = LEAF[:1] + LEAF[2:3]
        for order in itertools.permutations(same):
            self.assertEqual(publication_order([], order, 4), list(order))
        once = publication_order(OURS, LEAF, 4)
        self.assertEqual(publication_order(OURS, once, 4), once)

    def test_no_family(self) -> None:
        """A root without real Nodes is no error: the leaf's order stays."""
        self.assertEqual(publication_order([], LEAF, 0)[:3], LEAF[:3])

    def test_twice(self) -> None:
        """Duplicates are dropped: API servers refuse them."""
        self.assertEqual(
            publication_order(OURS * 2, [*OURS, *LEAF, *LEAF], 4), publication_order(OURS, LEAF, 4)
        )

    def test_same_type(self) -> None:
        """Ours is first of its type, whatever the type."""
        addresses = publication_order([("InternalIP", "10.9.9.9")], LEAF, 6)
        self.assertEqual(chosen(addresses, ["InternalIP"]), ("InternalIP", "10.9.9.9"))

    def test_many(self) -> None:
        """A leaf with a thousand addresses yields a Node that the root can store."""
        many = [("InternalIP", f"10.0.{n // 256}.{n % 256}") for n in range(1000)]
        self.assertLess(len(publication_order(OURS, many, 4)), 64)


class FamilyTests(SynchronousTestCase):
    """Tests for :func:`root_family`."""

    def test_first_real(self) -> None:
        """The first real Node by name tells; those that stand for others do not."""
        virtual = node("a", ("InternalIP", "10.0.0.1"), **{"kosmos.io/node": "true"})
        silent = node("b", ("Hostname", "b"))
        real = node("c", ("Hostname", "c"), ("InternalIP", "fd00::c"), ("InternalIP", "10.0.0.3"))
        late = node("d", ("InternalIP", "10.0.0.4"))
        self.assertEqual(root_family([late, real, silent, virtual]), 6)

    def test_none(self) -> None:
        """Nodes without addresses, or with text that is not an address, decide nothing."""
        self.assertEqual(root_family([]), 0)
        self.assertEqual(root_family([node("a", ("InternalIP", "somewhere"))]), 0)


class ChosenTests(SynchronousTestCase):
    """Tests for :func:`chosen` and :func:`not_chosen`: what a root would dial."""

    def test_types_first(self) -> None:
        """The order of types decides before the order of addresses."""
        addresses = publication_order(OURS, LEAF, 4)
        self.assertEqual(chosen(addresses, ADDRESS_TYPES), ("Hostname", "worker-1"))
        self.assertEqual(chosen(addresses, ("InternalDNS", "Hostname")), OURS[0])
        self.assertEqual(chosen(addresses, ("InternalIP",)), LEAF[0])
        self.assertIsNone(chosen(addresses, ("ExternalDNS",)))

    def test_ours(self) -> None:
        """If our address is chosen there is no message."""
        self.assertEqual(not_chosen(publication_order(OURS, LEAF, 4), OURS, ("InternalDNS",)), "")

    def test_default_order(self) -> None:
        """In a kube-apiserver's default order a leaf's Hostname wins; the message has a remedy."""
        message = not_chosen(publication_order(OURS, LEAF, 4), OURS, ADDRESS_TYPES)
        for part in (
            "dials the leaf's Hostname worker-1, not that of the node server (InternalDNS 10.9.9.9)",
            "--kubelet-preferred-address-types=InternalDNS,Hostname,InternalIP,ExternalDNS,ExternalIP",
            "--preferred-address-type=Hostname",
            "--leaf-address-types",
        ):
            self.assertIn(part, message)

    def test_none(self) -> None:
        """A root that uses none of the types is reported, too."""
        message = not_chosen(OURS, OURS, ("ExternalIP",))
        self.assertIn("would dial none of this node's addresses", message)

    def test_no_address(self) -> None:
        """Without an address of ours every root dials another."""
        self.assertIn("not that of the node server", not_chosen(LEAF, [], ("InternalIP",)))


class ReadTests(SynchronousTestCase):
    """Tests for :func:`parse_types` and :func:`addresses_of`."""

    def test_types(self) -> None:
        """Types are those that there are, each once."""
        self.assertEqual(parse_types("InternalIP, Hostname"), ("InternalIP", "Hostname"))
        for bad, why in (("internalIP", "is not an address type"), ("Hostname,Hostname", "twice")):
            with self.assertRaises(ValueError) as caught:
                parse_types(bad)
            self.assertIn(why, str(caught.exception))

    def test_addresses(self) -> None:
        """Empty addresses and duplicates are dropped."""
        obj = node("a", ("InternalIP", ""), ("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.1"))
        self.assertEqual(addresses_of(obj), [("InternalIP", "10.0.0.1")])
        self.assertEqual(addresses_of({"metadata": {"name": "x"}}), [])
