"""
What a Machine refers to, as the planning sees it: objects that were read before.

Pure: a lookup reads no network.  What is lacking is told with what would help.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.resource import Resource
from twisted_exec.poollet.machines import downward
from twisted_exec.poollet.machines.downward import Downward

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""

VOLUME_NOT_READY = "VolumeNotReady"
INTERFACE_NOT_READY = "NetworkInterfaceNotReady"
IGNITION_NOT_READY = "IgnitionNotReady"
UNSUPPORTED = "Unsupported"


class MissingReference(Exception):
    """
    A part cannot be given to the runtime now.

    :param reason: one word, as ironcore has it where it has one.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class Unread(Exception):
    """Objects cannot be looked up."""

    def __init__(self, problem: str, *, soon: bool = False) -> None:
        super().__init__(problem)
        self.problem, self.soon = problem, soon


def _nothing(resource: Resource, namespace: str, name: str) -> Object | None:
    raise Unread(f"{resource.qualified} are not read here")


@dataclass(frozen=True)
class References:
    """What a Machine refers to, as last seen."""

    find: Callable[[Resource, str, str], Object | None] = _nothing
    """An object by resource, namespace and name; ``None`` when there is none.  Raises Unread."""
    secrets: Mapping[Key, Object | str] = field(default_factory=dict)
    """The Secrets that were read for this plan; for one that could not be, why."""
    class_of: Callable[[str], tuple[str, str]] = lambda name: (name, "")
    """The runtime's class for a MachineClass, and why there is none; see :func:`.offers.choice`.
    Raises Unread."""


@dataclass(frozen=True)
class PatchObject:
    """Merge into an object that the Machine refers to."""

    resource: Resource
    namespace: str
    name: str
    patch: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True)
class Domain:
    """The resources that Machines of a dialect refer to, and what their runtime is told of them."""

    dialect: Dialect
    volume: Downward = field(default_factory=Downward)
    interface: Downward = field(default_factory=Downward)
    network: Downward = field(default_factory=Downward)

    def resource(self, group: str, plural: str, kind: str) -> Resource:
        """
        One beside the dialect's own group: ``compute.ironcore.dev``, ``storage.ironcore.dev``.

        :raises Unread: the dialect has none.
        """
        if not self.dialect.domain:
            raise Unread(f"{self.dialect.name} has no {plural}")
        return Resource(f"{group}.{self.dialect.domain}", "v1alpha1", plural, kind)

    @property
    def volumes(self) -> Resource:
        return self.resource("storage", "volumes", "Volume")

    @property
    def interfaces(self) -> Resource:
        return self.resource("networking", "networkinterfaces", "NetworkInterface")

    @property
    def networks(self) -> Resource:
        return self.resource("networking", "networks", "Network")

    @property
    def prefixes(self) -> Resource:
        return self.resource("ipam", "prefixes", "Prefix")

    @property
    def ignition_type(self) -> str:
        """The type of Secrets that hold an ignition."""
        return f"{self.dialect.group}/ignition"

    def labels(self, obj: Object, noun: str, told: Downward) -> str:
        """What the runtime is told of an object, as the JSON text that ironcore's hold."""
        metadata, prefix = obj["metadata"], self.dialect.runtime_prefix
        labels = {
            f"{prefix}{noun}-uid": metadata["uid"],
            f"{prefix}{noun}-namespace": metadata.get("namespace", ""),
            f"{prefix}{noun}-name": metadata["name"],
            **downward.values(told.labels, obj, self.dialect.downward_prefix),
        }
        return json.dumps(labels, sort_keys=True, separators=(",", ":"))
