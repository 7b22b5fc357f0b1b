"""
The status of a Space: made of what was planned, and told as Events where it has become worse or better.

Without I/O.  A condition is True only after a probe that would have failed without it, and Unknown where nobody
could look.  ``Phase`` follows them: what was Ready stays so while nobody could look, for who cannot be reached
from here may well be reached by others.
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
from twisted_exec.spacemanager.probes.verdicts import ProbeResult
from twisted_exec.spacemanager.spaces import secrets
from twisted_exec.spacemanager.spaces.naming import PHYSICAL_SPACE, viewpoints_of, was_found
from twisted_exec.spacemanager.spaces.plan import Observation, Plan, asked_to_rotate, no_provider
from twisted_exec.spacemanager.spaces.steps import Rotate, Tell, WriteSecret

_MAKING = ("Creating", "CreateFailed")
_NOT_PROBED: ConditionValue = ("Unknown", "NotProbed", "nobody has looked yet")
_NONE: ConditionValue = ("Unknown", "NoCredentials", "there are no credentials yet")


def status_of(seen: Observation, planned: Plan) -> Object:
    """The status of a Space that belongs to a provider, as it is to be."""
    known: Object = seen.space.get("status") or {}
    status = dict(known)
    told = {
        PROVIDER_REACHABLE: _reachable(seen),
        CREDENTIALS_VALID: _valid(seen, planned, known),
        PHYSICAL_SPACE_READY: planned.physical or kept_condition(known, PHYSICAL_SPACE_READY),
        SYNCED: planned.synced,
    }
    status |= _references(seen)
    _put(status, PHYSICAL_SPACE, _physical(seen, planned))
    _put(status, "physicalUID", _physical_uid(known, planned))
    _put(status, "credentialsExpireTime", _expires(seen, known))
    if value := answered(seen):
        status["rotated"] = value
    making = planned.found is not None and planned.found.state == BUILDING
    return finished(seen.space, status, told, seen.now, making)


def finished(
    space: Object,
    status: Object,
    told: Mapping[str, ConditionValue],
    now: float,
    is_making: bool = False,
) -> Object:
    """
    A status with its conditions, its phase and what it is about.

    :param is_making: what it stands for is not there yet and will be.
    """
    generation = space["metadata"].get("generation")
    known = (space.get("status") or {}).get("conditions") or []
    status["conditions"] = with_conditions(known, told, timestamp(now), generation)
    status["Phase"] = phase(str(status.get("Phase") or ""), told, is_making)
    if generation is not None:
        status["observedGeneration"] = generation
    return {key: value for key, value in status.items() if value not in (None, [], {}, "")}


def phase(before: str, told: Mapping[str, ConditionValue], is_making: bool = False) -> str:
    """``status.Phase``, by what it was and the conditions as they are to be."""
    physical, valid = told[PHYSICAL_SPACE_READY], told[CREDENTIALS_VALID]
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
    """The status that says what will be asked for, and no more than was known."""
    status = dict(space.get("status") or {})
    status.pop("physicalUID", None)
    status.pop(PHYSICAL_SPACE, None)
    if physical is None:
        return status
    status[PHYSICAL_SPACE] = _named(physical, found=False)
    told = {PHYSICAL_SPACE_READY: ("False", "Creating", f"{physical} is being made")}
    before = status.get("Phase")
    status["Phase"] = spaces.INITIALIZING if not before else spaces.NOT_READY
    if before == spaces.INITIALIZING:
        status["Phase"] = before
    generation = space["metadata"].get("generation")
    known = status.get("conditions") or []
    status["conditions"] = with_conditions(known, told, timestamp(now), generation)
    return status


def events(before: Object, after: Object) -> list[Tell]:
    """
    What is worth an Event: what has become Ready, each condition that has become bad, and that nobody can get to
    what the Space stands for.
    """
    told = []
    if after.get("Phase") == spaces.READY and before.get("Phase") != spaces.READY:
        told.append(
            Tell("Normal", "Ready", "the physical space answers, and takes the credentials")
        )
    known = {one.get("type"): one for one in before.get("conditions") or ()}
    for one in after.get("conditions") or ():
        was = known.get(one["type"], {})
        is_lost = one["type"] == PHYSICAL_SPACE_READY and one["reason"] == "Unreachable"
        is_bad = one["status"] == "False" or is_lost
        if is_bad and one["reason"] not in (was.get("reason"), *_QUIET):
            told.append(Tell("Warning", one["reason"], one["message"] or one["type"]))
    return list(dict.fromkeys(told))


_QUIET = ("Creating", "Building", "Deleting", "Going")
"""Reasons that are no news to whoever asked for just that."""


def answered(seen: Observation) -> str:
    """The value of the annotation that has been answered just now; or empty."""
    value = asked_to_rotate(seen.space)
    if not value or not (Rotate in seen.done or _cannot_rotate(seen)):
        return ""
    return value


def cannot_rotate(seen: Observation) -> Tell | None:
    """What is told to who asked for what their provider has not got."""
    if not asked_to_rotate(seen.space) or not _cannot_rotate(seen):
        return None
    name = seen.provider.name
    told = f'provider "{name}" cannot make new credentials; have that done there'
    return Tell("Warning", "CannotRotate", told)


def _cannot_rotate(seen: Observation) -> bool:
    return seen.answer is not None and not seen.provider.rotates


def _reachable(seen: Observation) -> ConditionValue:
    provider = seen.provider
    if not provider.is_there:
        return no_provider(provider.name)
    return (provider.reachable.status, provider.reachable.reason, provider.reachable.message)


def _valid(seen: Observation, planned: Plan, known: Object) -> ConditionValue:
    if seen.has_failed(WriteSecret) and seen.refused is not None and seen.refused.error.code == 422:
        return ("False", "Unusable", seen.refused.error.message)
    if not _mine(seen):
        why = planned.physical
        # Whoever sees this one first is told what to do, not what comes of it.
        return (*_NONE[:2], why[2]) if why is not None and why[1] == "Vanished" else _NONE
    if seen.probed is None:
        return kept_condition(known, CREDENTIALS_VALID)
    return explained(seen.probed, _expires(seen, known), seen.now, _remedy(seen))


def _remedy(seen: Observation) -> str:
    if seen.provider.rotates:
        return "new ones are being asked for"
    if isinstance(seen.answer, SpaceInfo):
        return "the provider was asked again, and tells the same: renew them there"
    return "they are asked for again when the provider can be reached"


def explained(probed: ProbeResult, expires: str, now: float, remedy: str) -> ConditionValue:
    """CredentialsValid, with when they ended and what is done about it."""
    status, reason, message = probed.valid
    if status != "False" or reason == "Unusable":
        return probed.valid
    if expires and expires <= timestamp(now):
        reason, message = "Expired", f"the credentials were good until {expires}"
    return (status, reason, f"{message}; {remedy}")


def kept_condition(known: Object, type: str) -> ConditionValue:
    """A condition as it was: nobody has looked."""
    for one in known.get("conditions") or ():
        if one.get("type") == type:
            return (one.get("status", ""), one.get("reason", ""), one.get("message", ""))
    return _NOT_PROBED


def _mine(seen: Observation) -> dict[str, Object]:
    """Secrets of ours for the viewpoints that the Space has."""
    name = seen.space["metadata"]["name"]
    return {
        viewpoint: secret
        for viewpoint, secret in seen.secrets.items()
        if secret is not None
        and viewpoint in viewpoints_of(seen.space)
        and secrets.claim(secret, name, seen.uid) == secrets.MINE
    }


def _references(seen: Observation) -> Object:
    mine = _mine(seen)
    told: Object = {}
    for viewpoint, key in spaces.REFERENCES.items():
        told[key] = reference(mine[viewpoint]) if viewpoint in mine else None
    ends = (secrets.endpoint_in(mine[each]) for each in spaces.VIEWPOINTS if each in mine)
    told[spaces.ENDPOINTS] = [each for each in ends if each is not None]
    return told


def reference(secret: Mapping[str, Any]) -> Object:
    """A SecretReference to it."""
    metadata = secret["metadata"]
    return {"name": metadata["name"], "namespace": metadata["namespace"]}


def _physical(seen: Observation, planned: Plan) -> Object | None:
    if planned.intended is None:
        return None
    found = planned.found is not None or was_found(seen.space)
    return _named(planned.intended, found)


def _named(physical: Physical, found: bool) -> Object:
    told: Object = {"name": physical.name}
    if physical.parent:
        told["parent"] = physical.parent
    if found:
        told["found"] = True
    return told


def _physical_uid(known: Object, planned: Plan) -> str:
    if planned.intended is None:
        return ""
    if planned.found is None:
        return str(known.get("physicalUID") or "")
    return planned.found.uid


def _expires(seen: Observation, known: Object) -> str:
    """The first end of any of the credentials; as it was while nobody tells."""
    if not isinstance(seen.answer, SpaceInfo):
        return str(known.get("credentialsExpireTime") or "") if _mine(seen) else ""
    shown: Sequence[str] = viewpoints_of(seen.space)
    ends = [
        a.expires for v, a in seen.answer.access.items() if v in shown and a.expires is not None
    ]
    return timestamp(min(ends)) if ends else ""


def _put(status: Object, key: str, value: Any) -> None:
    if value:
        status[key] = value
    else:
        status.pop(key, None)
