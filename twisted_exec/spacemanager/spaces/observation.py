"""
The observations from which a Space is planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from twisted_exec.api import spaces
from twisted_exec.api.status import APIError
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.interfaces import ProviderCondition, SpaceInfo
from twisted_exec.spacemanager.probes.verdicts import ProbeResult
from twisted_exec.spacemanager.spaces.naming import type_of
from twisted_exec.spacemanager.spaces.steps import Step

SOON_SECONDS = 2.0
"""Polling interval for a creation or deletion under way."""
GONE_SECONDS = 5.0
"""Polling interval for a missing physical space."""


@dataclass(frozen=True)
class Provider:
    """
    The current state of a Space's provider.

    :param is_there: the SpaceProviderDesc exists.
    :param is_usable: the provider exists, and answered its last request.
    :param passes: discovery selects the physical space.
    :param is_gone: the physical space certainly does not exist.
    :param rotates: the provider can rotate credentials.
    :param refusal: the provider's reason why this physical space is impossible, or empty.
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
class Refused:
    """A step that failed."""

    step: Step
    error: APIError


@dataclass(frozen=True)
class Observation:
    """
    All observations of a Space.

    :param secrets: existing Secrets with our names, by viewpoint.
    :param done: types of the steps that were carried out in this run.
    :param is_settled: there was no recent automatic rotation.
    :param rival: an older Space for the same physical space, or empty.
    :param now: seconds since the epoch.
    """

    space: Object
    provider: Provider
    answer: Answer = None
    secrets: Mapping[str, Object | None] = field(default_factory=dict)
    probed: ProbeResult | None = None
    refused: Refused | None = None
    done: frozenset[type] = frozenset()
    is_settled: bool = True
    rival: str = ""
    now: float = 0.0

    @property
    def uid(self) -> str:
        """UID of the Space, which is also the owner of its physical space."""
        return str(self.space["metadata"]["uid"])

    @property
    def is_going(self) -> bool:
        """True if the object is being deleted."""
        return bool(self.space["metadata"].get("deletionTimestamp"))

    @property
    def is_managed(self) -> bool:
        return type_of(self.space) == spaces.MANAGED

    def has_failed(self, kind: type) -> bool:
        """Return whether a step of this type has just failed."""
        return self.refused is not None and isinstance(self.refused.step, kind)
