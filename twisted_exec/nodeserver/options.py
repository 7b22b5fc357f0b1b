"""
The command line of ``exec-nodeserver``: options beside those of :mod:`.settings`, and checks of all of them.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from twisted.python.usage import UsageError

from twisted_exec.api import names
from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.api.kinds.spaces import provider_name
from twisted_exec.api.names import dns_label
from twisted_exec.api.selectors import parse_labels
from twisted_exec.api.spaces import VIEWPOINTS
from twisted_exec.api.status import APIError
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.nodeserver.leaves.settings import RegistrySettings, SpaceChoice
from twisted_exec.nodeserver.nodes.addresses import (
    EXTERNAL_IP,
    INTERNAL_DNS,
    INTERNAL_IP,
    Address,
    family_of,
    parse_types,
)
from twisted_exec.nodeserver.nodes.conditions import LEAF, READY_POLICIES
from twisted_exec.nodeserver.nodes.plan import FULL, NODE_SOURCES, NONE
from twisted_exec.nodeserver.nodes.worker import PublishedEndpoint
from twisted_exec.nodeserver.ownership import POLICIES
from twisted_exec.nodeserver.recordings.options import RecordingOptions
from twisted_exec.nodeserver.settings import USERS_SHARE, Settings
from twisted_exec.program.options.audit import AuditOptions
from twisted_exec.program.options.command_line import ProgramOptions
from twisted_exec.program.options.declaration import ProgramOption, settings_of
from twisted_exec.program.options.sessions import SessionOptions

ENVIRONMENT = {
    "tls-cert-file": "APISERVER_CERT_LOCATION",
    "tls-private-key-file": "APISERVER_KEY_LOCATION",
}
"""Environment variables for options that were not given; Kosmos sets them for its certificate."""

NAMESPACE, LEASE = "kube-system", PROGRAM

WEBSOCKETS = "ExtendWebSocketsToKubelet"
"""Feature that a Node declares if its server accepts a client's WebSocket unchanged (Kubernetes 1.36)."""

ADDRESS, TYPE = "LEAF_NODE_IP", "PREFERRED-ADDRESS-TYPE"
"""Environment variables for options that were not given; Kosmos sets them."""

_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?", re.ASCII)


class SyncOptions(ProgramOptions):
    """Options of the syncer."""

    group = "Nodes"

    more: Sequence[ProgramOption] = (
        ProgramOption(
            "sync-pods",
            "Create the root's Pods in their leaves (Kosmos has its own).",
            default=False,
        ),
    )

    def postOptions(self) -> None:
        super().postOptions()
        if self["sync-pods"] and self.get("kosmos"):
            raise UsageError(
                "--sync-pods and --kosmos exclude each other: Kosmos creates the Pods of its leaves"
                " itself"
            )


class ServerOptions(SessionOptions, AuditOptions):
    """Options of the server itself."""

    environ: Mapping[str, str] = os.environ
    users_share = USERS_SHARE
    settings_class: ClassVar[type | None] = Settings
    more: Sequence[ProgramOption] = (
        ProgramOption(
            "kubeconfig",
            "Kubeconfig for the root; default: $KUBECONFIG, or the Pod's service account.",
            group="Root",
        ),
        ProgramOption(
            "context",
            "Context of the kubeconfig; default: the current context.",
            group="Root",
        ),
    )
    group = "Serving"

    def postOptions(self) -> None:
        """:raises UsageError: an option is missing or not valid, or options contradict each other."""
        variables = [name for name in ENVIRONMENT if self[name]]
        if self["cert-dir"] and variables:
            raise UsageError(f"--cert-dir and --{variables[0]} exclude each other")
        if not self["cert-dir"]:
            self._look_around(variables)
        self.check_required()
        super().postOptions()

    def _look_around(self, variables: list[str]) -> None:
        for name, variable in ENVIRONMENT.items():
            if not variables:
                self[name] = self.environ.get(variable, "")
        missing = [name for name in ENVIRONMENT if not self[name]]
        if 0 < len(missing) < len(ENVIRONMENT):
            other = "" if variables else f" (or {ENVIRONMENT[missing[0]]})"
            raise UsageError(f"--{missing[0]}{other} is missing: certificate and key go together")

    def server(self, **more: Any) -> Settings:
        """Return the service's configuration from the command line."""
        return settings_of(Settings, self, sessions=self.session_limits(), **more)


class LeafOptions(ProgramOptions):
    """Options that define the leaves."""

    settings_class: ClassVar[type | None] = RegistrySettings
    group = "Leaves"

    def postOptions(self) -> None:
        """:raises UsageError: an option is missing or not valid."""
        self.check_required()
        if not self["root-name"]:
            raise UsageError("--root-name must not be empty")
        for problem in names.label_value(self["root-name"]):
            raise UsageError(f"--root-name {self['root-name']!r}: {problem}")
        self._chosen_spaces()
        super().postOptions()

    def _chosen_spaces(self) -> SpaceChoice | None:
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
        chosen = () if providers == ["*"] else tuple(providers)
        return settings_of(SpaceChoice, self, providers=chosen, selector=selector)

    def registry(self) -> RegistrySettings:
        """Return the registry's configuration from the command line."""
        return settings_of(RegistrySettings, self, spaces=self._chosen_spaces())


def keeper_of(namespace: str = NAMESPACE, lease: str = LEASE) -> str:
    """Return the name of a set of replicas: namespace and name of their Lease."""
    return f"{namespace}/{lease}"


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= 65535):
        raise ValueError(f"{text!r} is not a port from 1 to 65535")
    return int(text)


class NodeOptions(ProgramOptions):
    """Options of Nodes."""

    environ: Mapping[str, str] = os.environ
    group = "Nodes"
    more: Sequence[ProgramOption] = (
        ProgramOption(
            "upkeep",
            f"How much of the Nodes to maintain: {', '.join(NODE_SOURCES)}.",
            default=FULL,
        ),
        ProgramOption(
            "node-address",
            f"Addresses to publish, separated by commas; default: ${ADDRESS}.",
            default="",
        ),
        ProgramOption(
            "preferred-address-type",
            f"Type of the addresses of --node-address; default: ${TYPE}, or {INTERNAL_DNS}.",
            default="",
        ),
        ProgramOption("node-port", "Port to publish; 0 for that of --listen.", _port, default=0),
        ProgramOption(
            "kubelet-preferred-address-types",
            "Value of this option of the root's API server.",
            default=",".join(ADDRESS_TYPES),
        ),
        ProgramOption(
            "leaf-address-types",
            "Types of the leaf's own addresses to publish as well.",
            default=",".join(ADDRESS_TYPES),
        ),
        ProgramOption(
            "node-ready-when",
            f"Condition for Ready: {', '.join(READY_POLICIES)}.",
            default=LEAF,
        ),
        ProgramOption(
            "namespace",
            "Namespace of the Lease for leader election.",
            default=NAMESPACE,
            group="Leader election",
        ),
        ProgramOption(
            "lease",
            "Name of the Lease; one for each set of replicas on a root.",
            default=LEASE,
            group="Leader election",
        ),
        ProgramOption(
            "declare-websockets",
            f"Declare {WEBSOCKETS}; needs Kubernetes 1.36 in the root.",
            default=False,
        ),
    )

    def postOptions(self) -> None:
        """:raises UsageError: an option is missing or not valid, or options contradict each other."""
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
        return keeper_of(self["namespace"], self["lease"])

    def own_addresses(self) -> list[Address]:
        """
        Return the addresses to publish, which the serving certificate must contain.

        :raises UsageError: they are missing or not valid.
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

        :raises UsageError: the addresses or their types are not valid.
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
    if not family_of(address):
        if kind in (INTERNAL_IP, EXTERNAL_IP) or not _NAME.fullmatch(address):
            what = "IP address" if kind in (INTERNAL_IP, EXTERNAL_IP) else "host name or IP address"
            raise UsageError(f"--node-address: {address!r} is no {what}")
    elif ipaddress.ip_address(address).is_unspecified:
        raise UsageError(f"--node-address: {address} is no address that could be dialled")


class Options(ServerOptions, LeafOptions, NodeOptions, SyncOptions, RecordingOptions):
    """Command line of the node server."""

    program = PROGRAM
    synopsis = "--client-ca-file=FILE --leaves=FILE [options]"
    longdesc = "Answers a cluster's API server as a kubelet does, for Pods of other clusters."
