"""
What the command line of a node server says about Nodes: what they publish, and who keeps them.

Which of several replicas acts for all.

Streams and logs are served by all replicas.  Nodes are kept, and Pods copied, by the one that holds a
Lease of the root (:mod:`twisted_exec.kube.leader_election.controllers`).
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping

from twisted.python.usage import UsageError

from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.api.names import dns_label
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.nodeserver.nodes.addresses import (
    EXTERNAL_IP,
    INTERNAL_DNS,
    INTERNAL_IP,
    Address,
    family_of,
    parse_types,
)
from twisted_exec.nodeserver.nodes.conditions import LEAF, POLICIES
from twisted_exec.nodeserver.nodes.plan import FULL, NODE_SOURCES, NONE
from twisted_exec.nodeserver.nodes.worker import PublishedEndpoint
from twisted_exec.program.start import ProgramOptions

NAMESPACE, LEASE = "kube-system", PROGRAM


def keeper_of(namespace: str = NAMESPACE, lease: str = LEASE) -> str:
    """What all replicas are called together."""
    return f"{namespace}/{lease}"


WEBSOCKETS = "ExtendWebSocketsToKubelet"
"""Declared by a Node whose server takes a client's WebSocket as it is (Kubernetes 1.36)."""

ADDRESS, TYPE = "LEAF_NODE_IP", "PREFERRED-ADDRESS-TYPE"
"""Variables that say what an option did not: Kosmos has them."""

_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?", re.ASCII)


def _port(text: str) -> int:
    """
    :raises ValueError: it is no port.
    """
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= 65535):
        raise ValueError(f"{text!r} is no port from 1 to 65535")
    return int(text)


class NodeOptions(ProgramOptions):
    """
    Options of Nodes, to be joined with others.

    :cvar environ: where :data:`ADDRESS` and :data:`TYPE` are looked up.
    """

    environ: Mapping[str, str] = os.environ

    optParameters = [
        ["upkeep", None, FULL, f"What of Nodes is kept: {', '.join(NODE_SOURCES)}."],
        ["node-address", None, "", f"Where the root reaches us, with commas; else ${ADDRESS}."],
        [
            "preferred-address-type",
            None,
            "",
            f"As what that is published; else ${TYPE}, or {INTERNAL_DNS}.",
        ],
        ["node-port", None, 0, "The port to publish, where it is not that of --listen.", _port],
        [
            "kubelet-preferred-address-types",
            None,
            ",".join(ADDRESS_TYPES),
            "What the root's API server was told by its option of this name.",
        ],
        [
            "leaf-address-types",
            None,
            ",".join(ADDRESS_TYPES),
            "Which of the leaf's own addresses are shown, too.",
        ],
        ["node-ready-when", None, LEAF, f"When Nodes are ready: {', '.join(POLICIES)}."],
        ["namespace", None, NAMESPACE, "Of the Lease by which one of the replicas is elected."],
        ["lease", None, LEASE, "Its name; another one for each set of replicas on one root."],
    ]
    optFlags = [
        ["declare-websockets", None, f"Declare {WEBSOCKETS} of Nodes; roots from 1.36 heed it."],
    ]

    def postOptions(self) -> None:
        """
        :raises UsageError: something is missing or cannot be meant.
        """
        super().postOptions()
        self["node-address"] = self["node-address"] or self.environ.get(ADDRESS, "")
        self["preferred-address-type"] = (
            self["preferred-address-type"] or self.environ.get(TYPE, "") or INTERNAL_DNS
        )
        for name, choices in (("upkeep", NODE_SOURCES), ("node-ready-when", POLICIES)):
            if self[name] not in choices:
                raise UsageError(f"--{name} is one of {', '.join(choices)}, not {self[name]}")
        for name in ("namespace", "lease"):
            if dns_label(self[name]):
                raise UsageError(f"--{name}: {self[name]!r} is no name")
        self.face(1)

    def keeper(self) -> str:
        """What all replicas are called together."""
        return keeper_of(self["namespace"], self["lease"])

    def own_addresses(self) -> list[Address]:
        """
        Where the root reaches us, for what is published and for the names in a certificate.

        :raises UsageError: there is none, or one cannot be meant.
        """
        kind = self._types("preferred-address-type")
        if len(kind) != 1:
            raise UsageError("--preferred-address-type is one type of address")
        listed = [each.strip() for each in self["node-address"].split(",") if each.strip()]
        for each in listed:
            _check_address(kind[0], each)
        if not listed and self["upkeep"] != NONE:
            raise UsageError(
                f"--node-address (or {ADDRESS}) is missing: Nodes are to say where the root's API "
                f"server reaches this program; or give --upkeep={NONE}"
            )
        return [(kind[0], each) for each in listed]

    def _types(self, name: str) -> tuple[str, ...]:
        try:
            return parse_types(self[name])
        except ValueError as problem:
            raise UsageError(f"--{name}: {problem}") from None

    def face(self, port: int) -> PublishedEndpoint:
        """
        What Nodes say of us.

        :param port: where we listen.
        :raises UsageError: see :meth:`own_addresses`.
        """
        preferred = self._types("kubelet-preferred-address-types")
        if not preferred:
            raise UsageError("--kubelet-preferred-address-types names no type")
        return PublishedEndpoint(
            own=self.own_addresses(),
            port=self["node-port"] or port,
            keeper=self.keeper(),
            preferred=preferred,
            address_types=self._types("leaf-address-types"),
            features=[WEBSOCKETS] if self["declare-websockets"] else [],
            ready_when=self["node-ready-when"],
            upkeep=self["upkeep"],
        )


def _check_address(kind: str, address: str) -> None:
    """
    :raises UsageError: no root could dial it.
    """
    if not family_of(address):
        if kind in (INTERNAL_IP, EXTERNAL_IP) or not _NAME.fullmatch(address):
            what = "IP address" if kind in (INTERNAL_IP, EXTERNAL_IP) else "host name or IP address"
            raise UsageError(f"--node-address: {address!r} is no {what}")
    elif ipaddress.ip_address(address).is_unspecified:
        raise UsageError(f"--node-address: {address} is no address that could be dialled")
