"""
Secrets with kubeconfigs that the manager writes for Spaces.

A Secret is ours if it has the right name, our labels, and a Space as its owner; any other is left
alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted_exec.api import spaces
from twisted_exec.api.kinds.secrets import OPAQUE, SECRETS, value_of
from twisted_exec.api.status import APIError, Invalid
from twisted_exec.api.times import seconds, timestamp
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.spacemanager.interfaces import Access
from twisted_exec.spacemanager.spaces.naming import provider_of
from twisted_exec.spaces import kubeconfigs

SOURCE = "space.twisted-exec.dev/source-digest"
"""Annotation: digest of the provider's kubeconfig."""
CONTENT = "space.twisted-exec.dev/content-digest"
"""Annotation: digest of the written kubeconfig; a different content was not written by us."""
SINCE = "space.twisted-exec.dev/since"
"""Annotation: time of the first write of these credentials."""
ENDPOINT = "space.twisted-exec.dev/endpoint"
"""Annotation: the public part, as JSON in the form of ``status.endpoints``."""

_LONGEST_KEPT = 1 << 19
"""Characters of a base64 kubeconfig of 256 KiB, with a margin."""

MINE, ORPHAN, FOREIGN = "mine", "orphan", "foreign"

SELECTOR = f"{spaces.MANAGED_BY}={spaces.MANAGER}"
"""Label selector for all objects of the manager."""


def digest(content: bytes) -> str:
    """Return a digest to detect changes; it is not a security boundary."""
    return hashlib.sha256(content).hexdigest()[:32]


def trim_secret(secret: Object, *, record_type: str, record_key: str) -> Object:
    """Reduce a Secret with our labels to what is used."""
    key = ""
    if is_ours(secret):
        key = spaces.KUBECONFIG_KEY
    elif secret.get("type") == record_type:
        key = record_key
    content = (secret.get("data") or {}).get(key)
    fits = isinstance(content, str) and len(content) <= _LONGEST_KEPT
    return {**secret, "data": {key: content} if fits else {}}


def labels_of(space: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels for all objects of a Space."""
    labels = {spaces.MANAGED_BY: spaces.MANAGER, spaces.SPACE_LABEL: space["metadata"]["name"]}
    if provider := provider_of(space):
        labels[spaces.PROVIDER_LABEL] = provider
    return labels


def owner_of(space: Mapping[str, Any]) -> Object:
    """Return the owner reference for objects that a Space owns."""
    return {
        "apiVersion": spaces.SPACES.api_version,
        "kind": spaces.SPACES.kind,
        "name": space["metadata"]["name"],
        "uid": space["metadata"]["uid"],
        "controller": True,
        # True would need the permission to update finalizers of Spaces.
        "blockOwnerDeletion": False,
    }


def owner_uid(obj: Mapping[str, Any]) -> str:
    """Return the UID of the Space that owns an object; may be empty."""
    for each in obj["metadata"].get("ownerReferences") or ():
        ours = str(each.get("apiVersion", "")).startswith(f"{spaces.GROUP}/")
        if ours and each.get("kind") == spaces.SPACES.kind and each.get("controller"):
            return str(each.get("uid", ""))
    return ""


def written_for(obj: Mapping[str, Any]) -> str:
    """Return the name of the Space that an object belongs to, by its labels; may be empty."""
    labels = obj["metadata"].get("labels") or {}
    ours = labels.get(spaces.MANAGED_BY) == spaces.MANAGER
    return str(labels.get(spaces.SPACE_LABEL, "")) if ours else ""


def claim(secret: Mapping[str, Any], space: str, uid: str) -> str:
    """
    Return the owner of a Secret with a name of ours.

    :return: :data:`MINE`, :data:`ORPHAN` (it belongs to an earlier Space of that name) or
        :data:`FOREIGN`.
    """
    owner = owner_uid(secret)
    if written_for(secret) != space or not owner:
        return FOREIGN
    return MINE if owner == uid else ORPHAN


def is_ours(secret: Mapping[str, Any]) -> bool:
    """Return whether the manager wrote a Secret with credentials, for any Space."""
    space, name = written_for(secret), secret["metadata"]["name"]
    named = name in [spaces.secret_name(space, viewpoint) for viewpoint in spaces.VIEWPOINTS]
    return bool(space) and named and bool(owner_uid(secret))


@dataclass(frozen=True)
class SecretContent:
    """A kubeconfig to write."""

    source: str
    content: bytes = field(repr=False)
    endpoint: Mapping[str, str]


def secret_content(access: Access, viewpoint: str, space: str) -> SecretContent:
    """
    Reduce a provider's kubeconfig to what is written.

    :raises Invalid: the kubeconfig is not usable.
    """
    source = f'the {viewpoint} kubeconfig that the provider gives for space "{space}"'
    try:
        content = kubeconfigs.minimal(access.kubeconfig, source, space)
        endpoint = kubeconfigs.endpoint_of(kubeconfigs.config_of(content, source), viewpoint)
    except KubeConfigError as error:
        raise refused(str(error)) from None
    return SecretContent(digest(access.kubeconfig), content, endpoint)


def refused(message: str) -> APIError:
    """Return the error for an unusable kubeconfig of a provider."""
    return APIError(message, code=Invalid.code, reason=Invalid.reason)


def is_current(secret: Mapping[str, Any], access: Access, space: Object) -> bool:
    """Return whether a Secret of ours has the provider's current kubeconfig, unmodified."""
    metadata = secret["metadata"]
    notes = metadata.get("annotations") or {}
    if notes.get(SOURCE) != digest(access.kubeconfig):
        return False
    labels, actual = labels_of(space), metadata.get("labels") or {}
    content = value_of(secret, spaces.KUBECONFIG_KEY) or b""
    return digest(content) == notes.get(CONTENT) and labels.items() <= actual.items()


def endpoint_in(secret: Mapping[str, Any]) -> Object | None:
    """Return the endpoint in a Secret of ours."""
    try:
        endpoint = json.loads((secret["metadata"].get("annotations") or {}).get(ENDPOINT, ""))
    except (ValueError, RecursionError):
        return None
    return endpoint if isinstance(endpoint, dict) else None


def since(secret: Mapping[str, Any]) -> float | None:
    """
    Return when the credentials in a Secret of ours were first written, in seconds since the epoch.
    """
    try:
        return seconds((secret["metadata"].get("annotations") or {}).get(SINCE, ""))
    except (ValueError, TypeError):
        return None


def form(
    narrow: SecretContent,
    viewpoint: str,
    space: Object,
    before: Mapping[str, Any] | None,
    now: float,
) -> Object:
    """Return the desired Secret."""
    metadata: Object = dict((before or {}).get("metadata") or {})
    metadata.setdefault("name", spaces.secret_name(space["metadata"]["name"], viewpoint))
    metadata.setdefault("namespace", space["metadata"]["namespace"])
    notes = dict(metadata.get("annotations") or {})
    written = notes.get(SINCE, "") if notes.get(SOURCE) == narrow.source else ""
    notes |= {
        SOURCE: narrow.source,
        CONTENT: digest(narrow.content),
        SINCE: written or timestamp(now),
        ENDPOINT: json.dumps(narrow.endpoint, sort_keys=True),
    }
    metadata |= {
        "labels": {**(metadata.get("labels") or {}), **labels_of(space)},
        "annotations": notes,
        "ownerReferences": [owner_of(space)],
    }
    encoded = base64.b64encode(narrow.content).decode("ascii")
    return {
        "apiVersion": SECRETS.resource.api_version,
        "kind": SECRETS.resource.kind,
        "metadata": metadata,
        "type": OPAQUE,
        "data": {spaces.KUBECONFIG_KEY: encoded},
    }
