"""
ClusterProfiles: discovers the clusters of an inventory, and reads their credentials from Secrets.

Other programs create and delete these clusters, so such requests are refused.

A ClusterProfile names *access providers*, each with a cluster entry as in a kubeconfig. We run no
plugins, and implement two of them: ``secretreader`` and ``kubeconfig-secretreader``. The older way
is a Secret with a whole kubeconfig, labelled with the name of the profile.

Writers of a profile's status choose a Secret for us to read, and its credentials go to the server
that the profile names. So the Secret must be in the namespace of the profile or in one that the
provider's Secret allows, and must not belong to a ServiceAccount or a Space.

Source: ``kubernetes-sigs/cluster-inventory-api`` v0.1.2 (``apis/v1alpha1``, ``plugins``);
``kubernetes-sigs/multicluster-runtime`` v0.24.1
(``providers/cluster-inventory-api/kubeconfigstrategy``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api import names
from twisted_exec.api.conditions import condition_of
from twisted_exec.api.kinds import SECRETS
from twisted_exec.api.kinds.clusterprofiles import CLUSTERPROFILES, HEALTHY, MANAGER_LABEL
from twisted_exec.api.kinds.secrets import value_of
from twisted_exec.api.spaces import MANAGED_BY, MANAGER, VIEWPOINTS
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadRequest,
    Conflict,
    NotFound,
    one_line,
)
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.loader import EXEC_EXTENSION
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
    BUILDING,
    GOING,
    USABLE,
    Access,
    ISpaceProvider,
    Physical,
    ProviderContext,
    ProviderSpec,
    SpaceInfo,
    SpaceRequest,
)
from twisted_exec.spacemanager.providers.base import (
    Changed,
    CoroutineProvider,
    Hints,
    ProviderWatches,
    bare,
    unmanaged,
)
from twisted_exec.spacemanager.providers.cluster import (
    ProviderCluster,
    mapping,
    message_of,
    reach,
    reason_of,
    wrong_secret,
)
from twisted_exec.spacemanager.providers.credentials import (
    KubeconfigVerdicts,
    clean,
    combined,
    user_of,
)

PROFILES = CLUSTERPROFILES.resource
NAMESPACE_KEY, SECRET_NAMESPACES_KEY = "namespace", "secret-namespaces"
"""
Keys in the provider's Secret: the only namespace with profiles, and a comma-separated list of
further namespaces whose Secrets profiles may name.
"""
MAX_NAMESPACES = 10
"""Limit of namespaces with a list and a watch each; above it, one list covers all namespaces."""


@implementer(ISpaceProvider)
class ClusterProfiles(CoroutineProvider):
    """See :class:`ISpaceProvider`; creating and deleting are refused."""

    def __init__(
        self, cluster: ProviderCluster, clock: Any, places: Places | None = None, name: str = ""
    ) -> None:
        self._cluster, self._name = cluster, name
        self._places = chosen = places or Places()
        self.default_parent = self._places.default
        self._watches = ProviderWatches(
            cluster.client, clock, lambda hints: _Watched(hints, chosen)
        )
        self._verdicts = KubeconfigVerdicts()

    def watch(self, changed: Changed) -> Callable[[], None]:
        return self._watches.add(changed)

    def close(self) -> Deferred[None]:
        return self._watches.close().addCallback(lambda _: self._cluster.close())

    async def _create(self, physical: Physical, request: SpaceRequest) -> None:
        if await self._find(physical) is not None:
            error = AlreadyExists(PROFILES.plural, physical.name, PROFILES.group)
            error.message += ", and was not created for this Space; make that Space unmanaged"
            raise error
        raise BadRequest(
            f"provider {self._name!a} discovers the clusters of ClusterProfiles, and cannot create any;"
            " create the cluster with the tool that maintains the inventory, or choose another provider"
        )

    async def _delete(self, physical: Physical, owner: str) -> None:
        if await self._find(physical) is not None:
            raise Conflict(
                f"the cluster {physical} was not created for this Space, and is not deleted;"
                " delete it with the tool that maintains the inventory"
            )

    async def _find(self, physical: Physical) -> Object | None:
        namespace = self._places.namespace(physical)
        if not namespace or names.dns_subdomain(physical.name):
            return None  # not a valid name, so no request is sent
        profile = await self._cluster.find(PROFILES, physical.name, namespace)
        return None if profile is None or is_ours(profile) else profile

    async def _get(self, physical: Physical) -> SpaceInfo:
        profile = await self._find(physical)
        if profile is None:
            raise _missing(physical)
        reading = read(profile, self._places)
        credentials = await self._credentials(reading)
        return self._verdicts.note(with_access(info_of(reading, credentials), credentials))

    async def _credentials(self, reading: ProfileFields) -> ProfileCredentials:
        secrets: dict[SecretName, Object] = {}
        for way in reading.ways:
            if way.secret in secrets:
                continue
            secret = await self._cluster.find(SECRETS.resource, way.secret[1], way.secret[0])
            if secret is not None:
                secrets[way.secret] = secret
        if credentials := by_ways(reading, secrets):
            return credentials
        pushed = await self._cluster.list(
            SECRETS.resource,
            reading.namespace,
            trim=_whole,
            label_selector=f"{PUSHED_FOR}={reading.physical.name}"
            if not names.label_value(reading.physical.name)
            else PUSHED_FOR,
        )
        return by_push(reading, pushed)

    async def _list_spaces(self) -> Sequence[SpaceInfo]:
        readings = await self._readings()
        secrets = await self._secrets(readings)
        pushed: dict[SecretName, list[Object]] = {}
        for (namespace, _name), secret in secrets.items():
            if name := pushed_for(secret):
                pushed.setdefault((namespace, name), []).append(secret)
        return self._verdicts.applied(
            info_of(reading, _chosen(reading, secrets, pushed)) for reading in readings
        )

    async def _list_names(self) -> Sequence[Physical]:
        return sorted(reading.physical for reading in await self._readings())

    async def _readings(self) -> Sequence[ProfileFields]:
        place = self._places.default if self._places.only else ""
        listed = await self._cluster.list(PROFILES, place, trim=unmanaged)
        return [read(each, self._places) for each in listed if not is_ours(each)]

    async def _secrets(self, readings: Sequence[ProfileFields]) -> Mapping[SecretName, Object]:
        places = _secret_places(readings)
        secrets = {}
        for place in places if len(places) <= MAX_NAMESPACES else [""]:
            for each in await self._cluster.list(SECRETS.resource, place, trim=_without_content):
                secrets[each["metadata"]["namespace"], each["metadata"]["name"]] = each
        return secrets


class _Watched:
    def __init__(self, hints: Hints, places: Places) -> None:
        self._hints, self._places = hints, places
        self._secrets: dict[SecretName, set[Physical]] = {}
        self._followed: set[str] = set()
        hints.follow(
            PROFILES,
            self._profile,
            unmanaged,
            namespace=places.default if places.only else "",
            announce=True,
        )

    def _profile(self, before: Object | None, after: Object | None) -> Iterable[Physical]:
        was, now = self._read(before), self._read(after)
        if was == now:
            return []
        if was is not None:
            self._forget(was)
        if now is not None:
            for way in now.ways:
                self._secrets.setdefault(way.secret, set()).add(now.physical)
            for place in _secret_places([now]):
                self._follow(place)
        return {each.physical for each in (was, now) if each is not None}

    def _forget(self, reading: ProfileFields) -> None:
        for way in reading.ways:
            users = self._secrets.get(way.secret, set())
            users.discard(reading.physical)
            if not users:
                self._secrets.pop(way.secret, None)

    def _read(self, profile: Object | None) -> ProfileFields | None:
        return None if profile is None or is_ours(profile) else read(profile, self._places)

    def _follow(self, place: str) -> None:
        if place not in self._followed and len(self._followed) < MAX_NAMESPACES:
            self._followed.add(place)
            self._hints.follow(SECRETS.resource, self._secret, _labelled, namespace=place)

    def _secret(self, before: Object | None, after: Object | None) -> Iterable[Physical]:
        changed: set[Physical] = set()
        for secret in (before, after):
            if secret is not None:
                place, name = secret["metadata"]["namespace"], secret["metadata"]["name"]
                changed |= self._secrets.get((place, name), set())
                if profile := pushed_for(secret):
                    changed.add(self._places.physical(place, profile))
        return changed


def _secret_places(readings: Iterable[ProfileFields]) -> list[str]:
    places = {reading.namespace for reading in readings if reading.state != GOING}
    places |= {way.secret[0] for reading in readings for way in reading.ways}
    return sorted(places)


def _chosen(
    reading: ProfileFields,
    secrets: Mapping[SecretName, Object],
    pushed: Mapping[SecretName, Sequence[Object]],
) -> ProfileCredentials:
    labelled = pushed.get((reading.namespace, reading.physical.name), ())
    return by_ways(reading, secrets) or by_push(reading, labelled)


def _whole(obj: Object) -> Object:
    return obj


def _labelled(obj: Object) -> Object:
    trimmed = bare(obj)
    trimmed["metadata"]["labels"] = obj["metadata"].get("labels")
    return trimmed


def _without_content(secret: Object) -> Object:
    data = secret.get("data") or {}
    keys = {key: "x" for key, value in data.items() if value}
    return {**_labelled(secret), "type": secret.get("type", ""), "data": keys}


def _missing(physical: Physical) -> APIError:
    message = f"there is no ClusterProfile {str(physical)[:80]!a}"
    return NotFound(PROFILES.plural, physical.name, PROFILES.group, message)


def make(spec: ProviderSpec, context: ProviderContext) -> ISpaceProvider:
    """See :data:`~twisted_exec.spacemanager.interfaces.MakeProvider`."""
    cluster = reach(spec, context, [NAMESPACE_KEY, SECRET_NAMESPACES_KEY])
    only = _namespaces(spec, NAMESPACE_KEY)
    if len(only) > 1:
        raise wrong_secret(
            spec, f'secret {spec.secret_ref}, key "{NAMESPACE_KEY}": must be one namespace'
        )
    places = Places(secrets=_namespaces(spec, SECRET_NAMESPACES_KEY))
    for namespace in only:
        places = Places(namespace, True, places.secrets)
    return ClusterProfiles(cluster, context.reactor, places, spec.name)


def _namespaces(spec: ProviderSpec, key: str) -> frozenset[str]:
    value = (spec.secret or {}).get(key, b"").decode("ascii", "replace")
    namespaces = frozenset(value.replace(",", " ").split())
    if any(map(names.dns_label, namespaces)):
        raise wrong_secret(
            spec,
            f'secret {spec.secret_ref}, key "{key}": must be a comma-separated list of namespaces',
        )
    return namespaces


TOKEN_READER, KUBECONFIG_READER = "secretreader", "kubeconfig-secretreader"
READERS = (TOKEN_READER, KUBECONFIG_READER)
TOKEN_KEY = "token"
ACCOUNT_TOKEN = "kubernetes.io/service-account-token"
"""Type of Secrets with tokens of ServiceAccounts."""
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
    return MANAGER in (manager, _labels(profile).get(MANAGER_LABEL))


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
    labels, place = _labels(secret), secret["metadata"].get("namespace")
    if labels.get(PUSHED_NAMESPACE, place) != place:
        return ""
    return str(labels.get(PUSHED_FOR) or "")


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
    return secret.get("type") == ACCOUNT_TOKEN or _labels(secret).get(MANAGED_BY) == MANAGER


def by_push(reading: ProfileFields, pushed: Iterable[Object]) -> ProfileCredentials:
    """Return the Secret labelled for a profile: one for this manager, or the only one."""
    for_it = [each for each in pushed if pushed_for(each) == reading.physical.name]
    for_us = [each for each in for_it if _labels(each).get(PUSHED_TO) == MANAGER]
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


def _labels(obj: Object) -> Mapping[str, Any]:
    return mapping(obj["metadata"].get("labels"))
