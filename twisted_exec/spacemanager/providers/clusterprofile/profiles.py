"""ClusterProfile objects, and the ways to the credentials of their clusters, sans I/O."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from twisted_exec.api import names
from twisted_exec.api.conditions import condition_of
from twisted_exec.api.kinds.clusterprofiles import HEALTHY, MANAGER_LABEL
from twisted_exec.api.lenient import mapping
from twisted_exec.api.spaces import MANAGER
from twisted_exec.api.status import one_line
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.loader import EXEC_EXTENSION
from twisted_exec.spacemanager.interfaces import BUILDING, GOING, USABLE, Physical
from twisted_exec.spacemanager.providers.cluster import message_of, reason_of

TOKEN_READER, KUBECONFIG_READER = "secretreader", "kubeconfig-secretreader"
READERS = (TOKEN_READER, KUBECONFIG_READER)
TOKEN_KEY = "token"
PUSHED_FOR, PUSHED_TO = "x-k8s.io/cluster-profile", "x-k8s.io/cluster-inventory-consumer"
PUSHED_NAMESPACE = "x-k8s.io/cluster-profile-namespace"
PUSHED_KEYS = ("Config", "config")
"""Keys of such a Secret: the proposal specifies the first, some programs write the second."""

MAX_WAYS = 8

SecretName = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True)
class AccessWay:
    """An access provider of a profile: a cluster, and the Secret with its credentials."""

    secret: SecretName
    key: str
    cluster: str = field(repr=False)
    context: str = ""
    token: bool = False


@dataclass(frozen=True)
class ProfileFields:
    """The relevant fields of a ClusterProfile, comparable by value."""

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
        return Physical(name, "" if namespace == self.default else namespace)

    def namespace(self, physical: Physical) -> str:
        """Return the namespace of a profile; empty if there cannot be such a profile."""
        if not physical.parent:
            return self.default
        if self.only or physical.parent == self.default or names.dns_label(physical.parent):
            return ""
        return physical.parent


def is_ours(profile: Object) -> bool:
    """Return whether a space manager has written this profile."""
    manager = mapping(mapping(profile.get("spec")).get("clusterManager")).get("name")
    return MANAGER in (manager, labels_of(profile).get(MANAGER_LABEL))


def read(profile: Object, places: Places) -> ProfileFields:
    """Read a ClusterProfile, without its Secrets."""
    metadata, status = profile["metadata"], mapping(profile.get("status"))
    namespace = str(metadata.get("namespace") or "")
    physical = places.physical(namespace, metadata["name"])
    reading = ProfileFields(physical, namespace, str(metadata.get("uid") or ""), USABLE)
    if metadata.get("deletionTimestamp"):
        return replace(reading, state=GOING, reason="Deleting")
    ways, problems = _ways(namespace, status, {namespace, *places.secrets})
    reading = replace(reading, ways=tuple(ways), problems=tuple(problems))
    healthy = condition_of({"status": status}, HEALTHY)
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
    labels, place = labels_of(secret), secret["metadata"].get("namespace")
    if labels.get(PUSHED_NAMESPACE, place) != place:
        return ""
    return str(labels.get(PUSHED_FOR) or "")


def labels_of(obj: Object) -> Mapping[str, Any]:
    return mapping(obj["metadata"].get("labels"))
