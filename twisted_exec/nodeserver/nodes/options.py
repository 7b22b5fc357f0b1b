"""
Command-line options of Nodes: what they publish, and which replica keeps them.

All replicas serve streams and logs.  The leader keeps Nodes and copies Pods; it holds a Lease of
the root (:mod:`twisted_exec.kube.leader_election.controllers`).
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
from twisted_exec.program.options import ProgramOptions

NAMESPACE, LEASE = "kube-system", PROGRAM


def keeper_of(namespace: str = NAMESPACE, lease: str = LEASE) -> str:
    """Return the name of a set of replicas: namespace and name of their Lease."""
    return f"{namespace}/{lease}"


WEBSOCKETS = "ExtendWebSocketsToKubelet"
"""Feature that a Node declares if its server accepts a client's WebSocket unchanged (Kubernetes 1.36)."""

ADDRESS, TYPE = "LEAF_NODE_IP", "PREFERRED-ADDRESS-TYPE"
"""Environment variables for options that were not given; Kosmos sets them."""

_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?", re.ASCII)


def _port(text: str) -> int:
    """:raises ValueError: the text is not a port."""
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= 65535):
        raise ValueError(f"{text!r} is not a port from 1 to 65535")
    return int(text)


class NodeOptions(ProgramOptions):
    """
    Options of Nodes.

    :cvar environ: the environment for :data:`ADDRESS` and :data:`TYPE`.
    """

    environ: Mapping[str, str] = os.environ
    group = "Nodes"
    groups = {"Leader election": ["namespace", "lease"]}

    optParameters = [
        ["upkeep", None, FULL, f"How much of the Nodes to maintain: {', '.join(NODE_SOURCES)}."],
        [
            "node-address",
            None,
            "",
            f"Addresses to publish, separated by commas; default: ${ADDRESS}.",
        ],
        [
            "preferred-address-type",
            None,
            "",
            f"Type of the addresses of --node-address; default: ${TYPE}, or {INTERNAL_DNS}.",
        ],
        ["node-port", None, 0, "Port to publish; 0 for that of --listen.", _port],
        [
            "kubelet-preferred-address-types",
            None,
            ",".join(ADDRESS_TYPES),
            "Value of this option of the root's API server.",
        ],
        [
            "leaf-address-types",
            None,
            ",".join(ADDRESS_TYPES),
            "Types of the leaf's own addresses to publish as well.",
        ],
        ["node-ready-when", None, LEAF, f"Condition for Ready: {', '.join(POLICIES)}."],
        ["namespace", None, NAMESPACE, "Namespace of the Lease for leader election."],
        ["lease", None, LEASE, "Name of the Lease; one for each set of replicas on a root."],
    ]
    optFlags = [
        ["declare-websockets", None, f"Declare {WEBSOCKETS}; needs Kubernetes 1.36 in the root."],
    ]

    def postOptions(self) -> None:
        """:raises UsageError: a required option is missing, or options contradict each other."""
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
                raise UsageError(f"--{name}: {self[name]!r} is not a valid name")
        self.published(1)

    def keeper(self) -> str:
        """Return the name of the set of replicas: namespace and name of their Lease."""
        return keeper_of(self["namespace"], self["lease"])

    def own_addresses(self) -> list[Address]:
        """
        Return the addresses to publish, which the serving certificate must contain.

        :raises UsageError: there are none, or one is invalid.
        """
        kind = self._types("preferred-address-type")
        if len(kind) != 1:
            raise UsageError("--preferred-address-type must be a single address type")
        listed = [each.strip() for each in self["node-address"].split(",") if each.strip()]
        for each in listed:
            _check_address(kind[0], each)
        if not listed and self["upkeep"] != NONE:
            raise UsageError(
                f"--node-address (or {ADDRESS}) is missing: the addresses by which the root's API "
                f"server reaches this program; or give --upkeep={NONE}"
            )
        return [(kind[0], each) for each in listed]

    def _types(self, name: str) -> tuple[str, ...]:
        try:
            return parse_types(self[name])
        except ValueError as problem:
            raise UsageError(f"--{name}: {problem}") from None

    def published(self, port: int) -> PublishedEndpoint:
        """
        Return what all our Nodes publish.

        :param port: our listening port.
        :raises UsageError: see :meth:`own_addresses`.
        """
        preferred = self._types("kubelet-preferred-address-types")
        if not preferred:
            raise UsageError("--kubelet-preferred-address-types is empty")
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
    """:raises UsageError: no root could dial the address."""
    if not family_of(address):
        if kind in (INTERNAL_IP, EXTERNAL_IP) or not _NAME.fullmatch(address):
            what = "IP address" if kind in (INTERNAL_IP, EXTERNAL_IP) else "host name or IP address"
            raise UsageError(f"--node-address: {address!r} is no {what}")
    elif ipaddress.ip_address(address).is_unspecified:
        raise UsageError(f"--node-address: {address} is no address that could be dialled")
