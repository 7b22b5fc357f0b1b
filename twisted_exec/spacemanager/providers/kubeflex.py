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

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api import names
from twisted_exec.api.conditions import condition_of
from twisted_exec.api.kinds import NAMESPACES, SECRETS
from twisted_exec.api.kinds.secrets import value_of
from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import EXTERNAL, IN_CLUSTER
from twisted_exec.api.status import AlreadyExists, APIError, BadRequest, Conflict, NotFound
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
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
    mark,
    message_of,
    owner_of,
    reach,
    reason_of,
    wrong_secret,
)
from twisted_exec.spacemanager.providers.credentials import KubeconfigVerdicts, clean

GROUP = "tenancy.kflex.kubestellar.org"
CONTROLPLANES = Resource(GROUP, "v1alpha1", "controlplanes", "ControlPlane", namespaced=False)
SUFFIX = "-system"
RESERVED = ("kube", "kubeflex")
"""Names whose namespaces exist already, with other credentials in them."""
EXTERNAL_TYPE = "external"
LONGEST_NAME = 63 - len(SUFFIX)


@dataclass(frozen=True)
class ControlPlaneFields:
    """
    The relevant fields of a ControlPlane, comparable by value.

    :param secret: name of the Secret in the ControlPlane's namespace; empty before it is known.
    :param keys: keys of the Secret by viewpoint.
    """

    name: str
    uid: str
    owner: str
    type: str
    state: str
    reason: str = ""
    message: str = ""
    secret: str = ""
    keys: tuple[tuple[str, str], ...] = ()


def namespace_of(name: str) -> str:
    """Return the namespace of a ControlPlane."""
    return f"{name}{SUFFIX}"


def name_problem(name: str) -> str:
    """Return why a name is not accepted, or empty."""
    if name in RESERVED:
        return f"its credentials would be in the namespace {namespace_of(name)}, which is another's"
    if len(name) > LONGEST_NAME or names.dns_label(name):
        return (
            f"{namespace_of('NAME')} must be a namespace: at most {LONGEST_NAME} of a-z, 0-9 and '-',"
            " and a letter or digit at both ends"
        )
    return ""


def read(controlplane: Object) -> ControlPlaneFields:
    """Read a ControlPlane, without its namespace and its Secret."""
    metadata, status = controlplane["metadata"], mapping(controlplane.get("status"))
    spec = mapping(controlplane.get("spec"))
    reading = ControlPlaneFields(
        metadata["name"],
        str(metadata.get("uid") or ""),
        owner_of(controlplane),
        str(spec.get("type") or ""),
        BUILDING,
    )
    if metadata.get("deletionTimestamp"):
        return replace(reading, state=GOING, reason="Deleting", message=_held_by(metadata))
    if problem := name_problem(reading.name):
        return replace(reading, state=BROKEN, reason="NameRefused", message=problem)
    return _with_secret(_with_conditions(reading, status), mapping(status.get("secretRef")))


def _held_by(metadata: Mapping[str, Any]) -> str:
    finalizers = ", ".join(map(str, metadata.get("finalizers") or ()))
    return (
        f"waiting for KubeFlex's manager to remove the finalizers {finalizers}"
        if finalizers
        else ""
    )


def _with_conditions(reading: ControlPlaneFields, status: Mapping[str, Any]) -> ControlPlaneFields:
    ready, synced = (condition_of({"status": status}, type) for type in ("Ready", "Synced"))
    if not ready and not synced:
        message = "KubeFlex has not set any conditions yet; if that lasts, check that its manager is running"
        return replace(reading, reason="NotReconciled", message=message)
    worst = synced if synced.get("status") == "False" else ready
    reading = replace(reading, message=message_of(worst))
    if ready.get("status") == "True" and ready.get("reason") == "Available":
        return replace(reading, state=USABLE)
    return replace(reading, reason=reason_of(worst, "NotReady"))


def _with_secret(reading: ControlPlaneFields, reference: Mapping[str, Any]) -> ControlPlaneFields:
    name, namespace = str(reference.get("name") or ""), str(reference.get("namespace") or "")
    if not name:
        return _not_yet(reading, "status.secretRef names no Secret yet")
    if namespace != namespace_of(reading.name) or names.dns_subdomain(name):
        message = (
            f"status.secretRef does not name a Secret in the namespace {namespace_of(reading.name)}"
        )
        return replace(reading, state=BROKEN, reason="ForeignSecret", message=message)
    pairs = ((IN_CLUSTER, reference.get("inClusterKey")), (EXTERNAL, reference.get("key")))
    keys = tuple((viewpoint, str(key)) for viewpoint, key in pairs if key)
    if not keys:
        return _not_yet(replace(reading, secret=name), "status.secretRef names no key")
    return replace(reading, secret=name, keys=keys)


def _not_yet(reading: ControlPlaneFields, message: str) -> ControlPlaneFields:
    if reading.state != USABLE:
        return reading
    return replace(reading, state=BUILDING, reason="CredentialsMissing", message=message)


def info_of(
    reading: ControlPlaneFields, namespace: Object | None, secret: Object | None
) -> SpaceInfo:
    """
    Return the state of a ControlPlane, without access.

    :param secret: may lack its values.
    """
    reading = _in_namespace(reading, namespace)
    if reading.state == USABLE and not present(reading, secret):
        reading = _not_yet(reading, _missing_secret(reading, secret))
    # The Secret of a refused or deleted ControlPlane is never read.
    relevant = reading.state not in (BROKEN, GOING)
    version = str(secret["metadata"].get("resourceVersion")) if secret and relevant else ""
    return SpaceInfo(
        Physical(reading.name),
        reading.state,
        reading.reason,
        reading.message,
        reading.owner,
        reading.uid,
        _digest(reading, version),
    )


def _in_namespace(reading: ControlPlaneFields, namespace: Object | None) -> ControlPlaneFields:
    if namespace is None or reading.state in (GOING, BROKEN):
        return reading
    name, owner = namespace_of(reading.name), maker_of(namespace)
    if owner == reading.uid and owner:
        return reading
    if owner:
        message = f"the namespace {name} of the previous ControlPlane is still being deleted"
        return replace(reading, state=BUILDING, reason="NamespaceTerminating", message=message)
    message = (
        f"the namespace {name} does not belong to this ControlPlane, so nothing is read from it;"
        " delete the ControlPlane, and choose a name whose namespace does not exist"
    )
    return replace(reading, state=BROKEN, reason="NamespaceTaken", message=message)


def maker_of(namespace: Object) -> str:
    """Return the UID of the ControlPlane that owns a namespace, or empty."""
    metadata = namespace["metadata"]
    for reference in metadata.get("ownerReferences") or ():
        group = str(reference.get("apiVersion") or "").partition("/")[0]
        named = (group, reference.get("kind"), namespace_of(str(reference.get("name"))))
        if named == (GROUP, CONTROLPLANES.kind, metadata["name"]):
            return str(reference.get("uid") or "")
    return ""


def left_of(namespace: Object) -> SpaceInfo | None:
    """Return the state of a deleted ControlPlane whose namespace remains; ``None`` for other namespaces."""
    uid, name = maker_of(namespace), namespace["metadata"]["name"].removesuffix(SUFFIX)
    if not uid:
        return None
    message = f"its namespace {namespace_of(name)} is still being deleted"
    return SpaceInfo(
        Physical(name), GOING, "NamespaceTerminating", message, None, uid, f"left-{uid}"
    )


def present(reading: ControlPlaneFields, secret: Object | None) -> dict[str, str]:
    """Return the keys with a value, by viewpoint."""
    data = mapping((secret or {}).get("data"))
    keys = {viewpoint: key for viewpoint, key in reading.keys if data.get(key)}
    if reading.type == EXTERNAL_TYPE and IN_CLUSTER in keys:
        # KubeFlex only writes this key for adopted clusters; it has the cluster's public URL.
        keys.setdefault(EXTERNAL, keys[IN_CLUSTER])
    return keys


def with_access(info: SpaceInfo, reading: ControlPlaneFields, secret: Object | None) -> SpaceInfo:
    """Add the kubeconfigs; :data:`BROKEN` if none is acceptable."""
    if secret is None or info.state != USABLE:
        return info
    access: dict[str, Access] = {}
    problems: list[str] = []
    for viewpoint, key in present(reading, secret).items():
        source = f'secret {namespace_of(reading.name)}/{reading.secret}, key "{key}"'
        try:
            access[viewpoint] = clean(value_of(secret, key) or b"", source, reading.name)
        except KubeConfigError as error:
            problems.append(str(error))
    message = "; ".join(dict.fromkeys(problems))
    if not access:
        return replace(info, state=BROKEN, reason="KubeconfigRefused", message=message)
    return replace(info, access=access, message=message or info.message)


def _missing_secret(reading: ControlPlaneFields, secret: Object | None) -> str:
    source = f"secret {namespace_of(reading.name)}/{reading.secret}"
    if secret is None:
        return f"{source} does not exist"
    return f"{source} has no value yet under {' or '.join(key for _, key in reading.keys)}"


def _digest(reading: ControlPlaneFields, version: str) -> str:
    return hashlib.sha256(repr((reading, version)).encode()).hexdigest()[:16]


TYPE, BACKEND, TOKEN_SECONDS, BOOTSTRAP = (
    "type",
    "backend",
    "tokenExpirationSeconds",
    "bootstrapSecret",
)
PARAMETERS = (TYPE, BACKEND, TOKEN_SECONDS, BOOTSTRAP)
DEFAULT_TYPE, HOST = "k8s", "host"
TYPES = ("k8s", "vcluster", "k3s", "ocm", EXTERNAL_TYPE, HOST)
ALLOWED = frozenset(TYPES) - {HOST}
"""
The types that are allowed by default.  Type ``host`` gives access to KubeFlex's own cluster, which may
be the cluster with the Spaces: permission to create a Space must not include that.
"""
BACKENDS = ("shared", "dedicated")

BOOTSTRAP_NAMESPACE, BOOTSTRAP_SUFFIX = "kubeflex-system", "-bootstrap"
"""
Namespace and name suffix of the Secret with the kubeconfig of a cluster to adopt.  KubeFlex's
manager reads and deletes that Secret with more permissions than the creator of a Space has, so
arbitrary Secrets are not accepted.
"""
BOOTSTRAP_KEY = "kubeconfig-incluster"

# The minimum of API servers, and a year, KubeFlex's default.
_LEAST_SECONDS, _MOST_SECONDS = 600, 31_536_000


def controlplane_of(
    physical: Physical, request: SpaceRequest, allowed: Collection[str], allowing: str
) -> Object:
    """
    Return the ControlPlane object for a request.

    :raises BadRequest: the name or the parameters are invalid.
    """
    _check_name(physical)
    parameters = request.parameters
    for key in parameters:
        if key not in PARAMETERS:
            raise BadRequest(
                f"KubeFlex has no parameter {_shown(key)}; use {', '.join(PARAMETERS)}"
            )
    spec: Object = {"type": _type(parameters, allowed, allowing)}
    if BACKEND in parameters:
        spec["backend"] = _one_of(BACKEND, parameters[BACKEND], BACKENDS)
    if TOKEN_SECONDS in parameters:
        spec["tokenExpirationSeconds"] = _seconds(parameters[TOKEN_SECONDS])
    if spec["type"] == EXTERNAL_TYPE:
        spec["bootstrapSecretRef"] = _bootstrap(physical.name, parameters.get(BOOTSTRAP, ""))
    elif BOOTSTRAP in parameters:
        raise BadRequest(f"{BOOTSTRAP} is for the type {EXTERNAL_TYPE} only; remove it")
    return {
        "apiVersion": CONTROLPLANES.api_version,
        "kind": CONTROLPLANES.kind,
        "metadata": {"name": physical.name, "annotations": mark(request.owner)},
        "spec": spec,
    }


def _check_name(physical: Physical) -> None:
    if physical.parent:
        raise BadRequest(
            f"KubeFlex has no hierarchy of control planes, so there is no {_shown(physical.parent)};"
            " make the Space without a path"
        )
    problem = name_problem(physical.name)
    if not problem and not physical.name[0].isalpha():
        # Services are called so in several types, and are names of DNS that begin with a letter.
        problem = "it must begin with a letter"
    if problem:
        raise BadRequest(f"no control plane can be called {_shown(physical.name)}: {problem}")


def _type(parameters: Mapping[str, str], allowed: Collection[str], allowing: str) -> str:
    type = _one_of(TYPE, parameters.get(TYPE, DEFAULT_TYPE), TYPES)
    if type not in allowed:
        why = " (it hands out the whole cluster that KubeFlex is in)" if type == HOST else ""
        raise BadRequest(f"the provider does not allow the type {type}{why}; {allowing}")
    return type


def _one_of(key: str, value: str, values: Collection[str]) -> str:
    if value not in values:
        raise BadRequest(f"{key} is {_shown(value)}; it must be one of {', '.join(values)}")
    return value


def _seconds(value: str) -> int:
    # Digits of any script are digits to isdigit(), and a long number takes long to read.
    if value.isascii() and value.isdigit() and len(value) <= 9:
        seconds = int(value)
        if _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
            return seconds
    raise BadRequest(
        f"{TOKEN_SECONDS} is {_shown(value)}; it must be {_LEAST_SECONDS} to {_MOST_SECONDS}"
    )


def _bootstrap(name: str, secret: str) -> dict[str, str]:
    secret = secret or f"{name}{BOOTSTRAP_SUFFIX}"
    if names.dns_subdomain(secret) or not secret.endswith(BOOTSTRAP_SUFFIX):
        raise BadRequest(
            f"{BOOTSTRAP} is {_shown(secret)}; it must be a Secret of the namespace {BOOTSTRAP_NAMESPACE}"
            f" whose name ends in {BOOTSTRAP_SUFFIX}, with the kubeconfig under {BOOTSTRAP_KEY}"
        )
    return {
        "namespace": BOOTSTRAP_NAMESPACE,
        "name": secret,
        "inClusterKey": BOOTSTRAP_KEY,
    }


def _shown(value: str) -> str:
    return ascii(value[:80])


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
        clock: Any,
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
        hints.follow(NAMESPACES.resource, _of_namespace, bare)

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
            SECRETS.resource, _of_secret, bare, field_selector=f"metadata.name={name}"
        )


def _read(controlplane: Object | None) -> ControlPlaneFields | None:
    return None if controlplane is None else read(controlplane)


def _of_namespace(before: Object | None, after: Object | None) -> Iterable[Physical]:
    namespace = after or before
    if namespace is None or not maker_of(namespace):
        return []
    return [Physical(namespace["metadata"]["name"].removesuffix(SUFFIX))]


def _of_secret(before: Object | None, after: Object | None) -> Iterable[Physical]:
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
