"""
KubeFlex: control planes that another program keeps, each a ControlPlane object.

Asked of it is what :mod:`.kubeflex_reading` can make sense of: a ControlPlane, its namespace, its Secret.
Namespaces are asked for first, and ControlPlanes then: so a namespace whose ControlPlane is not there is one
that is going, and never one whose ControlPlane was made meanwhile.

Lists cost two requests and one for each name that Secrets of control planes have (KubeFlex knows four), however
many there are, and hold no Secret's content; ``metadata.name`` as a selector is what rules of RBAC by name allow.

New credentials cannot be had, as KubeFlex makes them once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
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
from twisted_exec.spacemanager.providers.common.calls import CoroutineProvider
from twisted_exec.spacemanager.providers.common.cluster import ProviderCluster, reach, wrong_secret
from twisted_exec.spacemanager.providers.common.hints import (
    Changed,
    Hints,
    Watches,
    bare,
    unmanaged,
)
from twisted_exec.spacemanager.providers.common.kubeconfigs import KubeconfigVerdicts
from twisted_exec.spacemanager.providers.kubeflex.controlplanes import (
    ALLOWED,
    CONTROLPLANES,
    SUFFIX,
    TYPES,
    Reading,
    controlplane_of,
    info_of,
    left_of,
    maker_of,
    namespace_of,
    read,
    with_access,
)

TYPES_KEY = "types"
"""Of the provider's Secret: the types that Spaces may have, with commas between."""
MAX_SECRET_NAMES = 8
"""How many names of Secrets are looked at; further ones are read one by one, and not followed."""
_AGAIN_SECONDS = 5


@implementer(ISpaceProvider)
class KubeFlex(CoroutineProvider):
    """
    :param cluster: where KubeFlex is.
    :param clock: for what follows it.
    :param allowed: the types that may be made.
    :param allowing: where that is said, for messages.
    """

    default_parent = ""

    def __init__(
        self,
        cluster: ProviderCluster,
        clock: Any,
        allowed: Collection[str] = ALLOWED,
        allowing: str = "name it in the provider's Secret",
    ) -> None:
        self._cluster = cluster
        self._allowed, self._allowing = allowed, allowing
        self._watches = Watches(cluster.client, clock, _Followed)
        self._verdicts = KubeconfigVerdicts()

    def watch(self, changed: Changed) -> Callable[[], None]:
        """See :meth:`ISpaceProvider.watch`."""
        return self._watches.add(changed)

    def close(self) -> Deferred[None]:
        """See :meth:`ISpaceProvider.close`."""
        return self._watches.close().addCallback(lambda _: self._cluster.close())

    async def _create(self, physical: Physical, wanted: SpaceRequest) -> None:
        new = controlplane_of(physical, wanted, self._allowed, self._allowing)
        name = physical.name
        namespace = await self._cluster.find(NAMESPACES.resource, namespace_of(name))
        there = await self._cluster.find(CONTROLPLANES, name)
        if there is None:
            _check_namespace(name, namespace)
            making = self._cluster.client.create(CONTROLPLANES, new)
            try:
                await self._cluster.do(making, CONTROLPLANES, name)
            except AlreadyExists:
                there = await self._cluster.find(CONTROLPLANES, name)
        if there is not None:
            _check_ours(read(there), wanted.owner)

    async def _delete(self, physical: Physical, owner: str) -> None:
        there = await self._find(physical)
        if there is None:
            return
        reading = read(there)
        if not owner or reading.owner != owner:
            raise Conflict(
                f"the control plane {reading.name} was not made for this Space, and is left as it is"
            )
        if reading.state == GOING:
            return
        going = self._cluster.client.delete(CONTROLPLANES, reading.name, uid=reading.uid)
        try:
            await self._cluster.do(going, CONTROLPLANES, reading.name)
        except NotFound:
            return

    async def _find(self, physical: Physical) -> Object | None:
        if physical.parent or names.dns_subdomain(physical.name):
            return None  # what is no name of an object is none's, and is asked of nobody
        return await self._cluster.find(CONTROLPLANES, physical.name)

    async def _get(self, physical: Physical) -> SpaceInfo:
        if physical.parent or names.dns_subdomain(physical.name):
            raise _missing(physical)
        name = physical.name
        namespace = await self._cluster.find(NAMESPACES.resource, namespace_of(name))
        there = await self._cluster.find(CONTROLPLANES, name)
        if there is None:
            left = left_of(namespace) if namespace else None
            if left is None:
                raise _missing(physical)
            return left
        return await self._with_secret(read(there), namespace)

    async def _with_secret(self, reading: Reading, namespace: Object | None) -> SpaceInfo:
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
        left = [each for each in map(left_of, namespaces.values()) if each is not None]
        found = {each.physical: each for each in left}
        for reading in readings:
            place = namespace_of(reading.name)
            secret = secrets.get((place, reading.secret))
            found[Physical(reading.name)] = info_of(reading, namespaces.get(place), secret)
        return self._verdicts.applied(found.values())

    async def _list_names(self) -> Sequence[Physical]:
        left = [left_of(each) for each in await self._namespaces()]
        there = await self._list(CONTROLPLANES, bare)
        found = {Physical(each["metadata"]["name"]) for each in there}
        return sorted(found | {each.physical for each in left if each is not None})

    async def _namespaces(self) -> Iterable[Object]:
        """Those that may be of a ControlPlane."""
        found = await self._list(NAMESPACES.resource, bare)
        return [each for each in found if each["metadata"]["name"].endswith(SUFFIX)]

    async def _secrets(self, readings: Sequence[Reading]) -> dict[tuple[str, str], Object]:
        """Those that control planes name, by namespace and name, without what they hold."""
        wanted = dict.fromkeys((namespace_of(each.name), each.secret) for each in readings)
        known = _secret_names(readings)
        found = {}
        for name in known:
            chosen = f"metadata.name={name}"
            for each in await self._list(SECRETS.resource, _without_content, chosen):
                found[each["metadata"]["namespace"], name] = each
        for place, name in wanted:
            if name and name not in known:
                one = await self._cluster.find(SECRETS.resource, name, place)
                found |= {(place, name): _without_content(one)} if one else {}
        return found

    async def _list(
        self, resource: Any, trim: Callable[[Object], Object], field_selector: str = ""
    ) -> list[Object]:
        return await self._cluster.list(resource, trim=trim, field_selector=field_selector)


class _Followed:
    """What hints come from: ControlPlanes, their namespaces, and Secrets with the names that they tell."""

    def __init__(self, hints: Hints) -> None:
        self._hints = hints
        self._secrets: set[str] = set()
        hints.follow(CONTROLPLANES, self._controlplane, unmanaged, announce=True)
        hints.follow(NAMESPACES.resource, _of_namespace, bare)

    def _controlplane(self, before: Object | None, after: Object | None) -> Iterable[Physical]:
        was, now = _read(before), _read(after)
        if now is not None and now.secret:
            self._follow_secrets(now.secret)
        told = now or was
        # Conditions are written anew with other times only, again and again.
        return [Physical(told.name)] if told is not None and was != now else []

    def _follow_secrets(self, name: str) -> None:
        if name in self._secrets or len(self._secrets) >= MAX_SECRET_NAMES:
            return
        self._secrets.add(name)
        self._hints.follow(
            SECRETS.resource, _of_secret, bare, field_selector=f"metadata.name={name}"
        )


def _read(controlplane: Object | None) -> Reading | None:
    return None if controlplane is None else read(controlplane)


def _of_namespace(before: Object | None, after: Object | None) -> Iterable[Physical]:
    told = after or before
    if told is None or not maker_of(told):
        return []
    return [Physical(told["metadata"]["name"].removesuffix(SUFFIX))]


def _of_secret(before: Object | None, after: Object | None) -> Iterable[Physical]:
    told = after or before
    place = told["metadata"].get("namespace", "") if told else ""
    return [Physical(place.removesuffix(SUFFIX))] if place.endswith(SUFFIX) else []


def _secret_names(readings: Iterable[Reading]) -> Sequence[str]:
    found = dict.fromkeys(reading.secret for reading in readings if reading.secret)
    return list(found)[:MAX_SECRET_NAMES]


def _without_content(secret: Object) -> Object:
    """Which keys hold something, and nothing of what."""
    held = secret.get("data") or {}
    return {**bare(secret), "data": {key: "x" for key, value in held.items() if value}}


def _check_namespace(name: str, namespace: Object | None) -> None:
    if namespace is None:
        return
    place = namespace_of(name)
    if maker_of(namespace) or namespace["metadata"].get("deletionTimestamp"):
        raise Conflict(
            f"the namespace {place} of the control plane {name} before is still being deleted",
            retry_after_seconds=_AGAIN_SECONDS,
        )
    raise BadRequest(
        f"no control plane can be called {name}: its namespace {place} is there already, and is another's;"
        " choose another name"
    )


def _check_ours(reading: Reading, owner: str) -> None:
    if reading.owner != owner:
        taken = AlreadyExists(CONTROLPLANES.plural, reading.name, CONTROLPLANES.group)
        taken.message += ", and was not made for this Space; choose another name, or delete it"
        raise taken
    if reading.state == GOING:
        raise Conflict(
            f"the control plane {reading.name} before is still being deleted",
            retry_after_seconds=_AGAIN_SECONDS,
        )


def _missing(physical: Physical) -> APIError:
    told = f"there is no control plane {str(physical)[:80]!a}"
    return NotFound(CONTROLPLANES.plural, physical.name, CONTROLPLANES.group, told)


def make(spec: ProviderSpec, around: ProviderContext) -> ISpaceProvider:
    """See :data:`~twisted_exec.spacemanager.interfaces.MakeProvider`."""
    cluster = reach(spec, around, [TYPES_KEY])
    told = (spec.secret or {}).get(TYPES_KEY)
    allowed = ALLOWED if told is None else _allowed(spec, told)
    where = f"of secret {spec.secret_ref}" if spec.secret_ref else "of a Secret in spec.secretRef"
    return KubeFlex(
        cluster, around.reactor, allowed, f'name it under the key "{TYPES_KEY}" {where}'
    )


def _allowed(spec: ProviderSpec, told: bytes) -> frozenset[str]:
    found = frozenset(filter(None, told.decode("ascii", "replace").replace(",", " ").split()))
    if not found or not found <= set(TYPES):
        raise wrong_secret(
            spec,
            f'secret {spec.secret_ref}, key "{TYPES_KEY}": it must be some of {", ".join(TYPES)},'
            " with commas between",
        )
    return found
