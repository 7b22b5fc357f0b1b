"""
What a SpaceProviderDesc says, and its status: both without I/O.

Which physical spaces discovery takes: ``spec.SpacePrefixForDiscovery``, without I/O.

Upstream took it for a prefix, and an empty one or ``*`` for everything.  Ours may be a glob, too: it is one
when it has any of ``*``, ``?`` and ``[``.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted_exec.api.conditions import ConditionValue, with_conditions
from twisted_exec.api.kinds.secrets import values_of
from twisted_exec.api.names import dns_label
from twisted_exec.api.spaces import (
    CREDENTIALS_VALID,
    INITIALIZING,
    MANAGED_BY,
    MANAGER,
    PROVIDER_LABEL,
    PROVIDER_REACHABLE,
    READY,
    SYNCED,
    namespace_of,
)
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.loader import check_inline
from twisted_exec.spacemanager.interfaces import Look, ProviderSpec
from twisted_exec.spacemanager.provider_views.conditions import Looks
from twisted_exec.spaces.kubeconfigs import source_of, unwrapped

EVERYTHING = ("", "*")
_MARKS = frozenset("*?[")


def filter_of(told: str) -> Callable[[str], bool]:
    """
    What says of a name whether it is taken.

    :param told: a prefix (``ks-``), or a glob that the whole name is to match (``ks-*-prod``).
    """
    if told in EVERYTHING:
        return lambda name: True
    if _MARKS.isdisjoint(told):
        return lambda name: name.startswith(told)
    matching = re.compile(fnmatch.translate(told)).match
    return lambda name: matching(name) is not None


KUBECONFIGS = ("kubeconfig", "incluster", "external")
"""Keys of a provider's Secret that hold kubeconfigs."""


class NoSpec(Exception):
    """
    What a SpaceProviderDesc says cannot be used.

    :param reason: one word in CamelCase.
    :param why: one line, which says what would help.
    """

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason, self.why = reason, why


@dataclass(frozen=True, order=True)
class SecretRef:
    """Which Secret."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def secret_ref(desc: Object) -> SecretRef | None:
    """
    The Secret that ``spec.secretRef`` names, ``None`` when it is not set.

    :raises NoSpec: it is a half of one.
    """
    told = _spec(desc).get("secretRef") or {}
    namespace, name = str(told.get("namespace") or ""), str(told.get("name") or "")
    if not namespace and not name:
        return None
    if not namespace or not name:
        missing = "namespace" if name else "name"
        raise NoSpec("SecretRefIncomplete", f"spec.secretRef.{missing} is missing; set it")
    return SecretRef(namespace, name)


def prefix_of(desc: Object) -> str:
    """``spec.SpacePrefixForDiscovery``."""
    return str(_spec(desc).get("SpacePrefixForDiscovery") or "")


def spec_of(desc: Object, known: Collection[str], secret: Object | None) -> ProviderSpec:
    """
    What an adaptor needs of a SpaceProviderDesc.

    :param known: the types that there are adaptors of here.
    :param secret: the one that it names, ``None`` when there is none.
    :raises NoSpec: it cannot be used.
    """
    name, type = desc["metadata"]["name"], str(_spec(desc).get("ProviderType") or "")
    for problem in dns_label(namespace_of(name)):
        raise NoSpec(
            "NameCannotBeUsed",
            f'its Spaces would be in namespace "{namespace_of(name)}", which cannot be: {problem}; '
            "make it under another name",
        )
    if type not in known:
        there = ", ".join(sorted(known)) or "none"
        raise NoSpec(
            "UnknownProviderType",
            f'there is no adaptor for spec.ProviderType "{type}" (there are: {there}); make another '
            "SpaceProviderDesc with one of these, or start the manager with --providers of this one",
        )
    ref = secret_ref(desc)
    if ref is None:
        return ProviderSpec(name, type)
    if secret is None:
        raise NoSpec(
            "SecretNotFound", f"secret {ref} does not exist; make it, or correct spec.secretRef"
        )
    return ProviderSpec(name, type, secret_values(secret), str(ref))


def secret_values(secret: Object) -> Mapping[str, bytes]:
    """
    What a provider's Secret holds, decoded; a kubeconfig that was encoded twice is unwrapped.

    :raises NoSpec: what is said to be a kubeconfig is none, or one that leads to files or programs.
    """
    values = values_of(secret)
    for key in sorted(set(secret.get("data") or {}) - set(values)):
        raise NoSpec("SecretCannotBeUsed", f"{source_of(secret, key)}: it is not base64")
    for key in KUBECONFIGS:
        if key in values:
            try:
                values[key] = unwrapped(values[key], source_of(secret, key))
                check_inline(values[key], source_of(secret, key))
            except KubeConfigError as error:
                raise NoSpec("SecretCannotBeUsed", str(error)) from None
    return values


def is_ours(namespace: Object, provider: str) -> bool:
    """A namespace that we made for a provider."""
    labels = namespace["metadata"].get("labels") or {}
    return bool(labels.get(MANAGED_BY) == MANAGER and labels.get(PROVIDER_LABEL) == provider)


def namespace_for(provider: str) -> Object:
    """The namespace of a provider's Spaces, marked as ours."""
    labels = {MANAGED_BY: MANAGER, PROVIDER_LABEL: provider}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": namespace_of(provider), "labels": labels},
    }


def status_of(
    desc: Object, looks: Looks, synced: Look, listed: bool, spaces: int, now: str
) -> Object:
    """
    The status of a SpaceProviderDesc, whole; conditions of others stay.

    :param looks: how it went when the provider was asked last.
    :param synced: whether what it says is followed.
    :param listed: the provider told its spaces since its adaptor was made.
    :param spaces: how many Spaces there are.
    :param now: as in ``lastTransitionTime``.
    """
    before = desc.get("status") or {}
    generation = desc["metadata"].get("generation")
    told: dict[str, ConditionValue] = {
        PROVIDER_REACHABLE: _told(looks.reachable),
        CREDENTIALS_VALID: _told(looks.credentials),
        SYNCED: _told(synced),
    }
    is_ready = listed and looks.well and synced.status == "True"
    status: Object = {
        "Phase": READY if is_ready else INITIALIZING,
        "conditions": with_conditions(before.get("conditions") or [], told, now, generation),
        "spaces": spaces,
    }
    if generation is not None:
        status["observedGeneration"] = generation
    return status


def news(before: Sequence[Object], after: Sequence[Object]) -> list[tuple[str, str, str]]:
    """
    What is to be told in Events: type, reason and message of each condition that has become good or bad, or bad
    in another way.
    """
    known = {one.get("type"): one for one in before}
    found = []
    for one in after:
        was = known.get(one["type"], {})
        good, same = one["status"] == "True", was.get("status") == one["status"]
        if one["type"] not in (PROVIDER_REACHABLE, CREDENTIALS_VALID, SYNCED):
            continue
        if same and (good or was.get("reason") == one["reason"]):
            continue
        if good and was.get("status") != "False":
            continue  # that all is as it should be is no news at the start
        if one["status"] != "Unknown":
            found.append(("Normal" if good else "Warning", one["reason"], one["message"]))
    return found


def _told(look: Look) -> ConditionValue:
    return look.status, look.reason, look.message


def _spec(desc: Object) -> dict[str, Any]:
    spec = desc.get("spec")
    return spec if isinstance(spec, dict) else {}
