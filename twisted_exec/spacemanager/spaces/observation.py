"""
Observations and steps: what the plan for one Space reads, and what it returns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted_exec.api import spaces
from twisted_exec.api.conditions import ConditionValue
from twisted_exec.api.status import APIError
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.interfaces import Access, Physical, ProviderCondition, SpaceInfo
from twisted_exec.spacemanager.spaces.naming import type_of

SOON_SECONDS = 2.0
"""Shortest polling interval for a creation or deletion under way."""
GONE_SECONDS = 5.0
"""Shortest polling interval for a missing physical space."""


@dataclass(frozen=True)
class Provider:
    """
    The current state of a Space's provider.

    :param is_gone: the physical space certainly does not exist.
    :param refusal: why this physical space is impossible, or empty.
    """

    name: str
    is_there: bool = True
    is_usable: bool = True
    reachable: ProviderCondition = ProviderCondition("True", "Reached", "")
    passes: bool = True
    is_gone: bool = False
    rotates: bool = False
    refusal: str = ""


class Absent:
    """The provider answered that the physical space does not exist."""


ABSENT = Absent()
Answer = SpaceInfo | Absent | None
"""The provider's answer about the physical space; ``None`` without one."""


@dataclass(frozen=True)
class RefusedStep:
    """A step that failed."""

    step: Step
    error: APIError


@dataclass(frozen=True)
class SpaceObservation:
    """
    All observations of a Space.

    :param done: types of the steps that were carried out in this run.
    :param is_settled: there was no recent automatic rotation.
    :param now: seconds since the epoch.
    """

    space: Object
    provider: Provider
    answer: Answer = None
    secrets: Mapping[str, Object | None] = field(default_factory=dict)
    probed: ProbeResult | None = None
    refused: RefusedStep | None = None
    done: frozenset[type] = frozenset()
    is_settled: bool = True
    rival: str = ""
    now: float = 0.0

    @property
    def uid(self) -> str:
        return str(self.space["metadata"]["uid"])

    @property
    def is_going(self) -> bool:
        return bool(self.space["metadata"].get("deletionTimestamp"))

    @property
    def is_managed(self) -> bool:
        return type_of(self.space) == spaces.MANAGED

    def has_failed(self, kind: type) -> bool:
        return self.refused is not None and isinstance(self.refused.step, kind)


@dataclass(frozen=True)
class SetFinalizers:
    finalizers: Sequence[str]


@dataclass(frozen=True)
class Intend:
    """Record in ``status`` the physical space to be created."""

    physical: Physical | None


@dataclass(frozen=True)
class Create:
    """Create the physical space."""


@dataclass(frozen=True)
class Delete:
    """Delete the physical space."""


@dataclass(frozen=True)
class Rotate:
    """Rotate the credentials."""


@dataclass(frozen=True)
class WriteSecret:
    viewpoint: str
    access: Access


@dataclass(frozen=True)
class DeleteSecret:
    viewpoint: str


@dataclass(frozen=True)
class DeleteSpace:
    """Delete the Space object, which the manager created."""


@dataclass(frozen=True)
class LookAgain:
    """Refresh the copy of the provider's list."""


@dataclass(frozen=True)
class Tell:
    """Record an Event."""

    type: str
    reason: str
    message: str


Step = (
    SetFinalizers
    | Intend
    | Create
    | Delete
    | Rotate
    | WriteSecret
    | DeleteSecret
    | DeleteSpace
    | LookAgain
    | Tell
)


@dataclass(frozen=True)
class ProbeResult:
    """Result of a probe."""

    digest: str
    valid: ConditionValue
    ready: ConditionValue
    version: str = ""

    @property
    def is_refused(self) -> bool:
        """True if the credentials were definitely rejected, or the kubeconfig is unusable."""
        return self.valid[0] == "False"

    @property
    def lives(self) -> bool:
        return self.valid[0] == "True"

    @property
    def answers(self) -> bool:
        """True if any server answered, or the kubeconfig is unusable."""
        return self.valid[0] != "Unknown" or self.ready[0] != "Unknown"


def unreachable(digest: str, why: str) -> ProbeResult:
    """Return the result if no server was reached."""
    unknown = ("Unknown", "Unreachable", why)
    return ProbeResult(digest, unknown, unknown)


def unusable(digest: str, why: str) -> ProbeResult:
    """Return the result for an invalid kubeconfig."""
    return ProbeResult(digest, ("False", "Unusable", why), ("Unknown", "Unusable", why))


def version_of(code: int, body: bytes) -> str:
    """Return the version from ``/version``, or empty."""
    try:
        version: Any = json.loads(body)["gitVersion"] if code == 200 else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return version[:64] if isinstance(version, str) and version.isprintable() else ""
