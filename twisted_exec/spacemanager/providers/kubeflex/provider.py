"""
KubeFlex: control planes as ControlPlane objects, which KubeFlex's manager reconciles.

The objects of a ControlPlane are in the namespace ``NAME-system``, which KubeFlex's manager creates
with an ownerReference. So a ControlPlane is gone when its namespace is.

The provider reads namespaces before ControlPlanes, so that it does not mistake a new ControlPlane
for a deleted one. A viewpoint's key in the Secret may be missing: some types never write it, others
only some time after Ready.

Source: ``kubestellar/kubeflex`` (``api/v1alpha1``, ``pkg/reconcilers/{shared,k3s,host,external}``,
``internal/controller``), from v0.9.3 of January 2026 to July 2026.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.api import names
from twisted_exec.api.kinds import NAMESPACES, SECRETS
from twisted_exec.api.status import AlreadyExists, APIError, BadRequest, Conflict, NotFound
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
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
from twisted_exec.spacemanager.providers.credentials import KubeconfigVerdicts
from twisted_exec.spacemanager.providers.kubeflex.controlplanes import (
    CONTROLPLANES,
    SUFFIX,
    ControlPlaneFields,
    info_of,
    left_of,
    maker_of,
    namespace_of,
    read,
    with_access,
)
from twisted_exec.spacemanager.providers.kubeflex.parameters import ALLOWED, TYPES, controlplane_of

TYPES_KEY = "types"
"""Key in the provider's Secret: comma-separated list of the allowed types."""
MAX_SECRET_NAMES = 8
"""Limit of listed and watched names; Secrets with other names are read one by one."""
_AGAIN_SECONDS = 5


@implementer(ISpaceProvider)
class KubeFlex(CoroutineProvider):
    """See :class:`ISpaceProvider`."""

    default_parent = ""

    def __init__(
        self,
        cluster: ProviderCluster,
        clock: IReactorTime,
        allowed: Collection[str] = ALLOWED,
        allowing: str = "name it in the provider's Secret",
    ) -> None:
        self._cluster = cluster
        self._allowed, self._allowing = allowed, allowing
        self._watches = ProviderWatches(cluster.client, clock, _Watched)
        self._verdicts = KubeconfigVerdicts()

    def watch(self, changed: Changed) -> Callable[[], None]:
        return self._watches.add(changed)

    def close(self) -> Deferred[None]:
        return self._watches.close().addCallback(lambda _: self._cluster.close())

    async def _create(self, physical: Physical, request: SpaceRequest) -> None:
        new = controlplane_of(physical, request, self._allowed, self._allowing)
        name = physical.name
        namespace = await self._cluster.find(NAMESPACES.resource, namespace_of(name))
        existing = await self._cluster.find(CONTROLPLANES, name)
        if existing is None:
            _check_namespace(name, namespace)
            making = self._cluster.client.create(CONTROLPLANES, new)
            try:
                await self._cluster.do(making, CONTROLPLANES, name)
            except AlreadyExists:
                existing = await self._cluster.find(CONTROLPLANES, name)
        if existing is not None:
            _check_ours(read(existing), request.owner)

    async def _delete(self, physical: Physical, owner: str) -> None:
        controlplane = await self._find(physical)
        if controlplane is None:
            return
        reading = read(controlplane)
        if not owner or reading.owner != owner:
            raise Conflict(
                f"the control plane {reading.name} was not created for this Space, and is not deleted"
            )
        if reading.state == GOING:
            return
        deleting = self._cluster.client.delete(CONTROLPLANES, reading.name, uid=reading.uid)
        try:
            await self._cluster.do(deleting, CONTROLPLANES, reading.name)
        except NotFound:
            return

    async def _find(self, physical: Physical) -> Object | None:
        if physical.parent or names.dns_subdomain(physical.name):
            return None  # not a valid name, so no request is sent
        return await self._cluster.find(CONTROLPLANES, physical.name)

    async def _get(self, physical: Physical) -> SpaceInfo:
        if physical.parent or names.dns_subdomain(physical.name):
            raise _missing(physical)
        name = physical.name
        namespace = await self._cluster.find(NAMESPACES.resource, namespace_of(name))
        controlplane = await self._cluster.find(CONTROLPLANES, name)
        if controlplane is None:
            left = left_of(namespace) if namespace else None
            if left is None:
                raise _missing(physical)
            return left
        return await self._with_secret(read(controlplane), namespace)

    async def _with_secret(
        self, reading: ControlPlaneFields, namespace: Object | None
    ) -> SpaceInfo:
        secret, info = None, info_of(reading, namespace, None)
        if reading.secret and info.state not in (BROKEN, GOING):
            place = namespace_of(reading.name)
            secret = await self._cluster.find(SECRETS.resource, reading.secret, place)
            info = with_access(info_of(reading, namespace, secret), reading, secret)
        return self._verdicts.note(info)

    async def _list_spaces(self) -> Sequence[SpaceInfo]:
        namespaces = {each["metadata"]["name"]: each for each in await self._namespaces()}
        readings = [read(each) for each in await self._list(CONTROLPLANES, unmanaged)]
        secrets = await self._secrets(readings)
        remaining = [each for each in map(left_of, namespaces.values()) if each is not None]
        infos = {each.physical: each for each in remaining}
        for reading in readings:
            place = namespace_of(reading.name)
            secret = secrets.get((place, reading.secret))
            infos[Physical(reading.name)] = info_of(reading, namespaces.get(place), secret)
        return self._verdicts.applied(infos.values())

    async def _list_names(self) -> Sequence[Physical]:
        remaining = [left_of(each) for each in await self._namespaces()]
        controlplanes = await self._list(CONTROLPLANES, bare)
        names_ = {Physical(each["metadata"]["name"]) for each in controlplanes}
        return sorted(names_ | {each.physical for each in remaining if each is not None})

    async def _namespaces(self) -> Iterable[Object]:
        namespaces = await self._list(NAMESPACES.resource, bare)
        return [each for each in namespaces if each["metadata"]["name"].endswith(SUFFIX)]

    async def _secrets(
        self, readings: Sequence[ControlPlaneFields]
    ) -> dict[tuple[str, str], Object]:
        keys = dict.fromkeys((namespace_of(each.name), each.secret) for each in readings)
        listed = _secret_names(readings)
        secrets = {}
        for name in listed:
            selector = f"metadata.name={name}"
            for each in await self._list(SECRETS.resource, _without_content, selector):
                secrets[each["metadata"]["namespace"], name] = each
        for place, name in keys:
            if name and name not in listed:
                secret = await self._cluster.find(SECRETS.resource, name, place)
                secrets |= {(place, name): _without_content(secret)} if secret else {}
        return secrets

    async def _list(
        self, resource: Any, trim: Callable[[Object], Object], field_selector: str = ""
    ) -> list[Object]:
        return await self._cluster.list(resource, trim=trim, field_selector=field_selector)


class _Watched:
    def __init__(self, hints: Hints) -> None:
        self._hints = hints
        self._secrets: set[str] = set()
        hints.follow(CONTROLPLANES, self._controlplane, unmanaged, announce=True)
        hints.follow(NAMESPACES.resource, _spaces_of_namespace, bare)

    def _controlplane(self, before: Object | None, after: Object | None) -> Iterable[Physical]:
        was, now = _read(before), _read(after)
        if now is not None and now.secret:
            self._follow_secrets(now.secret)
        latest = now or was
        # KubeFlex keeps rewriting conditions with only the times changed.
        return [Physical(latest.name)] if latest is not None and was != now else []

    def _follow_secrets(self, name: str) -> None:
        if name in self._secrets or len(self._secrets) >= MAX_SECRET_NAMES:
            return
        self._secrets.add(name)
        self._hints.follow(
            SECRETS.resource, _spaces_of_secret, bare, field_selector=f"metadata.name={name}"
        )


def _read(controlplane: Object | None) -> ControlPlaneFields | None:
    return None if controlplane is None else read(controlplane)


def _spaces_of_namespace(before: Object | None, after: Object | None) -> Iterable[Physical]:
    namespace = after or before
    if namespace is None or not maker_of(namespace):
        return []
    return [Physical(namespace["metadata"]["name"].removesuffix(SUFFIX))]


def _spaces_of_secret(before: Object | None, after: Object | None) -> Iterable[Physical]:
    secret = after or before
    place = secret["metadata"].get("namespace", "") if secret else ""
    return [Physical(place.removesuffix(SUFFIX))] if place.endswith(SUFFIX) else []


def _secret_names(readings: Iterable[ControlPlaneFields]) -> Sequence[str]:
    secret_names = dict.fromkeys(reading.secret for reading in readings if reading.secret)
    return list(secret_names)[:MAX_SECRET_NAMES]


def _without_content(secret: Object) -> Object:
    data = secret.get("data") or {}
    return {**bare(secret), "data": {key: "x" for key, value in data.items() if value}}


def _check_namespace(name: str, namespace: Object | None) -> None:
    if namespace is None:
        return
    place = namespace_of(name)
    if maker_of(namespace) or namespace["metadata"].get("deletionTimestamp"):
        raise Conflict(
            f"the namespace {place} of the previous control plane {name} is still being deleted",
            retry_after_seconds=_AGAIN_SECONDS,
        )
    raise BadRequest(
        f"the control plane {name} cannot be created: its namespace {place} exists already;"
        " choose another name"
    )


def _check_ours(reading: ControlPlaneFields, owner: str) -> None:
    if reading.owner != owner:
        error = AlreadyExists(CONTROLPLANES.plural, reading.name, CONTROLPLANES.group)
        error.message += ", and was not created for this Space; choose another name, or delete it"
        raise error
    if reading.state == GOING:
        raise Conflict(
            f"the previous control plane {reading.name} is still being deleted",
            retry_after_seconds=_AGAIN_SECONDS,
        )


def _missing(physical: Physical) -> APIError:
    message = f"there is no control plane {str(physical)[:80]!a}"
    return NotFound(CONTROLPLANES.plural, physical.name, CONTROLPLANES.group, message)


def make(spec: ProviderSpec, context: ProviderContext) -> ISpaceProvider:
    """See :data:`~twisted_exec.spacemanager.interfaces.MakeProvider`."""
    cluster = reach(spec, context, [TYPES_KEY])
    value = (spec.secret or {}).get(TYPES_KEY)
    allowed = ALLOWED if value is None else _allowed(spec, value)
    where = f"of secret {spec.secret_ref}" if spec.secret_ref else "of a Secret in spec.secretRef"
    return KubeFlex(
        cluster, context.reactor, allowed, f'name it under the key "{TYPES_KEY}" {where}'
    )


def _allowed(spec: ProviderSpec, value: bytes) -> frozenset[str]:
    types = frozenset(filter(None, value.decode("ascii", "replace").replace(",", " ").split()))
    if not types or not types <= set(TYPES):
        raise wrong_secret(
            spec,
            f'secret {spec.secret_ref}, key "{TYPES_KEY}": must be a comma-separated list of {", ".join(TYPES)}',
        )
    return types
