"""
Values around the plan for one Space, without I/O.

Only a request that requires authentication shows whether credentials are accepted, so the probe
requests its own identity: in Kubernetes, ``/version`` and ``/readyz`` are usually open to everyone.
The server's messages are not passed on: the server has received the credentials, and might repeat
them.
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


ANONYMOUS = "system:anonymous"

VALID: ConditionValue = ("True", "Accepted", "")
ANSWERS: ConditionValue = ("True", "Answers", "")
_NEW_ONES = "new credentials are needed"
_REFUSED: ConditionValue = (
    "False",
    "Refused",
    f"the API server does not take the credentials: {_NEW_ONES}",
)
_NOBODY: ConditionValue = (
    "False",
    "Anonymous",
    f"the API server takes these credentials for an anonymous user: {_NEW_ONES}",
)
_NO_SERVER: ConditionValue = (
    "False",
    "NoAPIServer",
    "the server that answers is not an API server",
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


def who_verdict(code: int, body: bytes) -> ConditionValue | None:
    """
    Interpret the answer to a SelfSubjectReview.

    :return: value of CredentialsValid; ``None`` if the server lacks this review.
    """
    if code in (404, 405):
        return None
    if code in (200, 201):
        name = _name(body)
        return (_NOBODY if name == ANONYMOUS else VALID) if name else _NO_SERVER
    return may_verdict(code, body)


def may_verdict(code: int, body: bytes) -> ConditionValue:
    """Interpret the answer to a SelfSubjectAccessReview, for servers without SelfSubjectReview."""
    if code in (200, 201):
        return VALID
    if code == 401:
        return _REFUSED
    if code == 403:  # even without permissions, the user is authenticated
        return _NOBODY if ANONYMOUS.encode() in body else VALID
    if 300 <= code < 500 and code != 429:
        return _NO_SERVER
    return ("Unknown", "NotAnswered", f"the API server answers the identity review with {code}")


def ready_verdict(code: int) -> ConditionValue:
    """Interpret the answer of ``/readyz`` of an API server that accepts the credentials."""
    if code >= 500 or code == 429:
        return ("False", "NotReady", f"the API server answers {code} to /readyz")
    # Access may be forbidden, or the page may be missing, but the server answers.
    return ANSWERS


def version_of(code: int, body: bytes) -> str:
    """Return the version from ``/version``, or empty."""
    try:
        version: Any = json.loads(body)["gitVersion"] if code == 200 else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return version[:64] if isinstance(version, str) and version.isprintable() else ""


def _name(body: bytes) -> str:
    try:
        name = json.loads(body)["status"]["userInfo"]["username"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return name if isinstance(name, str) else ""
