"""The objects that Machines refer to: their kinds, and how a plan finds them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.resource import Resource
from twisted_exec.poollet.machines.downward import Downward, values

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""

CLASS_NOT_READY = "MachineClassNotReady"
VOLUME_NOT_READY = "VolumeNotReady"
INTERFACE_NOT_READY = "NetworkInterfaceNotReady"
IGNITION_NOT_READY = "IgnitionNotReady"
UNSUPPORTED = "Unsupported"


class MissingReference(Exception):
    """
    A part of the machine cannot be passed to the runtime yet.

    :param reason: CamelCase, as in ironcore if possible.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class Unread(Exception):
    """
    The object cannot be looked up now, and may exist.

    :param soon: a read is under way and will answer shortly.
    """

    def __init__(self, problem: str, *, soon: bool = False) -> None:
        super().__init__(problem)
        self.problem, self.soon = problem, soon


def _nothing(resource: Resource, namespace: str, name: str) -> Object | None:
    raise Unread(f"{resource.qualified} are not read here")


@dataclass(frozen=True)
class References:
    """The objects that a Machine refers to, as last read."""

    find: Callable[[Resource, str, str], Object | None] = _nothing
    """Look up an object by resource, namespace and name; ``None`` if it does not exist.  Raises Unread."""
    secrets: Mapping[Key, Object | str] = field(default_factory=dict)
    """Secrets that were read for this plan; in place of an unreadable Secret, the error message."""
    class_of: Callable[[str], tuple[str, str]] = lambda name: (name, "")
    """
    Return the runtime's class for a MachineClass and, if there is none, the reason; see
    :func:`~twisted_exec.poollet.class_matching.choice`. Raises Unread.
    """


@dataclass(frozen=True)
class ReferencedKinds:
    """The resources that Machines of a dialect refer to."""

    dialect: Dialect
    volume: Downward = field(default_factory=Downward)
    interface: Downward = field(default_factory=Downward)
    network: Downward = field(default_factory=Downward)

    def resource(self, group: str, plural: str, kind: str) -> Resource:
        """
        Return a resource of a neighbouring API group, such as ``storage.ironcore.dev``.

        :raises Unread: the dialect has no such resources.
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
        return f"{self.dialect.group}/ignition"

    def labels(self, obj: Object, noun: str, fields: Downward) -> str:
        """Return identity and downward API labels of ``obj`` as JSON."""
        metadata, prefix = obj["metadata"], self.dialect.runtime_prefix
        labels = {
            f"{prefix}{noun}-uid": metadata["uid"],
            f"{prefix}{noun}-namespace": metadata.get("namespace", ""),
            f"{prefix}{noun}-name": metadata["name"],
            **values(fields.labels, obj, self.dialect.downward_prefix),
        }
        return json.dumps(labels, sort_keys=True, separators=(",", ":"))
