"""Configuration that all Machines of a poollet share."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.resource import Resource
from twisted_exec.iri.protos import machine_pb2 as pb

_ENTRY = re.compile(r"metadata\.(labels|annotations)\['([^']{1,316})'\]")
_PLAIN = ("name", "namespace", "uid")
_WHOLE = ("labels", "annotations")


@dataclass(frozen=True)
class Downward:
    """
    Downward API: paths of fields that the runtime gets, by label or annotation name.

    Source: ironcore ``poollet/common/utils`` and ``k8s.io/kubectl/pkg/util/fieldpath`` (the field
    paths).

    :param labels: set once, when the runtime's machine is created.
    :param annotations: kept up to date while the machine exists.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


def check(path: str) -> str:
    """
    Return ``path`` if it is a supported field path.

    :raises ValueError: it is not supported.
    """
    supported = [f"metadata.{name}" for name in (*_PLAIN, *_WHOLE)]
    if path not in supported and not _ENTRY.fullmatch(path):
        raise ValueError(f"{path!r} is none of {', '.join(supported)}, metadata.labels['KEY']")
    return path


def values(paths: Mapping[str, str], obj: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """
    Return the values of ``obj`` at these paths; a missing field becomes an empty string.

    :param paths: by name; each passed :func:`check`.
    """
    return {prefix + name: _value(obj["metadata"], path) for name, path in paths.items()}


def _value(metadata: Mapping[str, Any], path: str) -> str:
    entry = _ENTRY.fullmatch(path)
    if entry is not None:
        return str((metadata.get(entry[1]) or {}).get(entry[2], ""))
    field_value = metadata.get(path.removeprefix("metadata."))
    if isinstance(field_value, Mapping):
        return "\n".join(f'{key}="{value}"' for key, value in sorted(field_value.items()))
    return str(field_value or "")


@dataclass(frozen=True)
class MachineConfig:
    """Configuration that all Machines of a poollet share."""

    dialect: Dialect
    pool: str
    runtime_name: str
    """The TYPE of a ``machineID`` ``TYPE://ID``."""
    downward: Downward = field(default_factory=Downward)
    """Fields of Machines that the runtime gets as labels and annotations, besides names and UID."""
    about: ReferencedKinds | None = None
    """Resources that Machines refer to, with their downward API labels; ``None``: no such labels."""

    @property
    def domain(self) -> ReferencedKinds:
        return self.about or ReferencedKinds(self.dialect)

    @property
    def mapping_annotation(self) -> str:
        """Annotation of the runtime's machine with the mapping of attached NetworkInterfaces (JSON)."""
        return f"{self.dialect.runtime_prefix}networkinterfacemapping"

    @property
    def pool_label(self) -> str:
        """
        Label of the runtime's machine that holds the name of the pool.

        It tells orphans of this pool from the machines of another pool when two poollets share a
        runtime.
        """
        return f"{self.dialect.runtime_prefix}{self.dialect.noun}-pool"


def machine_uid(machine: pb.Machine, dialect: Dialect) -> str:
    """Return the UID of the Machine behind a runtime's machine, or an empty string."""
    return str(machine.metadata.labels.get(dialect.uid_label, ""))


def wants_power(machine: Object) -> bool:
    """Return whether ``spec.power`` of the Machine is not ``Off``."""
    return bool(machine.get("spec", {}).get("power", "On") != "Off")


Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""

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
class PatchObject:
    """Merge ``patch`` into an object that the Machine refers to."""

    resource: Resource
    namespace: str
    name: str
    patch: Mapping[str, Any] = field(hash=False)


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
