"""
The status of a Space, from its plan (which words Synced and PhysicalSpaceReady) and from probes.

The condition PhysicalSpaceReady is True only after a probe. A Ready Space usually stays Ready while
probes are impossible: a server that is unreachable from here may be reachable for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twisted_exec.api import spaces
from twisted_exec.api.conditions import ConditionValue, with_conditions
from twisted_exec.api.spaces import (
    CREDENTIALS_VALID,
    PHYSICAL_SPACE_READY,
    PROVIDER_REACHABLE,
    SYNCED,
)
from twisted_exec.api.times import timestamp
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.interfaces import BUILDING, Physical, SpaceInfo
from twisted_exec.spacemanager.spaces import secrets
from twisted_exec.spacemanager.spaces.naming import PHYSICAL_SPACE, viewpoints_of, was_found
from twisted_exec.spacemanager.spaces.observation import (
    ProbeResult,
    Rotate,
    SpaceObservation,
    Tell,
    WriteSecret,
)
from twisted_exec.spacemanager.spaces.plan import SpacePlan, asked_to_rotate, no_provider

_MAKING = ("Creating", "CreateFailed")
_NOT_PROBED: ConditionValue = ("Unknown", "NotProbed", "not probed yet")
_NONE: ConditionValue = ("Unknown", "NoCredentials", "there are no credentials yet")

_QUIET = ("Creating", "Building", "Deleting", "Going")
"""Reasons that only confirm the user's own request."""


def status_of(observation: SpaceObservation, planned: SpacePlan) -> Object:
    """Return the desired status of a provider's Space."""
    current: Object = observation.space.get("status") or {}
    status = dict(current)
    conditions = {
        PROVIDER_REACHABLE: _reachable(observation),
        CREDENTIALS_VALID: _valid(observation, planned, current),
        PHYSICAL_SPACE_READY: planned.physical or kept_condition(current, PHYSICAL_SPACE_READY),
        SYNCED: planned.synced,
    }
    status |= _references(observation)
    _put(status, PHYSICAL_SPACE, _physical(observation, planned))
    _put(status, "physicalUID", _physical_uid(current, planned))
    _put(status, "credentialsExpireTime", _expires(observation, current))
    if value := processed_rotation(observation):
        status["rotated"] = value
    making = planned.physical_space is not None and planned.physical_space.state == BUILDING
    return finished(observation.space, status, conditions, observation.now, making)


def finished(
    space: Object,
    status: Object,
    conditions: Mapping[str, ConditionValue],
    now: float,
    is_making: bool = False,
) -> Object:
    """Complete a status with conditions, phase and observedGeneration."""
    generation = space["metadata"].get("generation")
    previous = (space.get("status") or {}).get("conditions") or []
    status["conditions"] = with_conditions(previous, conditions, timestamp(now), generation)
    status["Phase"] = phase(str(status.get("Phase") or ""), conditions, is_making)
    if generation is not None:
        status["observedGeneration"] = generation
    return {key: value for key, value in status.items() if value not in (None, [], {}, "")}


def phase(before: str, conditions: Mapping[str, ConditionValue], is_making: bool = False) -> str:
    """Return ``status.Phase``."""
    physical, valid = conditions[PHYSICAL_SPACE_READY], conditions[CREDENTIALS_VALID]
    states = {physical[0], valid[0]}
    if states == {"True"}:
        return spaces.READY
    if before == spaces.READY:
        return spaces.NOT_READY if "False" in states else spaces.READY
    begins = before in ("", spaces.INITIALIZING)
    if begins and ("False" not in states or is_making or physical[1] in _MAKING):
        return spaces.INITIALIZING
    return spaces.NOT_READY


def intended(space: Object, physical: Physical | None, now: float) -> Object:
    """Return the status that records the physical space to be created."""
    status = dict(space.get("status") or {})
    status.pop("physicalUID", None)
    status.pop(PHYSICAL_SPACE, None)
    if physical is None:
        return status
    status[PHYSICAL_SPACE] = _named(physical, is_found=False)
    conditions = {PHYSICAL_SPACE_READY: ("False", "Creating", f"{physical} is being made")}
    before = status.get("Phase")
    status["Phase"] = spaces.INITIALIZING if not before else spaces.NOT_READY
    if before == spaces.INITIALIZING:
        status["Phase"] = before
    generation = space["metadata"].get("generation")
    previous = status.get("conditions") or []
    status["conditions"] = with_conditions(previous, conditions, timestamp(now), generation)
    return status


def events(before: Object, after: Object) -> list[Tell]:
    """Return the Events for a changed status."""
    tells = []
    if after.get("Phase") == spaces.READY and before.get("Phase") != spaces.READY:
        tells.append(
            Tell("Normal", "Ready", "the physical space answers, and takes the credentials")
        )
    previous = {condition.get("type"): condition for condition in before.get("conditions") or ()}
    for condition in after.get("conditions") or ():
        was = previous.get(condition["type"], {})
        is_lost = condition["type"] == PHYSICAL_SPACE_READY and condition["reason"] == "Unreachable"
        is_bad = condition["status"] == "False" or is_lost
        if is_bad and condition["reason"] not in (was.get("reason"), *_QUIET):
            tells.append(
                Tell("Warning", condition["reason"], condition["message"] or condition["type"])
            )
    return list(dict.fromkeys(tells))


def processed_rotation(observation: SpaceObservation) -> str:
    """Return the rotation request that has just been processed, or empty."""
    value = asked_to_rotate(observation.space)
    if not value or not (Rotate in observation.done or _cannot_rotate(observation)):
        return ""
    return value


def cannot_rotate(observation: SpaceObservation) -> Tell | None:
    """Return the Event for a rotation request that the provider does not support."""
    if not asked_to_rotate(observation.space) or not _cannot_rotate(observation):
        return None
    name = observation.provider.name
    message = f'provider "{name}" cannot make new credentials; have that done there'
    return Tell("Warning", "CannotRotate", message)


def _cannot_rotate(observation: SpaceObservation) -> bool:
    return observation.answer is not None and not observation.provider.rotates


def _reachable(observation: SpaceObservation) -> ConditionValue:
    provider = observation.provider
    if not provider.is_there:
        return no_provider(provider.name)
    return (provider.reachable.status, provider.reachable.reason, provider.reachable.message)


def _valid(observation: SpaceObservation, planned: SpacePlan, current: Object) -> ConditionValue:
    if (
        observation.has_failed(WriteSecret)
        and observation.refused is not None
        and observation.refused.error.code == 422
    ):
        return ("False", "Unusable", observation.refused.error.message)
    if not _mine(observation):
        why = planned.physical
        # The remedy is more useful here than the consequence.
        return (*_NONE[:2], why[2]) if why is not None and why[1] == "Vanished" else _NONE
    if observation.probed is None:
        return kept_condition(current, CREDENTIALS_VALID)
    return explained(
        observation.probed, _expires(observation, current), observation.now, _remedy(observation)
    )


def _remedy(observation: SpaceObservation) -> str:
    if observation.provider.rotates:
        return "the manager is requesting new credentials"
    if isinstance(observation.answer, SpaceInfo):
        return "the provider still returns the same credentials: renew them there"
    return "the manager requests them again when it can reach the provider"


def explained(probed: ProbeResult, expires: str, now: float, remedy: str) -> ConditionValue:
    """Return CredentialsValid with the expiry and the remedy."""
    status, reason, message = probed.valid
    if status != "False" or reason == "Unusable":
        return probed.valid
    if expires and expires <= timestamp(now):
        reason, message = "Expired", f"the credentials were good until {expires}"
    return (status, reason, f"{message}; {remedy}")


def kept_condition(current: Object, type: str) -> ConditionValue:
    """Return the old value of a condition, because there was no new probe."""
    for condition in current.get("conditions") or ():
        if condition.get("type") == type:
            return (
                condition.get("status", ""),
                condition.get("reason", ""),
                condition.get("message", ""),
            )
    return _NOT_PROBED


def _mine(observation: SpaceObservation) -> dict[str, Object]:
    name = observation.space["metadata"]["name"]
    return {
        viewpoint: secret
        for viewpoint, secret in observation.secrets.items()
        if secret is not None
        and viewpoint in viewpoints_of(observation.space)
        and secrets.claim(secret, name, observation.uid) == secrets.MINE
    }


def _references(observation: SpaceObservation) -> Object:
    mine = _mine(observation)
    references: Object = {}
    for viewpoint, key in spaces.REFERENCES.items():
        references[key] = reference(mine[viewpoint]) if viewpoint in mine else None
    ends = (secrets.endpoint_in(mine[each]) for each in spaces.VIEWPOINTS if each in mine)
    references[spaces.ENDPOINTS] = [each for each in ends if each is not None]
    return references


def reference(secret: Mapping[str, Any]) -> Object:
    """Return a SecretReference."""
    metadata = secret["metadata"]
    return {"name": metadata["name"], "namespace": metadata["namespace"]}


def _physical(observation: SpaceObservation, planned: SpacePlan) -> Object | None:
    if planned.intended is None:
        return None
    is_found = planned.physical_space is not None or was_found(observation.space)
    return _named(planned.intended, is_found)


def _named(physical: Physical, is_found: bool) -> Object:
    record: Object = {"name": physical.name}
    if physical.parent:
        record["parent"] = physical.parent
    if is_found:
        record["found"] = True
    return record


def _physical_uid(current: Object, planned: SpacePlan) -> str:
    if planned.intended is None:
        return ""
    if planned.physical_space is None:
        return str(current.get("physicalUID") or "")
    return planned.physical_space.uid


def _expires(observation: SpaceObservation, current: Object) -> str:
    if not isinstance(observation.answer, SpaceInfo):
        return str(current.get("credentialsExpireTime") or "") if _mine(observation) else ""
    viewpoints: Sequence[str] = viewpoints_of(observation.space)
    ends = [
        a.expires
        for v, a in observation.answer.access.items()
        if v in viewpoints and a.expires is not None
    ]
    return timestamp(min(ends)) if ends else ""


def _put(status: Object, key: str, value: Any) -> None:
    if value:
        status[key] = value
    else:
        status.pop(key, None)
