"""
What a ClusterProfile and Secrets say together; without I/O.

A ClusterProfile holds no secret.  It names *access providers*, each with the cluster as a kubeconfig has it, and
whoever reads one is to have a program for each name.  No program is run here: of two names it is known what their
programs do, and that is done.  ``secretreader`` is a Secret called as the cluster, with a ``token``;
``kubeconfig-secretreader`` is a user out of a kubeconfig in a Secret.  Both say which in an extension of the
cluster.  Older than that are Secrets that are labelled with the profile's name and hold a whole kubeconfig.

The cluster is taken as the profile has it, with the name to verify its certificate by, and not to verify it where
that is what it says; what one profile says never reaches another.

Who may write a profile's status chooses a Secret for us to read.  So it is one of the profile's namespace, or of one
that the provider's own Secret allows, and never one in which the cluster has tokens of its own accounts, or this
manager those of Spaces: what is in it is sent to the server that the profile names.

Source: ``kubernetes-sigs/cluster-inventory-api`` v0.1.2 (``apis/v1alpha1``, ``plugins``); ``kubernetes-sigs/
multicluster-runtime`` v0.24.1 (``providers/cluster-inventory-api/kubeconfigstrategy``).
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
"""Type of the Secrets in which a cluster writes tokens of its own accounts."""
PUSHED_FOR, PUSHED_TO = "x-k8s.io/cluster-profile", "x-k8s.io/cluster-inventory-consumer"
PUSHED_NAMESPACE = "x-k8s.io/cluster-profile-namespace"
PUSHED_KEYS = ("Config", "config")
"""The proposal writes the first, programs also write the other."""

MAX_WAYS = 8

SecretName = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True)
class Way:
    """
    A cluster as an access provider tells it, and which Secret says who we are there.

    :param cluster: JSON, so that it compares by value.
    :param token: the Secret has a token under ``key``, instead of a kubeconfig.
    """

    secret: SecretName
    key: str
    cluster: str = field(repr=False)
    context: str = ""
    token: bool = False


@dataclass(frozen=True)
class Reading:
    """
    A ClusterProfile, as far as anybody here wants to know.

    :param problems: of ways that cannot be gone.
    """

    physical: Physical
    namespace: str
    uid: str
    state: str
    reason: str = ""
    message: str = ""
    ways: tuple[Way, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Places:
    """
    Where profiles are looked for.

    :param default: the namespace that is no parent.
    :param only: profiles of others are not looked at.
    :param secrets: namespaces that profiles of any may name Secrets of.
    """

    default: str = "default"
    only: bool = False
    secrets: Collection[str] = ()

    def physical(self, namespace: str, name: str) -> Physical:
        """What a profile is called."""
        return Physical(name, "" if namespace == self.default else namespace)

    def namespace(self, physical: Physical) -> str:
        """Where a profile would be; empty where there can be none."""
        if not physical.parent:
            return self.default
        if self.only or physical.parent == self.default or names.dns_label(physical.parent):
            return ""
        return physical.parent


def is_ours(profile: Object) -> bool:
    """One that a manager of spaces has written: what it stands for is known already."""
    manager = mapping(mapping(profile.get("spec")).get("clusterManager")).get("name")
    return MANAGER in (manager, _labels(profile).get(MANAGER_LABEL))


def read(profile: Object, places: Places) -> Reading:
    """What a ClusterProfile says by itself."""
    metadata, status = profile["metadata"], mapping(profile.get("status"))
    namespace = str(metadata.get("namespace") or "")
    physical = places.physical(namespace, metadata["name"])
    found = Reading(physical, namespace, str(metadata.get("uid") or ""), USABLE)
    if metadata.get("deletionTimestamp"):
        return replace(found, state=GOING, reason="Deleting")
    ways, problems = _ways(namespace, status, {namespace, *places.secrets})
    found = replace(found, ways=tuple(ways), problems=tuple(problems))
    healthy = condition(status, HEALTHY)
    if healthy.get("status") not in ("False", "Unknown"):
        return found
    return replace(
        found,
        state=BUILDING,
        reason=reason_of(healthy, "NotHealthy"),
        message=message_of(healthy) or f"{HEALTHY} is {healthy['status']}",
    )


def _ways(
    namespace: str, status: Mapping[str, Any], allowed: Collection[str]
) -> tuple[list[Way], list[str]]:
    ways: dict[Way, None] = {}
    problems: list[str] = []
    known = []
    for told in _entries(status, "accessProviders") + _entries(status, "credentialProviders"):
        name = str(told.get("name") or "")
        known.append(name)
        if name not in READERS:
            continue
        try:
            ways[_way(name, namespace, mapping(told.get("cluster")), allowed)] = None
        except ValueError as error:
            problems.append(f"access provider {name}: {error}")
    if known and not ways and not problems:
        shown = one_line(", ".join(sorted(set(known))))[:100]
        problems.append(f"no access provider is one of {' and '.join(READERS)} (there is {shown})")
    return list(ways), problems


def _entries(status: Mapping[str, Any], member: str) -> list[Mapping[str, Any]]:
    told = status.get(member)
    return [mapping(each) for each in told[:MAX_WAYS]] if isinstance(told, list) else []


def _way(name: str, namespace: str, cluster: Mapping[str, Any], allowed: Collection[str]) -> Way:
    """:raises ValueError: it leads nowhere."""
    told = _extension(cluster)
    place = dict(cluster)
    place.pop("extensions", None)
    encoded = json.dumps(place, sort_keys=True)
    if name == TOKEN_READER:
        secret = _name_in(told, "clusterName")
        return Way((namespace, secret), TOKEN_KEY, encoded, token=True)
    elsewhere = str(told.get("namespace") or namespace)
    if elsewhere not in allowed:
        raise ValueError(
            f"its Secret is in the namespace {one_line(elsewhere)[:63]}, which the provider does not allow;"
            " name that in the provider's Secret, or put the Secret beside the profile"
        )
    key, context = str(told.get("key") or ""), str(told.get("context") or "")
    if not key:
        raise ValueError(f"the extension {EXEC_EXTENSION} names no key")
    return Way((elsewhere, _name_in(told, "name")), key, encoded, context)


def _name_in(told: Mapping[str, Any], member: str) -> str:
    name = str(told.get(member) or "")
    if names.dns_subdomain(name):
        raise ValueError(f"the extension {EXEC_EXTENSION} has no {member} that is a Secret's name")
    return name


def _extension(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    told = cluster.get("extensions")
    for each in told if isinstance(told, list) else ():
        if isinstance(each, dict) and each.get("name") == EXEC_EXTENSION:
            return mapping(each.get("extension"))
    return {}


def pushed_for(secret: Object) -> str:
    """The profile of its namespace that a Secret was labelled for, or empty."""
    labels, place = _labels(secret), secret["metadata"].get("namespace")
    if labels.get(PUSHED_NAMESPACE, place) != place:
        return ""
    return str(labels.get(PUSHED_FOR) or "")


@dataclass(frozen=True)
class Found:
    """
    What a profile is to be reached with.

    :param way: ``None`` when ``secret`` is a whole kubeconfig.
    :param problem: why there is nothing.
    """

    secret: Object | None = field(default=None, repr=False)
    key: str = ""
    way: Way | None = None
    problem: str = ""


def by_ways(reading: Reading, secrets: Mapping[SecretName, Object]) -> Found | None:
    """The first way whose Secret has its key."""
    for way in reading.ways:
        secret = secrets.get(way.secret)
        if secret is None or is_withheld(secret):
            continue
        if mapping(secret.get("data")).get(way.key):
            return Found(secret, way.key, way)
    return None


def is_withheld(secret: Object) -> bool:
    """One that is this cluster's own affair, or ours: the profile names the server that would get it."""
    return secret.get("type") == ACCOUNT_TOKEN or _labels(secret).get(MANAGED_BY) == MANAGER


def by_push(reading: Reading, pushed: Iterable[Object]) -> Found:
    """The Secret that was labelled for a profile: one for this manager, or the only one."""
    for_it = [each for each in pushed if pushed_for(each) == reading.physical.name]
    for_us = [each for each in for_it if _labels(each).get(PUSHED_TO) == MANAGER]
    chosen = for_us or for_it
    if len(chosen) > 1:
        return Found(
            problem=f"{len(chosen)} Secrets are labelled {PUSHED_FOR}={reading.physical.name};"
            f" label the one that is meant {PUSHED_TO}={MANAGER}"
        )
    for secret in chosen:
        for key in PUSHED_KEYS:
            if mapping(secret.get("data")).get(key):
                return Found(secret, key)
    return Found(problem=_nowhere(reading))


def _nowhere(reading: Reading) -> str:
    missing = [
        f"secret {'/'.join(way.secret)} has nothing under \"{way.key}\", or is a ServiceAccount's or a Space's,"
        " whose tokens are not sent elsewhere"
        for way in reading.ways
    ]
    told = "; ".join([*missing, *reading.problems])
    return told or f"it has no access provider, and no Secret is labelled {PUSHED_FOR} for it"


def info_of(reading: Reading, found: Found) -> SpaceInfo:
    """A profile with what it is reached with; without access, which :func:`with_access` adds."""
    if found.secret is None and reading.state == USABLE:
        reading = replace(
            reading, state=BUILDING, reason="CredentialsMissing", message=found.problem
        )
    metadata = found.secret["metadata"] if found.secret else {}
    secret = [metadata.get("uid"), metadata.get("resourceVersion"), found.key]
    seen = repr((reading, [way.cluster for way in reading.ways], secret))
    return SpaceInfo(
        reading.physical,
        reading.state,
        reading.reason,
        reading.message,
        uid=reading.uid,
        version=hashlib.sha256(seen.encode()).hexdigest()[:16],
    )


def with_access(info: SpaceInfo, found: Found) -> SpaceInfo:
    """The same with the kubeconfig; from within and from outside it is one URL."""
    if found.secret is None or info.state != USABLE:
        return info
    try:
        access = _access(info.physical.name, found, found.secret)
    except KubeConfigError as error:
        return replace(info, state=BROKEN, reason="KubeconfigRefused", message=str(error))
    return replace(info, access=dict.fromkeys(VIEWPOINTS, access))


def _access(name: str, found: Found, secret: Object) -> Access:
    metadata = secret["metadata"]
    source = f'secret {metadata["namespace"]}/{metadata["name"]}, key "{found.key}"'
    content = value_of(secret, found.key) or b""
    if found.way is None:
        return clean(content, source, name)
    cluster = json.loads(found.way.cluster)
    if found.way.token:
        return combined(cluster, {"token": _token(content, source)}, source, name)
    return combined(cluster, user_of(content, source, found.way.context), source, name)


def _token(content: bytes, source: str) -> str:
    token = content.decode("latin-1").strip()
    if not token.isascii() or not token.isprintable() or " " in token or not token:
        raise KubeConfigError(f"{source}: it is no token; put there what the cluster gave")
    return token


def _labels(obj: Object) -> Mapping[str, Any]:
    return mapping(obj["metadata"].get("labels"))
