"""
Claims of Machines on volumes and network interfaces.

A poollet writes name and UID of its Machine into an object before the Machine uses it, and removes
them afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted_exec.api.resource import Resource
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.machines.references import (
    MissingReference,
    Object,
    ReferencedKinds,
    References,
    Unread,
)

_FIELDS = {"volumes": "claimRef", "networkinterfaces": "machineRef"}
"""Field of the spec that holds the claim."""


def is_controlled(obj: Object, owner: Object) -> bool:
    """Return whether ``owner`` is the controller of ``obj`` (``ownerReferences``)."""
    return any(
        reference.get("controller") and reference.get("uid") == owner["metadata"]["uid"]
        for reference in obj["metadata"].get("ownerReferences") or ()
    )


def claim(
    machine: Object, obj: Object, resource: Resource, label: str, reason: str
) -> PatchObject | None:
    """
    Return the patch that claims ``obj`` for the Machine, unless it is claimed already.

    :raises MissingReference: another Machine has claimed it, or it cannot be claimed.
    """
    field_name = _FIELDS[resource.plural]
    metadata, spec = machine["metadata"], obj.get("spec") or {}
    claim_ref = spec.get(field_name)
    if claim_ref:
        if claim_ref.get("uid") == metadata["uid"]:
            return None
        raise MissingReference(
            reason, f"{label} is claimed by another machine, {claim_ref.get('name', '')!r}"
        )
    if spec.get("unclaimable") or obj["metadata"].get("deletionTimestamp"):
        raise MissingReference(reason, f"{label} cannot be claimed")
    ours = {"name": metadata["name"], "uid": metadata["uid"]}
    return _patch(resource, obj, {field_name: ours, **_unnamed(resource)})


def _unnamed(resource: Resource) -> Object:
    return {"providerID": ""} if resource.plural == "networkinterfaces" else {}


def release(
    machine: Object, names: Mapping[str, str], resource: Resource, references: References
) -> list[PatchObject]:
    """
    Return patches that release the Machine's claims.

    :raises Unread: the objects are still being read.
    """
    namespace, uid = machine["metadata"].get("namespace", ""), machine["metadata"]["uid"]
    field_name = _FIELDS[resource.plural]
    patches = []
    for name in names.values():
        try:
            obj = references.find(resource, namespace, name)
        except Unread as unread:
            if unread.soon:
                raise
            continue  # without permission to read them there are no claims
        if obj is not None and ((obj.get("spec") or {}).get(field_name) or {}).get("uid") == uid:
            patches.append(_patch(resource, obj, {field_name: None, **_unnamed(resource)}))
    return patches


def provided(
    machine: Object,
    mapping: Mapping[str, Object],
    observed: pb.Machine,
    domain: ReferencedKinds,
    references: References,
) -> list[PatchObject]:
    """
    Return patches that write the runtime's handles into NetworkInterfaces.

    :raises Unread: a NetworkInterface cannot be looked up now.
    """
    handles = {interface.name: interface.handle for interface in observed.status.network_interfaces}
    namespace = machine["metadata"].get("namespace", "")
    patches = []
    for part, claimed in mapping.items():
        obj = references.find(domain.interfaces, namespace, claimed["name"])
        handle = handles.get(part, "")
        if obj is not None and ((obj.get("spec") or {}).get("providerID") or "") != handle:
            patches.append(_patch(domain.interfaces, obj, {"providerID": handle}))
    return patches


def _patch(resource: Resource, obj: Object, spec: Object) -> PatchObject:
    metadata = obj["metadata"]
    version = {"resourceVersion": metadata.get("resourceVersion", "")}
    return PatchObject(
        resource,
        metadata.get("namespace", ""),
        metadata["name"],
        {"metadata": version, "spec": spec},
    )


@dataclass(frozen=True)
class PatchObject:
    """Merge ``patch`` into an object that the Machine refers to."""

    resource: Resource
    namespace: str
    name: str
    patch: Mapping[str, Any] = field(hash=False)
