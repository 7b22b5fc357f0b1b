"""
Reading ClusterProfiles and their Secrets, without I/O.

A ClusterProfile contains no secrets.  It names *access providers*, each with a cluster entry as in
a kubeconfig, and readers are expected to have a plugin for each.  We run no plugins, and implement
two of them ourselves: ``secretreader`` reads the ``token`` of a Secret with the name of the
cluster, ``kubeconfig-secretreader`` reads a user from a kubeconfig in a Secret.  An extension of
the cluster entry names the Secret.  The older way are Secrets with a whole kubeconfig, labelled
with the name of the profile.

The cluster entry is used as it is, including ``tls-server-name`` and ``insecure-skip-tls-verify``.
It affects no other profile.

Writers of a profile's status choose a Secret for us to read, and its credentials go to the server
that the profile names.  So the Secret must be in the namespace of the profile or in one that the
provider's Secret allows, and ServiceAccount tokens and the credentials of Spaces are never used.

Source: ``kubernetes-sigs/cluster-inventory-api`` v0.1.2 (``apis/v1alpha1``, ``plugins``);
``kubernetes-sigs/ multicluster-runtime`` v0.24.1
(``providers/cluster-inventory-api/kubeconfigstrategy``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from twisted_exec.api import names
from twisted_exec.api.kinds.clusterprofiles import HEALTHY, MANAGER_LABEL
from twisted_exec.api.kinds.secrets import value_of
from twisted_exec.api.spaces import MANAGED_BY, MANAGER, VIEWPOINTS
from twisted_exec.api.status import one_line
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.loader import EXEC_EXTENSION
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
    BUILDING,
    GOING,
    USABLE,
    Access,
    Physical,
    SpaceInfo,
)
from twisted_exec.spacemanager.providers.common.kubeconfigs import clean, combined, user_of
from twisted_exec.spacemanager.providers.common.objects import (
    condition,
    mapping,
    message_of,
    reason_of,
)

TOKEN_READER, KUBECONFIG_READER = "secretreader", "kubeconfig-secretreader"
READERS = (TOKEN_READER, KUBECONFIG_READER)
TOKEN_KEY = "token"
ACCOUNT_TOKEN = "kubernetes.io/service-account-token"
"""Type of Secrets with tokens of ServiceAccounts."""
PUSHED_FOR, PUSHED_TO = "x-k8s.io/cluster-profile", "x-k8s.io/cluster-inventory-consumer"
PUSHED_NAMESPACE = "x-k8s.io/cluster-profile-namespace"
PUSHED_KEYS = ("Config", "config")
"""The proposal specifies the first, some programs write the second."""

MAX_WAYS = 8

SecretName = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True)
class AccessWay:
    """
    An access provider of a profile: a cluster, and the Secret with its credentials.

    :param cluster: the cluster entry as JSON, comparable by value.
    :param token: whether ``key`` has a token instead of a kubeconfig.
    """

    secret: SecretName
    key: str
    cluster: str = field(repr=False)
    context: str = ""
    token: bool = False


@dataclass(frozen=True)
class Reading:
    """
    The relevant fields of a ClusterProfile, comparable by value.

    :param problems: errors of unusable access providers.
    """

    physical: Physical
    namespace: str
    uid: str
    state: str
    reason: str = ""
    message: str = ""
    ways: tuple[AccessWay, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Places:
    """
    The namespaces of profiles and Secrets.

    :param default: the namespace of physical spaces without a parent.
    :param only: ignore profiles in other namespaces.
    :param secrets: namespaces of Secrets that all profiles may name.
    """

    default: str = "default"
    only: bool = False
    secrets: Collection[str] = ()

    def physical(self, namespace: str, name: str) -> Physical:
        """Return the physical name of a profile."""
        return Physical(name, "" if namespace == self.default else namespace)

    def namespace(self, physical: Physical) -> str:
        """Return the namespace of a profile; empty if there can be no such profile."""
        if not physical.parent:
            return self.default
        if self.only or physical.parent == self.default or names.dns_label(physical.parent):
            return ""
        return physical.parent


def is_ours(profile: Object) -> bool:
    """Return whether a space manager has written this profile, so that it is not a new cluster."""
    manager = mapping(mapping(profile.get("spec")).get("clusterManager")).get("name")
    return MANAGER in (manager, _labels(profile).get(MANAGER_LABEL))


def read(profile: Object, places: Places) -> Reading:
    """Read a ClusterProfile, without its Secrets."""
    metadata, status = profile["metadata"], mapping(profile.get("status"))
    namespace = str(metadata.get("namespace") or "")
    physical = places.physical(namespace, metadata["name"])
    reading = Reading(physical, namespace, str(metadata.get("uid") or ""), USABLE)
    if metadata.get("deletionTimestamp"):
        return replace(reading, state=GOING, reason="Deleting")
    ways, problems = _ways(namespace, status, {namespace, *places.secrets})
    reading = replace(reading, ways=tuple(ways), problems=tuple(problems))
    healthy = condition(status, HEALTHY)
    if healthy.get("status") not in ("False", "Unknown"):
        return reading
    return replace(
        reading,
        state=BUILDING,
        reason=reason_of(healthy, "NotHealthy"),
        message=message_of(healthy) or f"{HEALTHY} is {healthy['status']}",
    )


def _ways(
    namespace: str, status: Mapping[str, Any], allowed: Collection[str]
) -> tuple[list[AccessWay], list[str]]:
    ways: dict[AccessWay, None] = {}
    problems: list[str] = []
    names = []
    for entry in _entries(status, "accessProviders") + _entries(status, "credentialProviders"):
        name = str(entry.get("name") or "")
        names.append(name)
        if name not in READERS:
            continue
        try:
            ways[_way(name, namespace, mapping(entry.get("cluster")), allowed)] = None
        except ValueError as error:
            problems.append(f"access provider {name}: {error}")
    if names and not ways and not problems:
        listed = one_line(", ".join(sorted(set(names))))[:100]
        problems.append(
            f"no access provider is one of {' and '.join(READERS)} (the profile has {listed})"
        )
    return list(ways), problems


def _entries(status: Mapping[str, Any], member: str) -> list[Mapping[str, Any]]:
    entries = status.get(member)
    return [mapping(each) for each in entries[:MAX_WAYS]] if isinstance(entries, list) else []


def _way(
    name: str, namespace: str, cluster: Mapping[str, Any], allowed: Collection[str]
) -> AccessWay:
    """Read an access provider.  :raises ValueError: it is unusable."""
    extension = _extension(cluster)
    place = dict(cluster)
    place.pop("extensions", None)
    encoded = json.dumps(place, sort_keys=True)
    if name == TOKEN_READER:
        secret = _name_in(extension, "clusterName")
        return AccessWay((namespace, secret), TOKEN_KEY, encoded, token=True)
    elsewhere = str(extension.get("namespace") or namespace)
    if elsewhere not in allowed:
        raise ValueError(
            f"its Secret is in the namespace {one_line(elsewhere)[:63]}, which the provider does not allow;"
            " name that in the provider's Secret, or put the Secret beside the profile"
        )
    key, context = str(extension.get("key") or ""), str(extension.get("context") or "")
    if not key:
        raise ValueError(f"the extension {EXEC_EXTENSION} names no key")
    return AccessWay((elsewhere, _name_in(extension, "name")), key, encoded, context)


def _name_in(extension: Mapping[str, Any], member: str) -> str:
    name = str(extension.get(member) or "")
    if names.dns_subdomain(name):
        raise ValueError(f"the extension {EXEC_EXTENSION} has no {member} that is a Secret's name")
    return name


def _extension(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    extensions = cluster.get("extensions")
    for each in extensions if isinstance(extensions, list) else ():
        if isinstance(each, dict) and each.get("name") == EXEC_EXTENSION:
            return mapping(each.get("extension"))
    return {}


def pushed_for(secret: Object) -> str:
    """Return the name of the profile that a Secret is labelled for, or empty."""
    labels, place = _labels(secret), secret["metadata"].get("namespace")
    if labels.get(PUSHED_NAMESPACE, place) != place:
        return ""
    return str(labels.get(PUSHED_FOR) or "")


@dataclass(frozen=True)
class Credentials:
    """
    The Secret with the credentials for a profile.

    :param way: the access provider; ``None`` if the Secret has a whole kubeconfig.
    :param problem: the reason, if there is no Secret.
    """

    secret: Object | None = field(default=None, repr=False)
    key: str = ""
    way: AccessWay | None = None
    problem: str = ""


def by_ways(reading: Reading, secrets: Mapping[SecretName, Object]) -> Credentials | None:
    """Return the first usable Secret of the access providers."""
    for way in reading.ways:
        secret = secrets.get(way.secret)
        if secret is None or is_withheld(secret):
            continue
        if mapping(secret.get("data")).get(way.key):
            return Credentials(secret, way.key, way)
    return None


def is_withheld(secret: Object) -> bool:
    """Return whether a Secret must never be sent to the server that a profile names."""
    return secret.get("type") == ACCOUNT_TOKEN or _labels(secret).get(MANAGED_BY) == MANAGER


def by_push(reading: Reading, pushed: Iterable[Object]) -> Credentials:
    """Return the Secret labelled for a profile: one for this manager, or the only one."""
    for_it = [each for each in pushed if pushed_for(each) == reading.physical.name]
    for_us = [each for each in for_it if _labels(each).get(PUSHED_TO) == MANAGER]
    chosen = for_us or for_it
    if len(chosen) > 1:
        return Credentials(
            problem=f"{len(chosen)} Secrets are labelled {PUSHED_FOR}={reading.physical.name};"
            f" label one of them {PUSHED_TO}={MANAGER}"
        )
    for secret in chosen:
        for key in PUSHED_KEYS:
            if mapping(secret.get("data")).get(key):
                return Credentials(secret, key)
    return Credentials(problem=_missing_problem(reading))


def _missing_problem(reading: Reading) -> str:
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


def info_of(reading: Reading, credentials: Credentials) -> SpaceInfo:
    """Return the state of a profile, without access; see :func:`with_access`."""
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


def with_access(info: SpaceInfo, credentials: Credentials) -> SpaceInfo:
    """Add the kubeconfig, the same for all viewpoints."""
    if credentials.secret is None or info.state != USABLE:
        return info
    try:
        access = _access(info.physical.name, credentials, credentials.secret)
    except KubeConfigError as error:
        return replace(info, state=BROKEN, reason="KubeconfigRefused", message=str(error))
    return replace(info, access=dict.fromkeys(VIEWPOINTS, access))


def _access(name: str, credentials: Credentials, secret: Object) -> Access:
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


def _labels(obj: Object) -> Mapping[str, Any]:
    return mapping(obj["metadata"].get("labels"))
