"""Credentials of the clusters of ClusterProfiles."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from twisted_exec.api.kinds.secrets import ACCOUNT_TOKEN, value_of
from twisted_exec.api.lenient import mapping
from twisted_exec.api.spaces import MANAGED_BY, MANAGER, VIEWPOINTS
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.spacemanager.interfaces import BROKEN, BUILDING, USABLE, Access, SpaceInfo
from twisted_exec.spacemanager.providers.clusterprofile.profiles import (
    PUSHED_FOR,
    PUSHED_KEYS,
    PUSHED_TO,
    AccessWay,
    ProfileFields,
    SecretName,
    labels_of,
    pushed_for,
)
from twisted_exec.spacemanager.providers.credentials import clean, combined, user_of


@dataclass(frozen=True)
class ProfileCredentials:
    """
    The Secret with the credentials for a profile.

    :param way: the access provider; ``None`` if the Secret has a whole kubeconfig.
    """

    secret: Object | None = field(default=None, repr=False)
    key: str = ""
    way: AccessWay | None = None
    problem: str = ""


def by_ways(
    reading: ProfileFields, secrets: Mapping[SecretName, Object]
) -> ProfileCredentials | None:
    """Return the first usable Secret of the access providers."""
    for way in reading.ways:
        secret = secrets.get(way.secret)
        if secret is None or is_withheld(secret):
            continue
        if mapping(secret.get("data")).get(way.key):
            return ProfileCredentials(secret, way.key, way)
    return None


def is_withheld(secret: Object) -> bool:
    """Return whether a Secret must never be sent to the server that a profile names."""
    return secret.get("type") == ACCOUNT_TOKEN or labels_of(secret).get(MANAGED_BY) == MANAGER


def by_push(reading: ProfileFields, pushed: Iterable[Object]) -> ProfileCredentials:
    """Return the Secret labelled for a profile: one for this manager, or the only one."""
    for_it = [each for each in pushed if pushed_for(each) == reading.physical.name]
    for_us = [each for each in for_it if labels_of(each).get(PUSHED_TO) == MANAGER]
    chosen = for_us or for_it
    if len(chosen) > 1:
        return ProfileCredentials(
            problem=f"{len(chosen)} Secrets are labelled {PUSHED_FOR}={reading.physical.name};"
            f" label one of them {PUSHED_TO}={MANAGER}"
        )
    for secret in chosen:
        for key in PUSHED_KEYS:
            if mapping(secret.get("data")).get(key):
                return ProfileCredentials(secret, key)
    return ProfileCredentials(problem=_missing_problem(reading))


def _missing_problem(reading: ProfileFields) -> str:
    missing = [
        f'secret {"/".join(way.secret)} has no value for "{way.key}", or belongs to a ServiceAccount or a Space,'
        " whose tokens are not sent to other clusters"
        for way in reading.ways
    ]
    message = "; ".join([*missing, *reading.problems])
    return (
        message
        or f"the profile has no access provider, and no Secret is labelled {PUSHED_FOR} for it"
    )


def info_of(reading: ProfileFields, credentials: ProfileCredentials) -> SpaceInfo:
    """Return the state of a profile, without access."""
    if credentials.secret is None and reading.state == USABLE:
        reading = replace(
            reading, state=BUILDING, reason="CredentialsMissing", message=credentials.problem
        )
    metadata = credentials.secret["metadata"] if credentials.secret else {}
    secret = [metadata.get("uid"), metadata.get("resourceVersion"), credentials.key]
    digest = repr((reading, [way.cluster for way in reading.ways], secret))
    return SpaceInfo(
        reading.physical,
        reading.state,
        reading.reason,
        reading.message,
        uid=reading.uid,
        version=hashlib.sha256(digest.encode()).hexdigest()[:16],
    )


def with_access(info: SpaceInfo, credentials: ProfileCredentials) -> SpaceInfo:
    """Add the kubeconfig."""
    if credentials.secret is None or info.state != USABLE:
        return info
    try:
        access = _access(info.physical.name, credentials, credentials.secret)
    except KubeConfigError as error:
        return replace(info, state=BROKEN, reason="KubeconfigRefused", message=str(error))
    return replace(info, access=dict.fromkeys(VIEWPOINTS, access))


def _access(name: str, credentials: ProfileCredentials, secret: Object) -> Access:
    metadata = secret["metadata"]
    source = f'secret {metadata["namespace"]}/{metadata["name"]}, key "{credentials.key}"'
    content = value_of(secret, credentials.key) or b""
    if credentials.way is None:
        return clean(content, source, name)
    cluster = json.loads(credentials.way.cluster)
    if credentials.way.token:
        return combined(cluster, {"token": _token(content, source)}, source, name)
    return combined(cluster, user_of(content, source, credentials.way.context), source, name)


def _token(content: bytes, source: str) -> str:
    token = content.decode("latin-1").strip()
    if not token.isascii() or not token.isprintable() or " " in token or not token:
        raise KubeConfigError(f"{source}: not a token; put the token of the cluster there")
    return token
