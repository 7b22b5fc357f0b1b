"""
What a ControlPlane of KubeFlex, its namespace and its Secret say together; without I/O.

Everything of a ControlPlane is in the namespace ``NAME-system``, which its manager makes and which belongs
to it (ownerReference): so a namespace that was there before is nobody's answer to where credentials are, and a
ControlPlane is gone when its namespace is.  Where the credentials are stands in ``status.secretRef``, with a key
for each viewpoint, of which either may lead nowhere: types ``host`` and ``external`` name a key that is never
written, ``ocm`` an empty one, and ``vcluster`` and ``k3s`` one that is written some time after Ready.

Ready is a claim of whoever wrote it last: it stays True while KubeFlex's manager is down.

Source: ``kubestellar/kubeflex`` (``api/v1alpha1``, ``pkg/reconcilers/{shared,k3s,host,external}``,
``internal/controller``), from v0.9.3 of January 2026 to July 2026.

The ControlPlane that is asked for: from ``spec.parameters`` of a Space; without I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from twisted_exec.api import names
from twisted_exec.api.kinds.secrets import value_of
from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import EXTERNAL, IN_CLUSTER
from twisted_exec.api.status import BadRequest
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
    BUILDING,
    GOING,
    USABLE,
    Access,
    Physical,
    SpaceInfo,
    SpaceRequest,
)
from twisted_exec.spacemanager.providers.common.kubeconfigs import clean
from twisted_exec.spacemanager.providers.common.objects import (
    condition,
    mapping,
    mark,
    message_of,
    owner_of,
    reason_of,
)

GROUP = "tenancy.kflex.kubestellar.org"
CONTROLPLANES = Resource(GROUP, "v1alpha1", "controlplanes", "ControlPlane", namespaced=False)
SUFFIX = "-system"
RESERVED = ("kube", "kubeflex")
"""Names of ControlPlanes whose namespace is there already, and full of others' credentials."""
EXTERNAL_TYPE = "external"
LONGEST_NAME = 63 - len(SUFFIX)


@dataclass(frozen=True)
class Reading:
    """
    A ControlPlane, as far as anybody here wants to know; equal ones need not be looked at again.

    :param secret: name of the Secret, in the ControlPlane's namespace; empty while there is none.
    :param keys: of it, by viewpoint, each not empty.
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
    """Where everything of a ControlPlane is."""
    return f"{name}{SUFFIX}"


def name_problem(name: str) -> str:
    """Why no ControlPlane of this name is made or read, or empty."""
    if name in RESERVED:
        return f"its credentials would be in the namespace {namespace_of(name)}, which is another's"
    if len(name) > LONGEST_NAME or names.dns_label(name):
        return (
            f"{namespace_of('NAME')} must be a namespace: at most {LONGEST_NAME} of a-z, 0-9 and '-',"
            " and a letter or digit at both ends"
        )
    return ""


def read(controlplane: Object) -> Reading:
    """What a ControlPlane says by itself."""
    metadata, status = controlplane["metadata"], mapping(controlplane.get("status"))
    spec = mapping(controlplane.get("spec"))
    found = Reading(
        metadata["name"],
        str(metadata.get("uid") or ""),
        owner_of(controlplane),
        str(spec.get("type") or ""),
        BUILDING,
    )
    if metadata.get("deletionTimestamp"):
        return replace(found, state=GOING, reason="Deleting", message=_held_by(metadata))
    if problem := name_problem(found.name):
        return replace(found, state=BROKEN, reason="NameRefused", message=problem)
    return _with_secret(_with_conditions(found, status), mapping(status.get("secretRef")))


def _held_by(metadata: Mapping[str, Any]) -> str:
    finalizers = ", ".join(map(str, metadata.get("finalizers") or ()))
    return f"it waits for {finalizers}, which KubeFlex's manager takes away" if finalizers else ""


def _with_conditions(found: Reading, status: Mapping[str, Any]) -> Reading:
    ready, synced = condition(status, "Ready"), condition(status, "Synced")
    if not ready and not synced:
        told = "KubeFlex has not said anything of it yet; if that stays, is its manager running?"
        return replace(found, reason="NotReconciled", message=told)
    worst = synced if synced.get("status") == "False" else ready
    found = replace(found, message=message_of(worst))
    if ready.get("status") == "True" and ready.get("reason") == "Available":
        return replace(found, state=USABLE)
    return replace(found, reason=reason_of(worst, "NotReady"))


def _with_secret(found: Reading, reference: Mapping[str, Any]) -> Reading:
    name, namespace = str(reference.get("name") or ""), str(reference.get("namespace") or "")
    if not name:
        return _not_yet(found, "status.secretRef names no Secret yet")
    if namespace != namespace_of(found.name) or names.dns_subdomain(name):
        told = f"status.secretRef leads out of the namespace {namespace_of(found.name)}, where its credentials are"
        return replace(found, state=BROKEN, reason="ForeignSecret", message=told)
    pairs = ((IN_CLUSTER, reference.get("inClusterKey")), (EXTERNAL, reference.get("key")))
    keys = tuple((viewpoint, str(key)) for viewpoint, key in pairs if key)
    if not keys:
        return _not_yet(replace(found, secret=name), "status.secretRef names no key")
    return replace(found, secret=name, keys=keys)


def _not_yet(found: Reading, told: str) -> Reading:
    if found.state != USABLE:
        return found
    return replace(found, state=BUILDING, reason="CredentialsMissing", message=told)


def info_of(reading: Reading, namespace: Object | None, secret: Object | None) -> SpaceInfo:
    """
    A ControlPlane with what belongs to it; without access, which :func:`with_access` adds.

    :param namespace: ``NAME-system``.
    :param secret: that which the reading names; what it holds may have been left out but for its keys.
    """
    found = _in_namespace(reading, namespace)
    if found.state == USABLE and not present(found, secret):
        found = _not_yet(found, _missing(found, secret))
    # The Secret of one that is refused, or going, is looked at by nobody.
    matters = found.state not in (BROKEN, GOING)
    version = str(secret["metadata"].get("resourceVersion")) if secret and matters else ""
    return SpaceInfo(
        Physical(found.name),
        found.state,
        found.reason,
        found.message,
        found.owner,
        found.uid,
        _digest(found, version),
    )


def _in_namespace(reading: Reading, namespace: Object | None) -> Reading:
    if namespace is None or reading.state in (GOING, BROKEN):
        return reading
    name, owner = namespace_of(reading.name), maker_of(namespace)
    if owner == reading.uid and owner:
        return reading
    if owner:
        told = f"the namespace {name} of the one before is still being deleted"
        return replace(reading, state=BUILDING, reason="NamespaceTerminating", message=told)
    told = (
        f"the namespace {name} is not of this ControlPlane, so nothing is read from there;"
        " delete the ControlPlane, and choose a name whose namespace is not taken"
    )
    return replace(reading, state=BROKEN, reason="NamespaceTaken", message=told)


def maker_of(namespace: Object) -> str:
    """UID of the ControlPlane that a namespace was made for, or empty."""
    metadata = namespace["metadata"]
    for reference in metadata.get("ownerReferences") or ():
        group = str(reference.get("apiVersion") or "").partition("/")[0]
        named = (group, reference.get("kind"), namespace_of(str(reference.get("name"))))
        if named == (GROUP, CONTROLPLANES.kind, metadata["name"]):
            return str(reference.get("uid") or "")
    return ""


def left_of(namespace: Object) -> SpaceInfo | None:
    """What a namespace says whose ControlPlane is gone already; ``None`` of any other."""
    uid, name = maker_of(namespace), namespace["metadata"]["name"].removesuffix(SUFFIX)
    if not uid:
        return None
    told = f"its namespace {namespace_of(name)} is still being deleted"
    return SpaceInfo(Physical(name), GOING, "NamespaceTerminating", told, None, uid, f"left-{uid}")


def present(reading: Reading, secret: Object | None) -> dict[str, str]:
    """The keys that hold something, by viewpoint."""
    data = mapping((secret or {}).get("data"))
    found = {viewpoint: key for viewpoint, key in reading.keys if data.get(key)}
    if reading.type == EXTERNAL_TYPE and IN_CLUSTER in found:
        # The adopted cluster's own URL, in the one key that is ever written.
        found.setdefault(EXTERNAL, found[IN_CLUSTER])
    return found


def with_access(info: SpaceInfo, reading: Reading, secret: Object | None) -> SpaceInfo:
    """The same with kubeconfigs of one user each; :data:`BROKEN` when there are none that could be handed out."""
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
    told = "; ".join(dict.fromkeys(problems))
    if not access:
        return replace(info, state=BROKEN, reason="KubeconfigRefused", message=told)
    return replace(info, access=access, message=told or info.message)


def _missing(reading: Reading, secret: Object | None) -> str:
    source = f"secret {namespace_of(reading.name)}/{reading.secret}"
    if secret is None:
        return f"{source} does not exist"
    return f"{source} has nothing yet under {' or '.join(key for _, key in reading.keys)}"


def _digest(reading: Reading, version: str) -> str:
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
Unless the provider says otherwise.  ``host`` hands out the whole of KubeFlex's own cluster, which may be the one
that has the Spaces: who may make a Space need not be who may have that.
"""
BACKENDS = ("shared", "dedicated")

BOOTSTRAP_NAMESPACE, BOOTSTRAP_SUFFIX = "kubeflex-system", "-bootstrap"
"""
Where the kubeconfig of a cluster to be adopted is looked for, and how the Secret's name ends.  KubeFlex's manager
reads that Secret and deletes it, with more rights than who makes a Space; so it cannot be any Secret.
"""
BOOTSTRAP_KEY = "kubeconfig-incluster"

# What an API server grants at least, and KubeFlex's own default, a year, at most.
_LEAST_SECONDS, _MOST_SECONDS = 600, 31_536_000


def controlplane_of(
    physical: Physical, wanted: SpaceRequest, allowed: Collection[str], allowing: str
) -> Object:
    """
    What is to be created.

    :param allowed: the types that may be.
    :param allowing: where that is said, for messages.
    :raises BadRequest: there can be none of that name, or with those parameters.
    """
    _check_name(physical)
    told = wanted.parameters
    for key in told:
        if key not in PARAMETERS:
            raise BadRequest(
                f"KubeFlex has no parameter {_shown(key)}; there are {', '.join(PARAMETERS)}"
            )
    spec: Object = {"type": _type(told, allowed, allowing)}
    if BACKEND in told:
        spec["backend"] = _one_of(BACKEND, told[BACKEND], BACKENDS)
    if TOKEN_SECONDS in told:
        spec["tokenExpirationSeconds"] = _seconds(told[TOKEN_SECONDS])
    if spec["type"] == EXTERNAL_TYPE:
        spec["bootstrapSecretRef"] = _bootstrap(physical.name, told.get(BOOTSTRAP, ""))
    elif BOOTSTRAP in told:
        raise BadRequest(f"{BOOTSTRAP} is for the type {EXTERNAL_TYPE} only; take it away")
    return {
        "apiVersion": CONTROLPLANES.api_version,
        "kind": CONTROLPLANES.kind,
        "metadata": {"name": physical.name, "annotations": mark(wanted.owner)},
        "spec": spec,
    }


def _check_name(physical: Physical) -> None:
    if physical.parent:
        raise BadRequest(
            f"KubeFlex has all control planes in one place, none in {_shown(physical.parent)};"
            " make the Space without a path"
        )
    problem = name_problem(physical.name)
    if not problem and not physical.name[0].isalpha():
        # Services are called so in several types, and are names of DNS that begin with a letter.
        problem = "it must begin with a letter"
    if problem:
        raise BadRequest(f"no control plane can be called {_shown(physical.name)}: {problem}")


def _type(told: Mapping[str, str], allowed: Collection[str], allowing: str) -> str:
    type = _one_of(TYPE, told.get(TYPE, DEFAULT_TYPE), TYPES)
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
    """What a user wrote, fit for a message."""
    return ascii(value[:80])
