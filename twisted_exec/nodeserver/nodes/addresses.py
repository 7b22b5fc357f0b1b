"""
Addresses of a Node that stands for a leaf, and which of them a root dials.

A Node publishes our address first, under a type that users rarely read (by default InternalDNS).

Sources: ``pkg/util/node/node.go`` (``GetPreferredNodeAddress``) and
``cmd/kube-apiserver/app/options/options.go`` of Kubernetes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence

from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.ownership import PREFIX

Address = tuple[str, str]
"""Type and address."""

INTERNAL_DNS, INTERNAL_IP, EXTERNAL_IP = "InternalDNS", "InternalIP", "ExternalIP"

NODE_LABEL = f"{PREFIX}node"
"""Label with the value ``true`` on every Node that we keep."""
VIRTUAL: Mapping[str, str] = {
    NODE_LABEL: "true",
    "kosmos.io/node": "true",
    "type": "virtual-kubelet",
}
"""Labels of virtual Nodes."""
_MAX_ADDRESSES = 32


def parse_types(text: str) -> tuple[str, ...]:
    """
    Parse comma-separated address types.

    :raises ValueError: a type is unknown or repeated.
    """
    listed = tuple(each.strip() for each in text.split(",") if each.strip())
    for each in listed:
        if each not in ADDRESS_TYPES:
            raise ValueError(f"{each} is not an address type; there are {', '.join(ADDRESS_TYPES)}")
    if len(set(listed)) < len(listed):
        raise ValueError(f"{text} names a type twice")
    return listed


def addresses_of(node: Object) -> list[Address]:
    """Return a Node's addresses without duplicates."""
    unique: dict[Address, None] = {}
    for each in (node.get("status") or {}).get("addresses") or ():
        if each.get("type") and each.get("address"):
            unique.setdefault((each["type"], each["address"]))
    return list(unique)


def root_family(nodes: Iterable[Object]) -> int:
    """
    Return the IP family that a root prefers: that of the first InternalIP of its real Nodes, by
    name; 0 if it is unknown.
    """
    real = [node for node in nodes if not is_virtual(node)]
    for node in sorted(real, key=lambda node: str(node["metadata"]["name"])):
        for kind, address in addresses_of(node):
            if kind == INTERNAL_IP and (family := family_of(address)):
                return family
    return 0


def is_virtual(node: Object) -> bool:
    """Return whether a Node is known to be virtual."""
    labels = node["metadata"].get("labels") or {}
    return any(labels.get(key) == value for key, value in VIRTUAL.items())


def family_of(address: str) -> int:
    """Return 4 or 6; 0 for other text."""
    try:
        return ipaddress.ip_address(address).version
    except ValueError:
        return 0


def publication_order(
    own: Sequence[Address], leaf: Iterable[Address], family: int
) -> list[Address]:
    """
    Return the addresses that a Node publishes.

    The order is: ours, the leaf's InternalIPs, its other addresses.
    """
    # An address of the leaf that equals ours would be a duplicate.
    rest = list(dict.fromkeys(each for each in leaf if each not in own))[:_MAX_ADDRESSES]

    def rank(address: Address) -> int:
        if address[0] != INTERNAL_IP:
            return 2
        return 0 if family_of(address[1]) == family or not family else 1

    return [*dict.fromkeys(own), *sorted(rest, key=rank)]  # sorted() is stable


def chosen(addresses: Iterable[Address], preferred: Sequence[str]) -> Address | None:
    """Return the address that a root dials, or ``None``."""
    listed = list(addresses)
    for kind in preferred:
        for address in listed:
            if address[0] == kind:
                return address
    return None


def not_chosen(
    addresses: Sequence[Address], own: Sequence[Address], preferred: Sequence[str]
) -> str:
    """Return why the root would not dial us, with a remedy, or empty."""
    winner = chosen(addresses, preferred)
    if winner in own:
        return ""
    ours = ", ".join(f"{kind} {address}" for kind, address in own)
    order = ",".join(preferred)
    if winner is None:
        return (
            f"a root with --kubelet-preferred-address-types={order} would dial none of this node's "
            f"addresses; publish those of the node server ({ours}) under one of these types (--preferred-address-type)"
        )
    kind = own[0][0] if own else INTERNAL_DNS
    first = ",".join([kind, *(each for each in preferred if each != kind)])
    return (
        f"a root with --kubelet-preferred-address-types={order} dials the leaf's {winner[0]} "
        f"{winner[1]}, not that of the node server ({ours}); let the root's kube-apiserver have "
        f"--kubelet-preferred-address-types={first}, or publish this one as {winner[0]} "
        f"(--preferred-address-type={winner[0]}), or leave the leaf's {winner[0]} addresses out "
        f"(--leaf-address-types)"
    )
