"""
The plan for one Space of a provider, with the messages of its conditions Synced and PhysicalSpaceReady.

:mod:`.worker` carries the plan out, and :mod:`.status` computes the other conditions.

The plan is a pure function from observations to steps. Planning is repeated after the steps, and
the status is written at the end.

A managed Space is desired state: its physical space is created, and recreated when it is gone. The
finalizer and the record in ``status`` are written before the physical space is created: without the
record there is nothing to delete. An unmanaged Space is a mirror: if discovery has created it, it
disappears with its physical space. An unreachable physical space is not gone, and its Space stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from twisted_exec.api import spaces
from twisted_exec.api.conditions import ConditionValue
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import is_loopback
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
    BUILDING,
    GOING,
    USABLE,
    Access,
    Physical,
    SpaceInfo,
)
from twisted_exec.spacemanager.spaces import secrets as space_secrets
from twisted_exec.spacemanager.spaces.naming import (
    is_discovered,
    misplaced,
    physical_of,
    recorded,
    said,
    viewpoints_of,
    was_found,
)
from twisted_exec.spacemanager.spaces.observation import (
    GONE_SECONDS,
    SOON_SECONDS,
    Absent,
    Create,
    Delete,
    DeleteSecret,
    DeleteSpace,
    Intend,
    LookAgain,
    Provider,
    Rotate,
    SetFinalizers,
    SpaceObservation,
    Step,
    Tell,
    WriteSecret,
)

EXPIRING = 0.2
"""Part of the lifetime that is left when credentials are rotated."""

EXPIRING_SECONDS = 60.0
"""Seconds that are left when credentials are rotated, whatever their lifetime."""


@dataclass(frozen=True)
class SpacePlan:
    """
    The plan for a Space.

    :param steps: in order; after them, planning starts again.
    :param physical: value of the condition PhysicalSpaceReady; ``None`` to leave it.
    :param intended: the existing or planned physical space; ``None`` to leave the record.
    """

    steps: Sequence[Step] = ()
    physical: ConditionValue | None = None
    synced: ConditionValue = ("True", "Synced", "")
    physical_space: SpaceInfo | None = None
    intended: Physical | None = None
    again_seconds: float | None = None
    is_over: bool = False


def asks(space: Mapping[str, Any], provider: Provider) -> bool:
    """Return whether the provider must be asked before planning."""
    return not misplaced(space) and provider.is_there and provider.is_usable


def plan(observation: SpaceObservation) -> SpacePlan:
    """Return the next plan for a provider's Space."""
    if observation.is_going:
        planned = _going(observation)
    elif steps := _finalizers(observation):
        planned = SpacePlan(steps)
    elif problem := misplaced(observation.space):
        planned = SpacePlan(physical=("Unknown", "NotKept", problem[1]), synced=("False", *problem))
    else:
        planned = _undeleted(observation)
    if planned.intended is None:  # only a step clears the record
        planned = replace(planned, intended=recorded(observation.space))
    return planned if observation.refused is None else _after_refusal(observation, planned)


def _after_refusal(observation: SpaceObservation, planned: SpacePlan) -> SpacePlan:
    assert observation.refused is not None
    error = observation.refused.error
    synced = ("False", f"{type(observation.refused.step).__name__}Failed", error.message)
    physical = planned.physical
    if isinstance(observation.refused.step, Create) and not isinstance(
        observation.answer, SpaceInfo
    ):
        physical = ("False", "CreateFailed", error.message)
    return replace(planned, steps=(), synced=synced, physical=physical)


# Existing Spaces.


def _finalizers(observation: SpaceObservation) -> list[Step]:
    current = list(observation.space["metadata"].get("finalizers") or ())
    desired = [each for each in current if each != spaces.OLD_FINALIZER]
    ours = spaces.FINALIZER
    if observation.is_managed and not misplaced(observation.space):
        desired += [] if ours in desired else [ours]
    elif not recorded(observation.space) or not observation.is_managed:
        desired = [each for each in desired if each != ours]
    return [] if desired == current else [SetFinalizers(desired)]


def _undeleted(observation: SpaceObservation) -> SpacePlan:
    if not observation.provider.is_there:
        return _without_provider(observation)
    if observation.rival:
        return _second(observation)
    if not observation.is_managed and not observation.provider.passes:
        return _not_discovered(observation)
    if observation.answer is None:
        return SpacePlan(synced=_unknown(observation))
    if isinstance(observation.answer, Absent):
        return _absent(observation)
    return _existing(observation, observation.answer)


def _without_provider(observation: SpaceObservation) -> SpacePlan:
    """
    Plan without a provider: an unreachable API server may still be reachable for others, unless its
    address is on loopback.
    """
    physical, synced = _as_probed(observation), no_provider(observation.provider.name)
    if physical is not None and physical[1] == "Unreachable" and _is_on_loopback(observation):
        physical = ("False", physical[1], f"{physical[2]}; {synced[2]}")
    return SpacePlan(physical=physical, synced=synced)


def _is_on_loopback(observation: SpaceObservation) -> bool:
    secrets = [secret for secret in observation.secrets.values() if secret is not None]
    endpoints = [space_secrets.endpoint_in(secret) or {} for secret in secrets]
    return bool(endpoints) and all(
        is_loopback(urlsplit(str(each.get("server", "")))) for each in endpoints
    )


def no_provider(name: str) -> ConditionValue:
    """Return the value of Synced and ProviderReachable without a provider."""
    message = (
        f'there is no SpaceProviderDesc "{name}": make it, and the Space is looked after again'
    )
    return ("False", "NoProvider", message)


def _unknown(observation: SpaceObservation) -> ConditionValue:
    if observation.provider.refusal:
        return ("False", "Refused", observation.provider.refusal)
    look = observation.provider.reachable
    why = look.message or "it was not asked yet"
    return ("Unknown", "ProviderNotAsked", f'provider "{observation.provider.name}": {why}')


def _second(observation: SpaceObservation) -> SpacePlan:
    message = f'Space "{observation.rival}" stands for physical space {physical_of(observation.space)} already'
    if is_discovered(observation.space):
        return _drop(observation, "Duplicate", message)
    synced = ("False", "Duplicate", f"{message}: delete one of them")
    return SpacePlan(physical=("Unknown", "NotKept", message), synced=synced)


def _not_discovered(observation: SpaceObservation) -> SpacePlan:
    if is_discovered(observation.space):
        message = "discovery does not take it any more: spec.SpacePrefixForDiscovery has changed"
        return _drop(observation, "NotDiscovered", message)
    message = (
        f"spec.SpacePrefixForDiscovery of the SpaceProviderDesc does not take {physical_of(observation.space).name}:"
        " have that changed, or delete this Space"
    )
    left_out = ("NotDiscovered", message)
    return SpacePlan(
        deletions(observation),
        physical=("Unknown", *left_out),
        synced=("False", *left_out),
        physical_space=None,
    )


def _drop(observation: SpaceObservation, reason: str, why: str) -> SpacePlan:
    if away := deletions(observation):
        return SpacePlan(away)
    if DeleteSpace in observation.done:
        return SpacePlan(is_over=True)
    return SpacePlan([DeleteSpace(), Tell("Normal", reason, f"the Space is deleted: {why}")])


def _absent(observation: SpaceObservation) -> SpacePlan:
    physical, was_observed = physical_of(observation.space), was_found(observation.space)
    if was_observed and not observation.provider.is_gone:
        message = f"{physical} is not there just now; it is looked for again"
        return SpacePlan(
            [] if LookAgain in observation.done else [LookAgain()],
            physical=("Unknown", "Missing", message),
            synced=("Unknown", "Missing", message),
            physical_space=None,
            again_seconds=GONE_SECONDS,
        )
    if not observation.is_managed:
        return _vanished(observation)
    if Create in observation.done:
        making: ConditionValue = ("False", "Creating", f"{physical} is being made")
        return SpacePlan(
            physical=making,
            synced=("Unknown", "Creating", making[2]),
            again_seconds=SOON_SECONDS,
        )
    if observation.has_failed(Create) or observation.has_failed(Intend):
        return SpacePlan(intended=recorded(observation.space))
    return SpacePlan(_creation(observation, was_observed))


def _creation(observation: SpaceObservation, was_observed: bool) -> list[Step]:
    steps = deletions(observation)
    physical = recorded(observation.space) or said(observation.space)
    if was_observed or recorded(observation.space) is None:
        steps.append(Intend(physical))
    if was_observed:
        message = f"{physical} was deleted, and not by the Space manager: it is made anew, empty"
        steps.append(Tell("Warning", "Vanished", message))
    return [*steps, Create()]


def _vanished(observation: SpaceObservation) -> SpacePlan:
    physical = physical_of(observation.space)
    if is_discovered(observation.space):
        if not observation.provider.is_gone:
            return SpacePlan(
                [] if LookAgain in observation.done else [LookAgain()],
                physical=("Unknown", "Missing", f"{physical} is not there just now"),
                again_seconds=GONE_SECONDS,
            )
        return _drop(observation, "Vanished", f"{physical} is there no more")
    message = f"{physical} is not there: make it, or delete this Space"
    vanished = ("False", "Vanished", message)
    return SpacePlan(deletions(observation), physical=vanished)


def _existing(observation: SpaceObservation, info: SpaceInfo) -> SpacePlan:
    if observation.is_managed and info.owner is None:
        why = f": {info.message}" if info.message else ""
        message = f"the owner of {info.physical} is unknown at the moment{why}"
        return SpacePlan(
            synced=("Unknown", "OwnerUnknown", message),
            intended=info.physical,
            again_seconds=GONE_SECONDS,
        )
    if observation.is_managed and info.owner != observation.uid:
        return _foreign(observation, info)
    tried = Create in observation.done or observation.has_failed(Create)
    if observation.is_managed and info.state == BROKEN and not tried:
        return SpacePlan([Create()])
    if not observation.is_going and renews(observation, info):
        return SpacePlan([Rotate()])
    return SpacePlan(
        secret_steps(observation, info),
        synced=problem(observation, info) or SpacePlan.synced,
        physical=_state(observation, info),
        physical_space=info,
        intended=info.physical,
        again_seconds=None if info.state == USABLE else SOON_SECONDS,
    )


def _foreign(observation: SpaceObservation, info: SpaceInfo) -> SpacePlan:
    why, again_seconds = (
        f"there is a physical space {info.physical} that was not made for this Space; it is left alone: "
        f"delete this Space and make one of another name, or with the annotation {spaces.PHYSICAL_NAME}",
        GONE_SECONDS * 6,
    )
    if info.state == GOING:
        why, again_seconds = (
            f"physical space {info.physical}, which was not made for this Space, is being deleted; this one"
            f" is made when it is gone{f' ({info.message})' if info.message else ''}",
            GONE_SECONDS,
        )
    conflict: ConditionValue = ("False", "NameTaken", why)
    steps: list[Step] = deletions(observation)
    if recorded(observation.space) is not None and not observation.has_failed(Intend):
        steps.append(Intend(None))  # it is not ours, so there is nothing to delete later
    return SpacePlan(steps, physical=conflict, synced=conflict, again_seconds=again_seconds)


def _state(observation: SpaceObservation, info: SpaceInfo) -> ConditionValue | None:
    """Return PhysicalSpaceReady: the provider's word counts only if it is negative."""
    if info.state == BUILDING:
        return (
            "False",
            info.reason or "Building",
            info.message or f"{info.physical} is being made",
        )
    if info.state == GOING:
        return (
            "False",
            info.reason or "Going",
            info.message or f"{info.physical} is being deleted",
        )
    if info.state == BROKEN:
        message = f"{info.physical} is broken, and its provider does not say why"
        return ("False", info.reason or "Broken", info.message or message)
    return _as_probed(observation)


def _as_probed(observation: SpaceObservation) -> ConditionValue | None:
    return observation.probed.ready if observation.probed is not None else None


# Deleted Spaces.


def _going(observation: SpaceObservation) -> SpacePlan:
    current = list(observation.space["metadata"].get("finalizers") or ())
    ours = {spaces.FINALIZER, spaces.OLD_FINALIZER}
    if not ours & set(current):
        return SpacePlan(is_over=True)
    if not observation.is_managed or recorded(observation.space) is None:
        return _let_go(observation, None)
    if not observation.provider.is_there:
        return _without_provider_at_deletion(observation)
    if observation.answer is None:
        message = f'it waits for provider "{observation.provider.name}": {_unknown(observation)[2]}'
        return SpacePlan(synced=("Unknown", "ProviderNotAsked", message))
    if isinstance(observation.answer, Absent):
        event = Tell(
            "Normal", "Deleted", f"physical space {recorded(observation.space)} was deleted"
        )
        return _let_go(observation, event)
    return _delete(observation, observation.answer)


def _delete(observation: SpaceObservation, info: SpaceInfo) -> SpacePlan:
    if info.owner is not None and info.owner != observation.uid:
        message = f"physical space {info.physical} was not made for this Space: it is left alone"
        return _let_go(observation, Tell("Normal", "NotDeleted", message))
    going = ("False", "Deleting", info.message or f"{info.physical} is being deleted")
    return SpacePlan(
        [] if Delete in observation.done else [Delete()],
        physical=going,
        synced=("Unknown", "Deleting", going[2]),
        again_seconds=SOON_SECONDS,
    )


def _let_go(observation: SpaceObservation, event: Step | None) -> SpacePlan:
    if away := deletions(observation):
        return SpacePlan(away)
    if SetFinalizers in observation.done:
        return SpacePlan(is_over=True)
    current = list(observation.space["metadata"].get("finalizers") or ())
    ours = (spaces.FINALIZER, spaces.OLD_FINALIZER)
    off = SetFinalizers([each for each in current if each not in ours])
    return SpacePlan([off] if event is None else [off, event])


def _without_provider_at_deletion(observation: SpaceObservation) -> SpacePlan:
    name, physical = observation.provider.name, recorded(observation.space)
    message = (
        f'physical space {physical} may still exist, but its SpaceProviderDesc "{name}" does not: create that again, '
        f"and the physical space is deleted; or remove the finalizer {spaces.FINALIZER} from this Space to leave it"
    )
    return SpacePlan(
        physical=("Unknown", "NoProvider", message),
        synced=("False", "NoProvider", message),
        intended=physical,
    )


def secret_steps(observation: SpaceObservation, info: SpaceInfo) -> list[Step]:
    """Return the steps that write and delete the Space's Secrets."""
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


def problem(observation: SpaceObservation, info: SpaceInfo) -> ConditionValue | None:
    """Return a problem with the Space's Secrets or viewpoints, or ``None``."""
    taken = [
        viewpoint
        for viewpoint in viewpoints_of(observation.space)
        if _owner(observation, observation.secrets.get(viewpoint)) == space_secrets.FOREIGN
        and info.access.get(viewpoint) is not None
    ]
    return _taken(observation, taken[-1]) if taken else _missing(observation, info)


def _owner(observation: SpaceObservation, secret: Object | None) -> str | None:
    if secret is None:
        return None
    return space_secrets.claim(secret, observation.space["metadata"]["name"], observation.uid)


def _holds(secret: Object | None, access: Access, space: Object) -> bool:
    return secret is not None and space_secrets.is_current(secret, access, space)


def _taken(observation: SpaceObservation, viewpoint: str) -> ConditionValue:
    name = spaces.secret_name(observation.space["metadata"]["name"], viewpoint)
    message = (
        f"Secret {name} exists and was not created for this Space, so it is left alone: delete it,"
        " or give the Space another name"
    )
    return ("False", "SecretTaken", message)


def _missing(observation: SpaceObservation, info: SpaceInfo) -> ConditionValue | None:
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


def renews(observation: SpaceObservation, info: SpaceInfo) -> bool:
    """Return whether to rotate credentials."""
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


def _is_refused(observation: SpaceObservation, info: SpaceInfo) -> bool:
    if observation.probed is None or not observation.probed.is_refused:
        return False
    return not any(isinstance(step, WriteSecret) for step in secret_steps(observation, info))


def _ends_soon(observation: SpaceObservation, viewpoint: str, access: Access) -> bool:
    if access.expires is None:
        return False
    secret = observation.secrets.get(viewpoint)
    begun = space_secrets.since(secret) if secret is not None else None
    whole = access.expires - begun if begun is not None else 0.0
    return access.expires - observation.now < max(whole * EXPIRING, EXPIRING_SECONDS)


def renewal_seconds(observation: SpaceObservation, info: SpaceInfo) -> float | None:
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


def deletions(observation: SpaceObservation) -> list[Step]:
    """Return the steps that delete our Secrets."""
    return [
        DeleteSecret(viewpoint)
        for viewpoint, secret in observation.secrets.items()
        if secret is not None
        and _owner(observation, secret) != space_secrets.FOREIGN
        and not observation.has_failed(DeleteSecret)
    ]
