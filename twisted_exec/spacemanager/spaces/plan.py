"""
What to do about one Space that belongs to a provider: decided here, done by :mod:`.space_work`.

A pure function from what is there (the Space, its provider, what the adaptor told just now, the Secrets, what
a probe found) to steps.  It is asked again after the steps, until there are none left; then the status is
what it says.  So a step that was done twice, or by a manager that was killed behind it, is no harm, and what
``status.Phase`` says decides nothing.

A managed Space is what is wanted: what it stands for is made, and made anew when it is gone.  Its finalizer is
written first, then in ``status`` what will be asked for, then it is asked for: whoever finds the second missing
knows that there is nothing to delete.  An unmanaged Space is a picture: it goes when what it stands for is gone.
What cannot be reached is not gone, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from twisted_exec.api import spaces
from twisted_exec.api.conditions import ConditionValue
from twisted_exec.api.status import APIError
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
    BUILDING,
    GOING,
    USABLE,
    Access,
    Physical,
    ProviderCondition,
    SpaceInfo,
)
from twisted_exec.spacemanager.probes.verdicts import ProbeResult
from twisted_exec.spacemanager.spaces import secrets as space_secrets
from twisted_exec.spacemanager.spaces.naming import (
    is_discovered,
    misplaced,
    physical_of,
    recorded,
    said,
    type_of,
    viewpoints_of,
    was_found,
)
from twisted_exec.spacemanager.spaces.steps import (
    Create,
    Delete,
    DeleteSecret,
    DeleteSpace,
    Intend,
    LookAgain,
    Rotate,
    SetFinalizers,
    Step,
    Tell,
    WriteSecret,
)

SOON_SECONDS = 2.0
"""Until what is being made or deleted is looked at again, though nobody has told of it."""
GONE_SECONDS = 5.0
"""Until what was not there is looked for again."""
EXPIRING = 0.2
"""Credentials are renewed when this part of their time is left."""
EXPIRING_SECONDS = 60.0
"""And when this is left, however long they were good for."""


@dataclass(frozen=True)
class Provider:
    """
    The provider of one Space, as it is known now.

    :param is_there: its SpaceProviderDesc is there.
    :param is_usable: there is an adaptor, and the provider answered it last.
    :param passes: discovery takes the physical space.
    :param is_gone: the physical space is not there, for sure.
    :param rotates: it can give new credentials.
    :param refusal: it was asked, and says that there can be no such physical space; why.
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
    """The provider answered that there is no such physical space."""


ABSENT = Absent()
Answer = SpaceInfo | Absent | None
"""What the adaptor told of the physical space; ``None`` when it was not asked, or did not answer."""


@dataclass(frozen=True)
class Refused:
    """A step that was not done."""

    step: Step
    error: APIError


@dataclass(frozen=True)
class Observation:
    """
    Everything that is known of a Space.

    :param secrets: by viewpoint, those that have the name of ours.
    :param done: the kinds of steps that were done since the Space was looked at first.
    :param is_settled: nothing was done to renew its credentials lately.
    :param rival: the Space, of this provider, that stands for the same and was first; or empty.
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
        """The Space's; the mark of what is made for it."""
        return str(self.space["metadata"]["uid"])

    @property
    def is_going(self) -> bool:
        """Somebody has deleted the object."""
        return bool(self.space["metadata"].get("deletionTimestamp"))

    @property
    def is_managed(self) -> bool:
        return type_of(self.space) == spaces.MANAGED

    def has_failed(self, kind: type) -> bool:
        """A step of this kind was refused just now."""
        return self.refused is not None and isinstance(self.refused.step, kind)


@dataclass(frozen=True)
class Plan:
    """
    What to do.

    :param steps: in order; when there are any, it is planned anew behind them.
    :param physical: of the condition PhysicalSpaceReady; ``None`` to leave it as it is.
    :param synced: of the condition Synced.
    :param found: the physical space as it is there; ``None`` for none.
    :param intended: what is there, or will be asked for; ``None`` for what is recorded already.
    :param again_seconds: when to look again, though nobody tells of anything.
    :param is_over: nothing is to be written any more.
    """

    steps: Sequence[Step] = ()
    physical: ConditionValue | None = None
    synced: ConditionValue = ("True", "Synced", "")
    found: SpaceInfo | None = None
    intended: Physical | None = None
    again_seconds: float | None = None
    is_over: bool = False


def asks(space: Mapping[str, Any], provider: Provider) -> bool:
    """Whether the adaptor is to be asked about a Space before it is planned."""
    return not misplaced(space) and provider.is_there and provider.is_usable


def plan(seen: Observation) -> Plan:
    """What to do next about a Space of a provider."""
    if seen.is_going:
        planned = _going(seen)
    elif steps := _finalizers(seen):
        planned = Plan(steps)
    elif problem := misplaced(seen.space):
        planned = Plan(physical=("Unknown", "NotKept", problem[1]), synced=("False", *problem))
    else:
        planned = _wanted(seen)
    if planned.intended is None:  # only a step of its own takes that back
        planned = replace(planned, intended=recorded(seen.space))
    return planned if seen.refused is None else _after_refusal(seen, planned)


def _after_refusal(seen: Observation, planned: Plan) -> Plan:
    """What is told of a step that was refused; no further one is taken now."""
    assert seen.refused is not None
    error = seen.refused.error
    synced = ("False", f"{type(seen.refused.step).__name__}Failed", error.message)
    physical = planned.physical
    if isinstance(seen.refused.step, Create) and not isinstance(seen.answer, SpaceInfo):
        physical = ("False", "CreateFailed", error.message)
    return replace(planned, steps=(), synced=synced, physical=physical)


# What is wanted.


def _finalizers(seen: Observation) -> list[Step]:
    """Ours goes on before anything is made; upstream's goes off wherever it is seen."""
    known = list(seen.space["metadata"].get("finalizers") or ())
    wanted = [each for each in known if each != spaces.OLD_FINALIZER]
    ours = spaces.FINALIZER
    if seen.is_managed and not misplaced(seen.space):
        wanted += [] if ours in wanted else [ours]
    elif not recorded(seen.space) or not seen.is_managed:
        wanted = [each for each in wanted if each != ours]
    return [] if wanted == known else [SetFinalizers(wanted)]


def _wanted(seen: Observation) -> Plan:
    if not seen.provider.is_there:
        return Plan(physical=_as_probed(seen), synced=no_provider(seen.provider.name))
    if seen.rival:
        return _second(seen)
    if not seen.is_managed and not seen.provider.passes:
        return _not_discovered(seen)
    if seen.answer is None:
        return Plan(synced=_unknown(seen))
    if isinstance(seen.answer, Absent):
        return _absent(seen)
    return _there(seen, seen.answer)


def no_provider(name: str) -> ConditionValue:
    """Of each condition that says so; in the same words, for it is one thing to be done."""
    told = f'there is no SpaceProviderDesc "{name}": make it, and the Space is looked after again'
    return ("False", "NoProvider", told)


def _unknown(seen: Observation) -> ConditionValue:
    if seen.provider.refusal:
        return ("False", "Refused", seen.provider.refusal)
    look = seen.provider.reachable
    why = look.message or "it was not asked yet"
    return ("Unknown", "ProviderNotAsked", f'provider "{seen.provider.name}": {why}')


def _second(seen: Observation) -> Plan:
    told = f'Space "{seen.rival}" stands for physical space {physical_of(seen.space)} already'
    if is_discovered(seen.space):
        return _drop(seen, "Duplicate", told)
    synced = ("False", "Duplicate", f"{told}: delete one of them")
    return Plan(physical=("Unknown", "NotKept", told), synced=synced)


def _not_discovered(seen: Observation) -> Plan:
    """Whoever makes Spaces by hand gets no credentials of what the provider's owner has left out."""
    if is_discovered(seen.space):
        told = "discovery does not take it any more: spec.SpacePrefixForDiscovery has changed"
        return _drop(seen, "NotDiscovered", told)
    told = (
        f"spec.SpacePrefixForDiscovery of the SpaceProviderDesc does not take {physical_of(seen.space).name}:"
        " have that changed, or delete this Space"
    )
    left_out = ("NotDiscovered", told)
    return Plan(
        _secrets_away(seen),
        physical=("Unknown", *left_out),
        synced=("False", *left_out),
        found=None,
    )


def _drop(seen: Observation, reason: str, why: str) -> Plan:
    """A picture of ours goes; credentials first."""
    if away := _secrets_away(seen):
        return Plan(away)
    if DeleteSpace in seen.done:
        return Plan(is_over=True)
    return Plan([DeleteSpace(), Tell("Normal", reason, f"the Space is deleted: {why}")])


def _absent(seen: Observation) -> Plan:
    physical, found = physical_of(seen.space), was_found(seen.space)
    if found and not seen.provider.is_gone:
        told = f"{physical} is not there just now; it is looked for again"
        return Plan(
            [] if LookAgain in seen.done else [LookAgain()],
            physical=("Unknown", "Missing", told),
            synced=("Unknown", "Missing", told),
            found=None,
            again_seconds=GONE_SECONDS,
        )
    if not seen.is_managed:
        return _vanished(seen)
    if Create in seen.done:
        making: ConditionValue = ("False", "Creating", f"{physical} is being made")
        return Plan(
            physical=making,
            synced=("Unknown", "Creating", making[2]),
            again_seconds=SOON_SECONDS,
        )
    if seen.has_failed(Create) or seen.has_failed(Intend):
        return Plan(intended=recorded(seen.space))
    return Plan(_creation(seen, found))


def _creation(seen: Observation, found: bool) -> list[Step]:
    """Credentials of what was there lead nowhere; then it is written what is asked for; then it is."""
    steps = _secrets_away(seen)
    wanted = recorded(seen.space) or said(seen.space)
    if found or recorded(seen.space) is None:
        steps.append(Intend(wanted))
    if found:
        told = f"{wanted} was deleted, and not by us: it is made anew, empty"
        steps.append(Tell("Warning", "Vanished", told))
    return [*steps, Create()]


def _vanished(seen: Observation) -> Plan:
    physical = physical_of(seen.space)
    if is_discovered(seen.space):
        if not seen.provider.is_gone:
            return Plan(
                [] if LookAgain in seen.done else [LookAgain()],
                physical=("Unknown", "Missing", f"{physical} is not there just now"),
                again_seconds=GONE_SECONDS,
            )
        return _drop(seen, "Vanished", f"{physical} is there no more")
    told = f"{physical} is not there: make it, or delete this Space"
    vanished = ("False", "Vanished", told)
    return Plan(_secrets_away(seen), physical=vanished)


def _there(seen: Observation, info: SpaceInfo) -> Plan:
    if seen.is_managed and info.owner is None:
        why = f": {info.message}" if info.message else ""
        told = f"whose {info.physical} is cannot be told just now{why}"
        return Plan(
            synced=("Unknown", "OwnerUnknown", told),
            intended=info.physical,
            again_seconds=GONE_SECONDS,
        )
    if seen.is_managed and info.owner != seen.uid:
        return _foreign(seen, info)
    tried = Create in seen.done or seen.has_failed(Create)
    if seen.is_managed and info.state == BROKEN and not tried:
        return Plan([Create()])
    if not seen.is_going and _renews(seen, info):
        return Plan([Rotate()])
    return replace(
        _credentials(seen, info),
        physical=_state(seen, info),
        found=info,
        intended=info.physical,
        again_seconds=None if info.state == USABLE else SOON_SECONDS,
    )


def _foreign(seen: Observation, info: SpaceInfo) -> Plan:
    why = (
        f"there is a physical space {info.physical} that was not made for this Space; it is left alone: "
        f"delete this Space and make one of another name, or with the annotation {spaces.PHYSICAL_NAME}"
    )
    taken: ConditionValue = ("False", "NameTaken", why)
    steps: list[Step] = _secrets_away(seen)
    if recorded(seen.space) is not None and not seen.has_failed(Intend):
        steps.append(Intend(None))  # nothing of it is ours, and nothing to be deleted
    return Plan(steps, physical=taken, synced=taken, again_seconds=GONE_SECONDS * 6)


def _state(seen: Observation, info: SpaceInfo) -> ConditionValue | None:
    """Of PhysicalSpaceReady; what a provider claims is told only when it is bad."""
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
        told = f"{info.physical} is broken, and its provider does not say why"
        return ("False", info.reason or "Broken", info.message or told)
    return _as_probed(seen)


def _as_probed(seen: Observation) -> ConditionValue | None:
    return seen.probed.ready if seen.probed is not None else None


# Credentials.


def _credentials(seen: Observation, info: SpaceInfo) -> Plan:
    """Secrets as the provider tells them, for the viewpoints that the Space has."""
    steps: list[Step] = []
    name, problem = seen.space["metadata"]["name"], None
    for viewpoint in spaces.VIEWPOINTS:
        secret, access = seen.secrets.get(viewpoint), info.access.get(viewpoint)
        is_wanted = viewpoint in viewpoints_of(seen.space)
        owned = space_secrets.claim(secret, name, seen.uid) if secret is not None else None
        if owned == space_secrets.FOREIGN:
            if is_wanted and access is not None:
                problem = _taken(seen, viewpoint)
        elif owned == space_secrets.ORPHAN or (owned is not None and not is_wanted):
            steps.append(DeleteSecret(viewpoint))
        elif is_wanted and access is not None and not _holds(secret, access, seen.space):
            steps.append(WriteSecret(viewpoint, access))
    if seen.refused is not None:
        steps = []
    return Plan(steps, synced=problem or _missing(seen, info) or Plan.synced)


def _holds(secret: Object | None, access: Access, space: Object) -> bool:
    return secret is not None and space_secrets.is_current(secret, access, space)


def _taken(seen: Observation, viewpoint: str) -> ConditionValue:
    name = spaces.secret_name(seen.space["metadata"]["name"], viewpoint)
    told = f"there is a Secret {name} that is not ours, and is left alone: delete or rename it"
    return ("False", "SecretTaken", told)


def _missing(seen: Observation, info: SpaceInfo) -> ConditionValue | None:
    """Nothing that was asked for is to be had."""
    if not info.access or any(each in info.access for each in viewpoints_of(seen.space)):
        return None
    wanted, there = " and ".join(viewpoints_of(seen.space)), " and ".join(info.access)
    told = f"the provider has no {wanted} kubeconfig, but {there}: change spec.accessscopetype"
    return ("False", "NoSuchViewpoint", told)


def asked_to_rotate(space: Mapping[str, Any]) -> str:
    """The value of the annotation that asks for new credentials and was not answered yet; or empty."""
    value = (space["metadata"].get("annotations") or {}).get(spaces.ROTATE) or ""
    return "" if value == (space.get("status") or {}).get("rotated") else str(value)


def _renews(seen: Observation, info: SpaceInfo) -> bool:
    """Whether new credentials are to be made: somebody asked, or those that there are end soon or have."""
    if not seen.provider.rotates or not info.access:
        return False
    if Rotate in seen.done or seen.has_failed(Rotate):
        return False
    if asked_to_rotate(seen.space):
        return True
    if not seen.is_settled:
        return False
    return _is_refused(seen, info) or any(
        _ends_soon(seen, viewpoint, access) for viewpoint, access in info.access.items()
    )


def _is_refused(seen: Observation, info: SpaceInfo) -> bool:
    """What the provider tells is what was refused."""
    if seen.probed is None or not seen.probed.is_refused:
        return False
    return not any(isinstance(step, WriteSecret) for step in _credentials(seen, info).steps)


def _ends_soon(seen: Observation, viewpoint: str, access: Access) -> bool:
    if access.expires is None:
        return False
    secret = seen.secrets.get(viewpoint)
    begun = space_secrets.since(secret) if secret is not None else None
    whole = access.expires - begun if begun is not None else 0.0
    return access.expires - seen.now < max(whole * EXPIRING, EXPIRING_SECONDS)


def renewal_seconds(seen: Observation, info: SpaceInfo) -> float | None:
    """When credentials are to be renewed, from now; ``None`` for not at all."""
    times = []
    for viewpoint, access in info.access.items():
        if access.expires is not None:
            secret = seen.secrets.get(viewpoint)
            begun = space_secrets.since(secret) if secret is not None else None
            whole = access.expires - (begun if begun is not None else seen.now)
            left = access.expires - seen.now - max(whole * EXPIRING, EXPIRING_SECONDS)
            times.append(max(left, SOON_SECONDS))
    return min(times, default=None)


def _secrets_away(seen: Observation) -> list[Step]:
    """Those of ours, for they lead nowhere now."""
    name = seen.space["metadata"]["name"]
    return [
        DeleteSecret(viewpoint)
        for viewpoint, secret in seen.secrets.items()
        if secret is not None
        and space_secrets.claim(secret, name, seen.uid) != space_secrets.FOREIGN
        and not seen.has_failed(DeleteSecret)
    ]


# What is to go.


def _going(seen: Observation) -> Plan:
    """The object was deleted, and is held by finalizers."""
    known = list(seen.space["metadata"].get("finalizers") or ())
    ours = {spaces.FINALIZER, spaces.OLD_FINALIZER}
    if not ours & set(known):
        return Plan(is_over=True)
    if not seen.is_managed or recorded(seen.space) is None:
        return _let_go(seen, None)
    if not seen.provider.is_there:
        return _kept(seen)
    if seen.answer is None:
        told = f'it waits for provider "{seen.provider.name}": {_unknown(seen)[2]}'
        return Plan(synced=("Unknown", "ProviderNotAsked", told))
    if isinstance(seen.answer, Absent):
        gone = Tell("Normal", "Deleted", f"physical space {recorded(seen.space)} was deleted")
        return _let_go(seen, gone)
    return _delete(seen, seen.answer)


def _delete(seen: Observation, info: SpaceInfo) -> Plan:
    if info.owner is not None and info.owner != seen.uid:
        told = f"physical space {info.physical} was not made for this Space: it is left alone"
        return _let_go(seen, Tell("Normal", "NotDeleted", told))
    going = ("False", "Deleting", info.message or f"{info.physical} is being deleted")
    return Plan(
        [] if Delete in seen.done else [Delete()],
        physical=going,
        synced=("Unknown", "Deleting", going[2]),
        again_seconds=SOON_SECONDS,
    )


def _let_go(seen: Observation, told: Step | None) -> Plan:
    """Nothing of ours is left but Secrets; then the finalizers go."""
    if away := _secrets_away(seen):
        return Plan(away)
    if SetFinalizers in seen.done:
        return Plan(is_over=True)
    known = list(seen.space["metadata"].get("finalizers") or ())
    ours = (spaces.FINALIZER, spaces.OLD_FINALIZER)
    off = SetFinalizers([each for each in known if each not in ours])
    return Plan([off] if told is None else [off, told])


def _kept(seen: Observation) -> Plan:
    """Nobody can be asked to delete it, and nobody knows that it is not there."""
    name, physical = seen.provider.name, recorded(seen.space)
    told = (
        f'physical space {physical} may still be there, and its provider is not: make the SpaceProviderDesc "{name}" '
        f"anew and it is deleted, or take the finalizer {spaces.FINALIZER} off this Space to leave it there"
    )
    return Plan(
        physical=("Unknown", "NoProvider", told),
        synced=("False", "NoProvider", told),
        intended=physical,
    )
