"""
The credentials of a Space: when they are written, deleted and rotated.

Pure functions of an :class:`~.observation.Observation`, as the rest of the plan (:mod:`.plan`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted_exec.api import spaces
from twisted_exec.api.conditions import ConditionValue
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.interfaces import Access, SpaceInfo
from twisted_exec.spacemanager.spaces import secrets as space_secrets
from twisted_exec.spacemanager.spaces.naming import viewpoints_of
from twisted_exec.spacemanager.spaces.observation import SOON_SECONDS, Observation
from twisted_exec.spacemanager.spaces.steps import DeleteSecret, Rotate, Step, WriteSecret

EXPIRING = 0.2
"""Credentials are rotated when this part of their lifetime is left ..."""
EXPIRING_SECONDS = 60.0
"""... or this many seconds, whatever their lifetime."""


def secret_steps(observation: Observation, info: SpaceInfo) -> list[Step]:
    """Return the steps to the Secrets for the Space's viewpoints; none after a refused step."""
    if observation.refused is not None:
        return []
    steps: list[Step] = []
    for viewpoint in spaces.VIEWPOINTS:
        secret, access = observation.secrets.get(viewpoint), info.access.get(viewpoint)
        is_wanted = viewpoint in viewpoints_of(observation.space)
        owner = _owner(observation, secret)
        if owner == space_secrets.FOREIGN:
            continue
        if owner == space_secrets.ORPHAN or (owner is not None and not is_wanted):
            steps.append(DeleteSecret(viewpoint))
        elif is_wanted and access is not None and not _holds(secret, access, observation.space):
            steps.append(WriteSecret(viewpoint, access))
    return steps


def problem(observation: Observation, info: SpaceInfo) -> ConditionValue | None:
    """Return why the Space has not all credentials that it asks for, or ``None``."""
    taken = [
        viewpoint
        for viewpoint in viewpoints_of(observation.space)
        if _owner(observation, observation.secrets.get(viewpoint)) == space_secrets.FOREIGN
        and info.access.get(viewpoint) is not None
    ]
    return _taken(observation, taken[-1]) if taken else _missing(observation, info)


def _owner(observation: Observation, secret: Object | None) -> str | None:
    if secret is None:
        return None
    return space_secrets.claim(secret, observation.space["metadata"]["name"], observation.uid)


def _holds(secret: Object | None, access: Access, space: Object) -> bool:
    return secret is not None and space_secrets.is_current(secret, access, space)


def _taken(observation: Observation, viewpoint: str) -> ConditionValue:
    name = spaces.secret_name(observation.space["metadata"]["name"], viewpoint)
    message = (
        f"Secret {name} exists and was not created for this Space, so it is left alone: delete it,"
        " or give the Space another name"
    )
    return ("False", "SecretTaken", message)


def _missing(observation: Observation, info: SpaceInfo) -> ConditionValue | None:
    """Return the problem if the provider has no kubeconfig for the Space's viewpoints."""
    if not info.access or any(each in info.access for each in viewpoints_of(observation.space)):
        return None
    viewpoints, there = " and ".join(viewpoints_of(observation.space)), " and ".join(info.access)
    message = (
        f"the provider has no {viewpoints} kubeconfig, but {there}: change spec.accessscopetype"
    )
    return ("False", "NoSuchViewpoint", message)


def asked_to_rotate(space: Mapping[str, Any]) -> str:
    """Return the unprocessed value of the rotation annotation, or empty."""
    value = (space["metadata"].get("annotations") or {}).get(spaces.ROTATE) or ""
    return "" if value == (space.get("status") or {}).get("rotated") else str(value)


def renews(observation: Observation, info: SpaceInfo) -> bool:
    """Return whether to rotate credentials: on request, or because they expire soon or were rejected."""
    if not observation.provider.rotates or not info.access:
        return False
    if Rotate in observation.done or observation.has_failed(Rotate):
        return False
    if asked_to_rotate(observation.space):
        return True
    if not observation.is_settled:
        return False
    return _is_refused(observation, info) or any(
        _ends_soon(observation, viewpoint, access) for viewpoint, access in info.access.items()
    )


def _is_refused(observation: Observation, info: SpaceInfo) -> bool:
    """Return whether the provider's current credentials were rejected."""
    if observation.probed is None or not observation.probed.is_refused:
        return False
    return not any(isinstance(step, WriteSecret) for step in secret_steps(observation, info))


def _ends_soon(observation: Observation, viewpoint: str, access: Access) -> bool:
    if access.expires is None:
        return False
    secret = observation.secrets.get(viewpoint)
    begun = space_secrets.since(secret) if secret is not None else None
    whole = access.expires - begun if begun is not None else 0.0
    return access.expires - observation.now < max(whole * EXPIRING, EXPIRING_SECONDS)


def renewal_seconds(observation: Observation, info: SpaceInfo) -> float | None:
    """Return the seconds until the next rotation; ``None`` for never."""
    times = []
    for viewpoint, access in info.access.items():
        if access.expires is not None:
            secret = observation.secrets.get(viewpoint)
            begun = space_secrets.since(secret) if secret is not None else None
            whole = access.expires - (begun if begun is not None else observation.now)
            left = access.expires - observation.now - max(whole * EXPIRING, EXPIRING_SECONDS)
            times.append(max(left, SOON_SECONDS))
    return min(times, default=None)


def deletions(observation: Observation) -> list[Step]:
    """Return the steps that delete our Secrets, because they are useless now."""
    return [
        DeleteSecret(viewpoint)
        for viewpoint, secret in observation.secrets.items()
        if secret is not None
        and _owner(observation, secret) != space_secrets.FOREIGN
        and not observation.has_failed(DeleteSecret)
    ]
