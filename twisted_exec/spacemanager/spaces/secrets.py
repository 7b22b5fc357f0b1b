"""
The Secrets of a Space that the manager writes: what they are to be, and whose one is that is there.

Without I/O.  A Secret is ours when it has the name, our labels, and the Space as its owner; of anything else
nothing is touched.  What it was made of is kept beside it as a digest: so a manager that has just started sees
whether there is something to do without reading a single kubeconfig.
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
"""Annotation: of the kubeconfig as the provider told it."""
CONTENT = "space.twisted-exec.dev/content-digest"
"""Annotation: of the kubeconfig as it was written; another one was not written by us."""
SINCE = "space.twisted-exec.dev/since"
"""Annotation: when these credentials were written first."""
ENDPOINT = "space.twisted-exec.dev/endpoint"
"""Annotation: what of it is no secret, as JSON, in the shape of ``status.endpoints``."""

_LONGEST_KEPT = 1 << 19
"""Characters: of a kubeconfig with 256 KiB, and of what encodes it."""

MINE, ORPHAN, FOREIGN = "mine", "orphan", "foreign"

SELECTOR = f"{spaces.MANAGED_BY}={spaces.MANAGER}"
"""Of labels: all that the manager writes."""


def digest(content: bytes) -> str:
    """Tells one content from another; no more than that."""
    return hashlib.sha256(content).hexdigest()[:32]


def trimmed(secret: Object, *, record_type: str, record_key: str) -> Object:
    """
    What is kept of a Secret that has our labels: whoever may write Secrets may write such, as large as they like.

    :param record_type: of Secrets that hold something else of ours, under ``record_key``.
    """
    wanted = ""
    if is_ours(secret):
        wanted = spaces.KUBECONFIG_KEY
    elif secret.get("type") == record_type:
        wanted = record_key
    content = (secret.get("data") or {}).get(wanted)
    fits = isinstance(content, str) and len(content) <= _LONGEST_KEPT
    return {**secret, "data": {wanted: content} if fits else {}}


def labels_of(space: Mapping[str, Any]) -> dict[str, str]:
    """Of everything that is written for a Space."""
    labels = {spaces.MANAGED_BY: spaces.MANAGER, spaces.SPACE_LABEL: space["metadata"]["name"]}
    if provider := provider_of(space):
        labels[spaces.PROVIDER_LABEL] = provider
    return labels


def owner_of(space: Mapping[str, Any]) -> Object:
    """The owner reference of everything that is written for a Space."""
    return {
        "apiVersion": spaces.SPACES.api_version,
        "kind": spaces.SPACES.kind,
        "name": space["metadata"]["name"],
        "uid": space["metadata"]["uid"],
        "controller": True,
        # Needs a right on finalizers of Spaces, which whoever may write those has not by itself.
        "blockOwnerDeletion": False,
    }


def owner_uid(obj: Mapping[str, Any]) -> str:
    """The UID of the Space that something was written for; empty for none."""
    for each in obj["metadata"].get("ownerReferences") or ():
        ours = str(each.get("apiVersion", "")).startswith(f"{spaces.GROUP}/")
        if ours and each.get("kind") == spaces.SPACES.kind and each.get("controller"):
            return str(each.get("uid", ""))
    return ""


def written_for(obj: Mapping[str, Any]) -> str:
    """The name of the Space that something was written for, by its labels; empty for none."""
    labels = obj["metadata"].get("labels") or {}
    ours = labels.get(spaces.MANAGED_BY) == spaces.MANAGER
    return str(labels.get(spaces.SPACE_LABEL, "")) if ours else ""


def claim(secret: Mapping[str, Any], space: str, uid: str) -> str:
    """
    Whose a Secret is that has the name of one of ours.

    :return: :data:`MINE`; :data:`ORPHAN` for what was left by an earlier Space of that name; :data:`FOREIGN`.
    """
    owner = owner_uid(secret)
    if written_for(secret) != space or not owner:
        return FOREIGN
    return MINE if owner == uid else ORPHAN


def is_ours(secret: Mapping[str, Any]) -> bool:
    """Whether the manager wrote a Secret with credentials, for whichever Space."""
    space, name = written_for(secret), secret["metadata"]["name"]
    named = name in [spaces.secret_name(space, viewpoint) for viewpoint in spaces.VIEWPOINTS]
    return bool(space) and named and bool(owner_uid(secret))


@dataclass(frozen=True)
class SecretContent:
    """
    A kubeconfig as it is written: one user, one cluster, all data.

    :param endpoint: as in ``status.endpoints``.
    """

    source: str
    content: bytes = field(repr=False)
    endpoint: Mapping[str, str]


def secret_content(access: Access, viewpoint: str, space: str) -> SecretContent:
    """
    What is written of what a provider told.

    :raises Invalid: it cannot be used.
    """
    source = f'the {viewpoint} kubeconfig that the provider gives for space "{space}"'
    try:
        content = kubeconfigs.minimal(access.kubeconfig, source, space)
        endpoint = kubeconfigs.endpoint_of(kubeconfigs.config_of(content, source), viewpoint)
    except KubeConfigError as error:
        raise refused(str(error)) from None
    return SecretContent(digest(access.kubeconfig), content, endpoint)


def refused(message: str) -> APIError:
    """What a provider gives cannot be used."""
    return APIError(message, code=Invalid.code, reason=Invalid.reason)


def is_current(secret: Mapping[str, Any], access: Access, space: Object) -> bool:
    """Whether a Secret of ours holds what the provider tells, as we wrote it."""
    metadata = secret["metadata"]
    notes = metadata.get("annotations") or {}
    if notes.get(SOURCE) != digest(access.kubeconfig):
        return False
    labels, known = labels_of(space), metadata.get("labels") or {}
    content = value_of(secret, spaces.KUBECONFIG_KEY) or b""
    return digest(content) == notes.get(CONTENT) and labels.items() <= known.items()


def endpoint_in(secret: Mapping[str, Any]) -> Object | None:
    """The endpoint that a Secret of ours leads to."""
    try:
        told = json.loads((secret["metadata"].get("annotations") or {}).get(ENDPOINT, ""))
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def since(secret: Mapping[str, Any]) -> float | None:
    """When the credentials in a Secret of ours were written first, in seconds since the epoch."""
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
    """
    A Secret as it is to be.

    :param before: as it is; what others wrote beside ours stays, and so does the version.
    """
    metadata: Object = dict((before or {}).get("metadata") or {})
    metadata.setdefault("name", spaces.secret_name(space["metadata"]["name"], viewpoint))
    metadata.setdefault("namespace", space["metadata"]["namespace"])
    notes = dict(metadata.get("annotations") or {})
    known = notes.get(SINCE, "") if notes.get(SOURCE) == narrow.source else ""
    notes |= {
        SOURCE: narrow.source,
        CONTENT: digest(narrow.content),
        SINCE: known or timestamp(now),
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
