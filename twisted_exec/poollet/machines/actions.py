"""
What a plan may ask for.
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
    """Replace the Machine's finalizers, if it is still of ``resource_version``."""

    finalizers: tuple[str, ...]
    resource_version: str


@dataclass(frozen=True)
class PatchStatus:
    """Merge into the Machine's status."""

    status: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True)
class Create:
    """Make the runtime's machine."""

    machine: pb.Machine = field(hash=False)


@dataclass(frozen=True)
class Delete:
    """End one of the runtime's machines."""

    machine_id: str


@dataclass(frozen=True)
class SetPower:
    """Power one of the runtime's machines on or off."""

    machine_id: str
    power: int


@dataclass(frozen=True)
class SetAnnotations:
    """Replace the annotations of one of the runtime's machines."""

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
    :param actions: to be done in order; then plan again.
    :param problem: what keeps the Machine from being as wanted, for the log; or empty.
    :param unsettled: the runtime is about to change something: look again soon.
    :param reason: of the problem, in one word, when nobody but the plan has noticed it.
    :param reads: Secrets that the plan depends on: read them, then plan again.
    :param waits: for somebody else: look again when something changes, and now and then.
    """

    actions: tuple[Action, ...] = ()
    problem: str = ""
    unsettled: bool = False
    reason: str = ""
    reads: tuple[Key, ...] = ()
    waits: bool = False
