"""Conversion of ControlPlane objects to physical spaces, sans I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from twisted_exec.api import names
from twisted_exec.api.conditions import condition_of
from twisted_exec.api.kinds.secrets import value_of
from twisted_exec.api.lenient import mapping
from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import EXTERNAL, IN_CLUSTER
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
)
from twisted_exec.spacemanager.providers.cluster import message_of, owner_of, reason_of
from twisted_exec.spacemanager.providers.credentials import clean

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
