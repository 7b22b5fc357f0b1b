"""
Where a Node says that it is reached: ours first, then what its leaf has.

A kube-apiserver goes through the types of ``--kubelet-preferred-address-types`` in order, takes the
first address of the first type that the Node has at all, and never asks whether it answers.  So our
address stands first, under a type that people do not look at (InternalDNS), and the leaf's own are
kept behind it: ``kubectl get nodes -o wide`` shows those.  Whether the trick works depends on what
the root prefers, which :func:`chosen` tells beforehand.

Pure.  Sources: ``pkg/util/node/node.go`` (``GetPreferredNodeAddress``) and ``cmd/kube-apiserver/app/
options/options.go`` of Kubernetes; the order of the leaf's addresses is that of Kosmos
(``pkg/clustertree/cluster-manager/utils/rootcluster.go``), made a strict one.
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
"""On every Node that we keep: ``true``."""
VIRTUAL: Mapping[str, str] = {
    NODE_LABEL: "true",
    "kosmos.io/node": "true",
    "type": "virtual-kubelet",
}
"""Labels of Nodes that are no machines."""
_MAX_ADDRESSES = 32
"""Of a leaf's node that are shown."""


def parse_types(text: str) -> tuple[str, ...]:
    """
    Types of addresses, with commas between them.

    :raises ValueError: one is none, or is there twice; the message says which.
    """
    listed = tuple(each.strip() for each in text.split(",") if each.strip())
    for each in listed:
        if each not in ADDRESS_TYPES:
            raise ValueError(f"{each} is no type of address; there are {', '.join(ADDRESS_TYPES)}")
    if len(set(listed)) < len(listed):
        raise ValueError(f"{text} names a type twice")
    return listed


def addresses_of(node: Object) -> list[Address]:
    """A Node's addresses, without those that are empty or said before."""
    unique: dict[Address, None] = {}
    for each in (node.get("status") or {}).get("addresses") or ():
        if each.get("type") and each.get("address"):
            unique.setdefault((each["type"], each["address"]))
    return list(unique)


def root_family(nodes: Iterable[Object]) -> int:
    """
    The IP family that a root prefers: that of its first real Node's first InternalIP.

    :param nodes: of the root, in any order.
    :return: 4, 6, or 0 when no Node tells.
    """
    real = [node for node in nodes if not is_virtual(node)]
    for node in sorted(real, key=lambda node: str(node["metadata"]["name"])):
        for kind, address in addresses_of(node):
            if kind == INTERNAL_IP and (family := family_of(address)):
                return family
    return 0


def is_virtual(node: Object) -> bool:
    """Whether a Node is known to be no machine."""
    labels = node["metadata"].get("labels") or {}
    return any(labels.get(key) == value for key, value in VIRTUAL.items())


def family_of(address: str) -> int:
    """4 or 6; 0 for what is no IP address."""
    try:
        return ipaddress.ip_address(address).version
    except ValueError:
        return 0


def published(own: Sequence[Address], leaf: Iterable[Address], family: int) -> list[Address]:
    """
    What a Node is to say.

    :param own: where we are reached.
    :param leaf: the leaf's own addresses.
    :param family: of :func:`root_family`.
    :return: ours; the leaf's InternalIPs, those of the root's family before others; the rest of the
        leaf's.  Within each in the order given, and none twice: API servers refuse that.
    """
    # One that is ours as well may not stand behind ours under the same type.
    rest = list(dict.fromkeys(each for each in leaf if each not in own))[:_MAX_ADDRESSES]

    def rank(address: Address) -> int:
        if address[0] != INTERNAL_IP:
            return 2
        return 0 if family_of(address[1]) == family or not family else 1

    return [*dict.fromkeys(own), *sorted(rest, key=rank)]  # sorted() keeps the order of equals


def chosen(addresses: Iterable[Address], preferred: Sequence[str]) -> Address | None:
    """
    The one that a root dials.

    :param preferred: its ``--kubelet-preferred-address-types``.
    """
    listed = list(addresses)
    for kind in preferred:
        for address in listed:
            if address[0] == kind:
                return address
    return None


def not_chosen(
    addresses: Sequence[Address], own: Sequence[Address], preferred: Sequence[str]
) -> str:
    """
    Why the root would not dial us, and what helps; empty when it would.

    :param addresses: of :func:`published`.
    """
    winner = chosen(addresses, preferred)
    if winner in own:
        return ""
    ours = ", ".join(f"{kind} {address}" for kind, address in own)
    order = ",".join(preferred)
    if winner is None:
        return (
            f"a root with --kubelet-preferred-address-types={order} would dial none of this node's "
            f"addresses; publish ours ({ours}) under one of these types (--preferred-address-type)"
        )
    kind = own[0][0] if own else INTERNAL_DNS
    first = ",".join([kind, *(each for each in preferred if each != kind)])
    return (
        f"a root with --kubelet-preferred-address-types={order} dials the leaf's {winner[0]} "
        f"{winner[1]}, not ours ({ours}); let the root's kube-apiserver have "
        f"--kubelet-preferred-address-types={first}, or publish ours as {winner[0]} "
        f"(--preferred-address-type={winner[0]}), or leave the leaf's {winner[0]} addresses out "
        f"(--leaf-address-types)"
    )
