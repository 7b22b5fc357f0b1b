"""
Spec and status of a SpaceProviderDesc, without I/O.

A provider that rejects the manager's credentials is reachable.
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
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    Forbidden,
    GatewayTimeout,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.loader import check_inline
from twisted_exec.spacemanager.interfaces import ProviderCondition, ProviderSpec
from twisted_exec.spaces.kubeconfigs import source_of, unwrapped

EVERYTHING = ("", "*")
_MARKS = frozenset("*?[")

KUBECONFIGS = ("kubeconfig", "incluster", "external")
"""Keys of a provider's Secret for kubeconfigs."""

_UNREACHABLE = (BadGateway.code, ServiceUnavailable.code, TooManyRequests.code)


def filter_of(prefix: str) -> Callable[[str], bool]:
    """
    Return a filter for names.

    :param prefix: a prefix (``ks-``), or a glob for the whole name (``ks-*-prod``).
    """
    if prefix in EVERYTHING:
        return lambda name: True
    if _MARKS.isdisjoint(prefix):
        return lambda name: name.startswith(prefix)
    matching = re.compile(fnmatch.translate(prefix)).match
    return lambda name: matching(name) is not None


class InvalidDesc(Exception):
    """The SpaceProviderDesc is not usable."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason, self.why = reason, why


@dataclass(frozen=True, order=True)
class DescSecret:
    """Name of a Secret."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def secret_ref(desc: Object) -> DescSecret | None:
    """
    Return the Secret of ``spec.secretRef``.

    :raises InvalidDesc: the reference is incomplete.
    """
    ref = _spec(desc).get("secretRef") or {}
    namespace, name = str(ref.get("namespace") or ""), str(ref.get("name") or "")
    if not namespace and not name:
        return None
    if not namespace or not name:
        missing = "namespace" if name else "name"
        raise InvalidDesc("SecretRefIncomplete", f"spec.secretRef.{missing} is missing; set it")
    return DescSecret(namespace, name)


def prefix_of(desc: Object) -> str:
    """Return ``spec.SpacePrefixForDiscovery``."""
    return str(_spec(desc).get("SpacePrefixForDiscovery") or "")


def spec_of(desc: Object, types: Collection[str], secret: Object | None) -> ProviderSpec:
    """
    Return the configuration of a provider.

    :raises InvalidDesc: the SpaceProviderDesc or its Secret is not usable.
    """
    name, type = desc["metadata"]["name"], str(_spec(desc).get("ProviderType") or "")
    for problem in dns_label(namespace_of(name)):
        raise InvalidDesc(
            "NameCannotBeUsed",
            f'its Spaces would be in namespace "{namespace_of(name)}", which cannot be: {problem}; '
            "make it under another name",
        )
    if type not in types:
        enabled = ", ".join(sorted(types)) or "none"
        raise InvalidDesc(
            "UnknownProviderType",
            f'spec.ProviderType "{type}" is not enabled (enabled: {enabled}); create another '
            "SpaceProviderDesc with one of these, or enable this type with --providers of the manager",
        )
    ref = secret_ref(desc)
    if ref is None:
        return ProviderSpec(name, type)
    if secret is None:
        raise InvalidDesc(
            "SecretNotFound", f"secret {ref} does not exist; make it, or correct spec.secretRef"
        )
    return ProviderSpec(name, type, secret_values(secret), str(ref))


def secret_values(secret: Object) -> Mapping[str, bytes]:
    """
    Decode a provider's Secret, including kubeconfigs that were encoded twice.

    :raises InvalidDesc: a value is not base64, or a kubeconfig is not usable.
    """
    values = values_of(secret)
    for key in sorted(set(secret.get("data") or {}) - set(values)):
        raise InvalidDesc("SecretCannotBeUsed", f"{source_of(secret, key)}: it is not base64")
    for key in KUBECONFIGS:
        if key in values:
            try:
                values[key] = unwrapped(values[key], source_of(secret, key))
                check_inline(values[key], source_of(secret, key))
            except KubeConfigError as error:
                raise InvalidDesc("SecretCannotBeUsed", str(error)) from None
    return values


def is_ours(namespace: Object, provider: str) -> bool:
    """Return whether the manager created a namespace for a provider."""
    labels = namespace["metadata"].get("labels") or {}
    return bool(labels.get(MANAGED_BY) == MANAGER and labels.get(PROVIDER_LABEL) == provider)


def namespace_for(provider: str) -> Object:
    """Return the namespace for a provider's Spaces."""
    labels = {MANAGED_BY: MANAGER, PROVIDER_LABEL: provider}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": namespace_of(provider), "labels": labels},
    }


def status_of(
    desc: Object,
    looks: ProviderConditions,
    synced: ProviderCondition,
    listed: bool,
    spaces: int,
    now: str,
) -> Object:
    """Return the status of a SpaceProviderDesc."""
    before = desc.get("status") or {}
    generation = desc["metadata"].get("generation")
    conditions: dict[str, ConditionValue] = {
        PROVIDER_REACHABLE: _value(looks.reachable),
        CREDENTIALS_VALID: _value(looks.credentials),
        SYNCED: _value(synced),
    }
    is_ready = listed and looks.well and synced.status == "True"
    status: Object = {
        "Phase": READY if is_ready else INITIALIZING,
        "conditions": with_conditions(before.get("conditions") or [], conditions, now, generation),
        "spaces": spaces,
    }
    if generation is not None:
        status["observedGeneration"] = generation
    return status


def events_for(before: Sequence[Object], after: Sequence[Object]) -> list[tuple[str, str, str]]:
    """Return the Events (type, reason, message) for changed conditions."""
    previous = {each.get("type"): each for each in before}
    events = []
    for condition in after:
        was = previous.get(condition["type"], {})
        good = condition["status"] == "True"
        same = was.get("status") == condition["status"]
        if condition["type"] not in (PROVIDER_REACHABLE, CREDENTIALS_VALID, SYNCED):
            continue
        if same and (good or was.get("reason") == condition["reason"]):
            continue
        if good and was.get("status") != "False":
            continue  # success at the start is not worth an Event
        if condition["status"] != "Unknown":
            type = "Normal" if good else "Warning"
            events.append((type, condition["reason"], condition["message"]))
    return events


def _value(look: ProviderCondition) -> ConditionValue:
    return look.status, look.reason, look.message


def _spec(desc: Object) -> dict[str, Any]:
    spec = desc.get("spec")
    return spec if isinstance(spec, dict) else {}


@dataclass(frozen=True)
class ProviderConditions:
    """Conditions ProviderReachable and CredentialsValid of a provider."""

    reachable: ProviderCondition
    credentials: ProviderCondition

    @property
    def well(self) -> bool:
        return self.reachable.status == self.credentials.status == "True"


LISTED = ProviderConditions(
    ProviderCondition("True", "Listed", "the provider listed its physical spaces"),
    ProviderCondition("True", "Accepted", "the provider accepted the credentials"),
)
NOT_YET = ProviderConditions(
    ProviderCondition("Unknown", "NotAskedYet", "no request has been sent yet"),
    ProviderCondition("Unknown", "NotAskedYet", "no request has been sent yet"),
)


def not_asked(reason: str, why: str) -> ProviderConditions:
    """Return the conditions if the provider could not be created."""
    return ProviderConditions(
        ProviderCondition("Unknown", reason, why), ProviderCondition("Unknown", reason, why)
    )


def refused(error: APIError) -> ProviderConditions:
    """Return the conditions for a failed list."""
    if error.code in (Unauthorized.code, Forbidden.code):
        reason = "Unauthorized" if error.code == Unauthorized.code else "Forbidden"
        answered = ProviderCondition(
            "True", "Answered", "the provider answered, and rejected the credentials"
        )
        return ProviderConditions(answered, ProviderCondition("False", reason, error.message))
    reason = "ListFailed"
    if error.code == GatewayTimeout.code:
        reason = "TimedOut"
    elif error.code in _UNREACHABLE:
        reason = "Unreachable"
    unknown = ProviderCondition(
        "Unknown", reason, "the provider is unreachable, so the credentials are unverified"
    )
    return ProviderConditions(ProviderCondition("False", reason, error.message), unknown)
