"""
Command-line options of the node server: of the server itself, its leaves, the syncer and its Nodes.

The tap joins them.  The options of Nodes (:class:`NodeOptions`) say what Nodes publish, and which
replica keeps them.

All replicas serve streams and logs.  The leader keeps Nodes and copies Pods; it holds a Lease of
the root (:mod:`twisted_exec.kube.leases`).
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from typing import Any

from twisted.python.usage import UsageError

from twisted_exec.api import names
from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.api.kinds.spaces import provider_name
from twisted_exec.api.names import dns_label
from twisted_exec.api.selectors import parse_labels
from twisted_exec.api.spaces import EXTERNAL, VIEWPOINTS
from twisted_exec.api.status import APIError
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.nodeserver.leaves.registry import RegistrySettings
from twisted_exec.nodeserver.leaves.spaces import SpaceChoice
from twisted_exec.nodeserver.nodes.plan import FULL, NODE_SOURCES, NONE
from twisted_exec.nodeserver.nodes.status import (
    EXTERNAL_IP,
    INTERNAL_DNS,
    INTERNAL_IP,
    LEAF,
    READY_POLICIES,
    Address,
    family_of,
    parse_types,
)
from twisted_exec.nodeserver.nodes.worker import PublishedEndpoint
from twisted_exec.nodeserver.ownership import DEFAULT_ROOT, OWNED, POLICIES
from twisted_exec.nodeserver.service import USERS_SHARE, Settings
from twisted_exec.program.options import (
    AuditOptions,
    ProgramOptions,
    Required,
    SessionOptions,
    seconds,
)
from twisted_exec.streaming.sessions.guard import IDLE_SECONDS


class SyncOptions(ProgramOptions):
    """Options of the syncer."""

    group = "Nodes"

    optFlags = [["sync-pods", None, "Create the root's Pods in their leaves (Kosmos has its own)."]]

    def postOptions(self) -> None:
        """:raises UsageError: ``--kosmos`` is set as well."""
        super().postOptions()
        if self["sync-pods"] and self.get("kosmos"):
            raise UsageError(
                "--sync-pods and --kosmos exclude each other: Kosmos creates the Pods of its leaves"
                " itself"
            )


FILES = ("tls-cert-file", "tls-private-key-file", "cert-dir", "client-ca-file")
"""Options that name files and directories."""

ENVIRONMENT = {
    "tls-cert-file": "APISERVER_CERT_LOCATION",
    "tls-private-key-file": "APISERVER_KEY_LOCATION",
}
"""Environment variables for options that were not given; Kosmos sets them for its certificate."""

_CERTIFICATE = (
    "the serving certificate for the root; give it with --tls-private-key-file, or --cert-dir for "
    "one that the root signs"
)
_CLIENTS = Required(
    "the CA of the client certificate of the root's API server (its --kubelet-client-certificate)"
)


_WEEK_SECONDS = 604_800


def _idle_seconds(text: str) -> float:
    """:raises ValueError: the text is neither 0 nor a number from 1 to a week's seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if seconds and not 1 <= seconds <= _WEEK_SECONDS:
        raise ValueError(f"{text!r} is neither 0 nor a number of seconds from 1 to {_WEEK_SECONDS}")
    return seconds


class ServerOptions(SessionOptions, AuditOptions):
    """
    Options of the server itself.

    :cvar environ: the environment for :data:`ENVIRONMENT`.
    """

    environ: Mapping[str, str] = os.environ
    users_share = USERS_SHARE
    required = {
        "tls-cert-file": Required(_CERTIFICATE, unless=["cert-dir"]),
        "client-ca-file": _CLIENTS,
    }
    group = "Serving"
    groups = {"Root": ["kubeconfig", "context"]}

    optParameters = [
        [
            "kubeconfig",
            None,
            None,
            "Kubeconfig for the root; default: $KUBECONFIG, or the Pod's service account.",
        ],
        ["context", None, None, "Context of the kubeconfig; default: the current context."],
        [
            "listen",
            None,
            "tcp:10250",
            "Listening address: a Twisted endpoint string, to which TLS is added.",
        ],
        [
            "tls-cert-file",
            None,
            "",
            "Serving certificate (PEM); default: $APISERVER_CERT_LOCATION.",
        ],
        [
            "tls-private-key-file",
            None,
            "",
            "Private key of the serving certificate (PEM); default: $APISERVER_KEY_LOCATION.",
        ],
        [
            "cert-dir",
            None,
            "",
            "Directory for a serving certificate that the root signs; instead of --tls-cert-file.",
        ],
        [
            "client-ca-file",
            None,
            "",
            "CA of the client certificate of the root's API server (PEM).",
        ],
        [
            "client-allowed-names",
            None,
            "",
            "Accepted common names of clients, separated by commas; default: all.",
        ],
        [
            "health-listen",
            None,
            "tcp:10248:interface=127.0.0.1",
            "Endpoint for health probes, without TLS; empty for none.",
        ],
        [
            "shutdown-delay-seconds",
            None,
            0.0,
            "Seconds to serve as not ready when stopping, before sessions drain.",
            seconds,
        ],
        [
            "stream-idle-seconds",
            None,
            IDLE_SECONDS,
            "Seconds without data after which a stream ends; 0 for never.",
            _idle_seconds,
        ],
        ["drain-seconds", None, 5.0, "Seconds that sessions may take to end at shutdown.", seconds],
    ]
    optFlags = [
        ["declare-reason", None, "Refuse exec and attach without a declared reason."],
    ]

    def postOptions(self) -> None:
        """:raises UsageError: a required option is missing, or options contradict each other."""
        variables = [name for name in ENVIRONMENT if self[name]]
        if self["cert-dir"] and variables:
            raise UsageError(f"--cert-dir and --{variables[0]} exclude each other")
        if not self["cert-dir"]:
            self._look_around(variables)
        self.check_required()
        super().postOptions()

    def _look_around(self, variables: list[str]) -> None:
        """Take certificate and key from the environment, both or none."""
        for name, variable in ENVIRONMENT.items():
            if not variables:
                self[name] = self.environ.get(variable, "")
        missing = [name for name in ENVIRONMENT if not self[name]]
        if 0 < len(missing) < len(ENVIRONMENT):
            other = "" if variables else f" (or {ENVIRONMENT[missing[0]]})"
            raise UsageError(f"--{missing[0]}{other} is missing: certificate and key go together")

    def server(self, **more: Any) -> Settings:
        """
        Return the service's configuration from the command line.

        :param more: fields that other options determine.
        """
        names = (name.strip() for name in self["client-allowed-names"].split(","))
        return Settings(
            listen=self["listen"],
            certificate=self["tls-cert-file"],
            key=self["tls-private-key-file"],
            certificate_directory=self["cert-dir"],
            client_ca=self["client-ca-file"],
            client_names=frozenset(filter(None, names)),
            health_listen=self["health-listen"],
            shutdown_delay_seconds=self["shutdown-delay-seconds"],
            drain_seconds=self["drain-seconds"],
            stream_idle_seconds=self["stream-idle-seconds"],
            sessions=self.session_limits(),
            requires_reason=bool(self["declare-reason"]),
            **more,
        )


class LeafOptions(ProgramOptions):
    """Options that define the leaves."""

    required = {
        "leaves": Required(
            "the file with the leaf clusters; give it, or --kosmos, or --spaces, or several",
            unless=["kosmos", "spaces"],
        )
    }
    group = "Leaves"

    optParameters = [
        ["leaves", None, "", "YAML file with the leaf clusters."],
        ["root-name", None, DEFAULT_ROOT, "Name of this root in its leaves."],
        ["spaces", None, "", "Use the Spaces of these providers as leaves; * for all."],
        ["space-selector", None, "", "Use only Spaces with these labels: a label selector."],
        ["space-viewpoint", None, EXTERNAL, f"Kubeconfig of Spaces: {' or '.join(VIEWPOINTS)}."],
        ["space-pods", None, OWNED, f"Pod ownership in Spaces: {', '.join(POLICIES)}."],
    ]
    optFlags = [["kosmos", None, "Use the clusters of Kosmos's Cluster objects as leaves."]]

    def postOptions(self) -> None:
        """:raises UsageError: no source of leaves is given, or the root's name is invalid."""
        self.check_required()
        if not self["root-name"]:
            raise UsageError("--root-name must not be empty")
        for problem in names.label_value(self["root-name"]):
            raise UsageError(f"--root-name {self['root-name']!r}: {problem}")
        self._chosen_spaces()
        super().postOptions()

    def _chosen_spaces(self) -> SpaceChoice | None:
        """:raises UsageError: the options for Spaces are invalid."""
        for name, choices in (("space-viewpoint", VIEWPOINTS), ("space-pods", POLICIES)):
            if self[name] not in choices:
                raise UsageError(f"--{name} {self[name]!r} is none of {', '.join(choices)}")
        if not self["spaces"]:
            if self["space-selector"]:
                raise UsageError("--space-selector needs --spaces")
            return None
        providers = [each.strip() for each in self["spaces"].split(",")]
        for each in providers if providers != ["*"] else ():
            for problem in provider_name(each):
                raise UsageError(f"--spaces {each!r}: {problem}")
        try:
            selector = parse_labels(self["space-selector"])
        except APIError as problem:
            raise UsageError(f"--space-selector: {problem.message}") from None
        return SpaceChoice(
            () if providers == ["*"] else tuple(providers),
            selector,
            self["space-viewpoint"],
            self["space-pods"],
        )

    def registry(self) -> RegistrySettings:
        """Return the registry's configuration from the command line."""
        return RegistrySettings(
            self["leaves"], bool(self["kosmos"]), self["root-name"], self._chosen_spaces()
        )


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
        ["node-ready-when", None, LEAF, f"Condition for Ready: {', '.join(READY_POLICIES)}."],
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
        for name, choices in (("upkeep", NODE_SOURCES), ("node-ready-when", READY_POLICIES)):
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
