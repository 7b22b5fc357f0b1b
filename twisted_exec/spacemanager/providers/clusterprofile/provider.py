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

from collections.abc import Callable, Iterable, Mapping, Sequence

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.api import names
from twisted_exec.api.kinds import SECRETS
from twisted_exec.api.kinds.clusterprofiles import CLUSTERPROFILES
from twisted_exec.api.status import AlreadyExists, APIError, BadRequest, Conflict, NotFound
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.interfaces import (
    GOING,
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
from twisted_exec.spacemanager.providers.cluster import ProviderCluster, reach, wrong_secret
from twisted_exec.spacemanager.providers.clusterprofile.credentials import (
    ProfileCredentials,
    by_push,
    by_ways,
    info_of,
    with_access,
)
from twisted_exec.spacemanager.providers.clusterprofile.profiles import (
    PUSHED_FOR,
    Places,
    ProfileFields,
    SecretName,
    is_ours,
    pushed_for,
    read,
)
from twisted_exec.spacemanager.providers.credentials import KubeconfigVerdicts

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
        self,
        cluster: ProviderCluster,
        clock: IReactorTime,
        places: Places | None = None,
        name: str = "",
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
