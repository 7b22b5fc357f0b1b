"""
The actions that a plan consists of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.machines.attachments import Attachment
from twisted_exec.poollet.machines.references import Key, PatchObject


@dataclass(frozen=True)
class SetFinalizers:
    """Replace the Machine's finalizers, unless it has changed since ``resource_version``."""

    finalizers: tuple[str, ...]
    resource_version: str


@dataclass(frozen=True)
class PatchStatus:
    """Merge ``status`` into the Machine's status."""

    status: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True)
class Create:
    """Create the machine in the runtime."""

    machine: pb.Machine = field(hash=False)


@dataclass(frozen=True)
class Delete:
    """Delete a machine from the runtime."""

    machine_id: str


@dataclass(frozen=True)
class SetPower:
    """Power a machine of the runtime on or off."""

    machine_id: str
    power: int


@dataclass(frozen=True)
class SetAnnotations:
    """Replace the annotations of a machine of the runtime."""

    machine_id: str
    annotations: Mapping[str, str] = field(hash=False)


Action = (
    SetFinalizers
    | PatchStatus
    | PatchObject
    | Create
    | Delete
    | SetPower
    | SetAnnotations
    | Attachment
)


@dataclass(frozen=True)
class Plan:
    """
    The next actions for one Machine, and what the loop has to wait for.

    :param actions: carried out in order; then the loop plans again.
    :param problem: why the Machine cannot reach its desired state, for the log; or empty.
    :param unsettled: the runtime is still changing something, so look again soon.
    :param reason: CamelCase reason of ``problem``, if no action reports it; or empty.
    :param reads: Secrets that the plan depends on: read them, then plan again.
    :param waits: the problem ends only when another object changes; retry rarely.
    """

    actions: tuple[Action, ...] = ()
    problem: str = ""
    unsettled: bool = False
    reason: str = ""
    reads: tuple[Key, ...] = ()
    waits: bool = False
