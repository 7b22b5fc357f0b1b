"""
Volumes, volume classes and volume pools.

Source: ironcore ``api/storage/v1alpha1`` and ``internal/apis/storage/validation``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from twisted_exec.api import fields
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds import validation
from twisted_exec.api.kinds.kind import Column, Kind, Object, cell
from twisted_exec.api.kinds.schemas import CONDITIONS, TAINTS, TOLERATIONS, claim, extend_schema
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import (
    array,
    boolean,
    mapping,
    moment,
    quantity,
    reference,
    string,
    struct,
)

VERSION = "v1alpha1"
_RESOURCES = mapping(quantity(), "resources are the quantities of storage, tps and iops.")
_NEED_A_CLASS = ("volumePoolSelector", "volumePoolRef", "resources", "tolerations")

_SPEC = struct(
    {
        "volumeClassRef": reference(
            description="volumeClassRef is the VolumeClass of the volume. Empty if an external program provisions it."
        ),
        "volumePoolSelector": mapping(
            string(),
            "volumePoolSelector selects the pools that may hold the volume, by labels.",
            atomic=True,
        ),
        "volumePoolRef": reference(
            description="volumePoolRef is the VolumePool that holds the volume. It is immutable once set."
        ),
        "claimRef": claim("claimRef is the Machine that uses the volume."),
        "resources": _RESOURCES,
        "unclaimable": boolean("unclaimable prevents claims of the volume if true."),
        "tolerations": TOLERATIONS,
        "encryption": struct(
            {
                "secretRef": reference(
                    description="secretRef is the Secret with the encryption key."
                )
            },
            required=["secretRef"],
            description="encryption configures the encryption of the volume. It is immutable.",
        ),
        "dataSource": struct(
            {
                "volumeSnapshotRef": reference(
                    description="volumeSnapshotRef is a VolumeSnapshot to restore."
                ),
                "osImage": struct(
                    {
                        "image": string("image is the reference of the image."),
                        "architecture": string(
                            "architecture is the CPU architecture of the image."
                        ),
                    },
                    description="osImage is an operating system image to copy.",
                ),
            },
            description="dataSource is the initial content of the volume.",
        ),
    },
    description="spec is the desired state of the volume.",
)

_STATUS = struct(
    {
        "volumeID": string(
            "volumeID is the ID of the volume at its provider, in the format TYPE://ID."
        ),
        "state": string(
            "state is the state of the volume.", enum=["Pending", "Available", "Error"]
        ),
        "lastStateTransitionTime": moment(
            "lastStateTransitionTime is the last time the state changed."
        ),
        "access": struct(
            {
                "secretRef": reference(
                    description="secretRef is the Secret with the credentials for access."
                ),
                "driver": string("driver is the driver that attaches the volume."),
                "handle": string("handle is the driver's identifier of the volume."),
                "volumeAttributes": mapping(
                    string(), "volumeAttributes are additional parameters for the driver."
                ),
            },
            required=["driver", "handle"],
            description="access describes how a machine accesses the volume.",
        ),
        "conditions": CONDITIONS,
        "resources": _RESOURCES,
    },
    description="status is the observed state of the volume.",
)


def _referent(key: str, volume: Mapping[str, Any]) -> str:
    return str(volume.get("spec", {}).get(key, {}).get("name", ""))


def _image(volume: Object) -> str:
    spec = volume.get("spec", {})
    source = spec.get("dataSource", {}).get("osImage", {})
    return str(source.get("image") or spec.get("image") or "<none>")


def _validate_volume(volume: Object) -> list[Cause]:
    spec = volume.get("spec", {})
    source = spec.get("dataSource", {})
    problems = list(validation.reference(spec, "volumeClassRef", "spec.volumeClassRef"))
    if "volumeClassRef" in spec:
        problems += validation.labels(spec.get("volumePoolSelector", {}), "spec.volumePoolSelector")
        problems += validation.reference(spec, "volumePoolRef", "spec.volumePoolRef")
        problems += validation.positive(spec.get("resources", {}), "storage", "spec.resources")
    else:
        present = [key for key in _NEED_A_CLASS if key in spec]
        present += ["dataSource.osImage"] if "osImage" in source else []
        problem = "must not specify if volume class is empty"
        problems += [fields.forbidden(f"spec.{key}", problem) for key in present]
    if spec.get("unclaimable") and "claimRef" in spec:
        problems.append(
            fields.forbidden("spec.claimRef", "cannot specify unclaimable and claimRef")
        )
    problems += validation.reference(spec, "claimRef", "spec.claimRef")
    problems += validation.reference(
        spec.get("encryption", {}), "secretRef", "spec.encryption.secretRef"
    )
    if "volumeSnapshotRef" in source and "osImage" in source:
        problem = "must only specify one volume data source"
        problems.append(fields.forbidden("spec.dataSource.osImage", problem))
    problems += validation.reference(
        source, "volumeSnapshotRef", "spec.dataSource.volumeSnapshotRef"
    )
    return problems


def _volume_changed(new: Object, old: Object) -> list[Cause]:
    after, before = new.get("spec", {}), old.get("spec", {})
    problems: list[Cause] = []
    for key in ("volumeClassRef", "encryption"):
        problems += validation.unchanged(after.get(key), before.get(key), f"spec.{key}")
    key = "volumePoolRef"
    problems += validation.set_once(after.get(key), before.get(key), f"spec.{key}")
    return problems


_OLDER_SPEC = {
    "image": string("image is an image to copy into the volume."),
    "imagePullSecretRef": reference(
        description="imagePullSecretRef is the Secret to pull the image with."
    ),
}
_OLDER_STATUS = {
    "phase": string(
        "phase is Bound while a Machine claims the volume.", enum=["Unbound", "Pending", "Bound"]
    ),
    "lastPhaseTransitionTime": moment(
        "lastPhaseTransitionTime is the last time the phase changed."
    ),
}


def volumes(domain: str, *, older: bool = False) -> Kind:
    """
    Return Volumes in the group ``storage.DOMAIN``.

    :param older: include the fields of onmetal-api v0.1.
    """
    spec = extend_schema(_SPEC, _OLDER_SPEC if older else {})
    status = extend_schema(_STATUS, _OLDER_STATUS if older else {})
    return Kind(
        resource=Resource(f"storage.{domain}", VERSION, "volumes", "Volume"),
        singular="volume",
        description="Volume is a disk that can be attached to machines.",
        schema={"spec": spec, "status": status},
        columns=(
            Column("VolumePoolRef", lambda volume: _referent("volumePoolRef", volume) or "<none>"),
            Column("Image", _image),
            Column("VolumeClass", lambda volume: _referent("volumeClassRef", volume) or "<none>"),
            Column("State", lambda volume: volume.get("status", {}).get("state") or "<unknown>"),
        ),
        has_status=True,
        counts_generation=True,
        fields={
            f"spec.{key}.name": partial(_referent, key)
            for key in ("volumePoolRef", "volumeClassRef")
        },
        initial_status={"state": "Pending"},
        validate=_validate_volume,
        validate_update=_volume_changed,
    )


def _class_causes(volume_class: Object) -> list[Cause]:
    capabilities = volume_class.get("capabilities", {})
    problems: list[Cause] = []
    for key in {"tps": None, "iops": None, **capabilities}:
        problems += validation.positive(capabilities, key, "capabilities")
    return problems


def _class_changed(new: Object, old: Object) -> list[Cause]:
    key = "capabilities"
    return list(validation.unchanged(new.get(key), old.get(key), key))


def volumeclasses(domain: str) -> Kind:
    """Return VolumeClasses in the group ``storage.DOMAIN``."""
    return Kind(
        resource=Resource(
            f"storage.{domain}", VERSION, "volumeclasses", "VolumeClass", namespaced=False
        ),
        singular="volumeclass",
        description="VolumeClass describes the capabilities of a class of volumes.",
        schema={
            "capabilities": mapping(
                quantity(), "capabilities are the capabilities of the class, such as tps and iops."
            ),
            "resizePolicy": string(
                "resizePolicy determines whether volumes of the class can grow.",
                enum=["Static", "ExpandOnly"],
                default="Static",
            ),
        },
        columns=(
            Column("TPS", cell("capabilities", "tps")),
            Column("IOPS", cell("capabilities", "iops")),
        ),
        counts_generation=True,
        validate=_class_causes,
        validate_update=_class_changed,
    )


def _pool_changed(new: Object, old: Object) -> list[Cause]:
    key = "providerID"
    after, before = new.get("spec", {}).get(key), old.get("spec", {}).get(key)
    return list(validation.set_once(after, before, f"spec.{key}"))


def _classes(pool: Object) -> str:
    available = pool.get("status", {}).get("availableVolumeClasses", [])
    return ",".join(item.get("name", "") for item in available) or "<none>"


def volumepools(domain: str) -> Kind:
    """Return VolumePools in the group ``storage.DOMAIN``."""
    return Kind(
        resource=Resource(
            f"storage.{domain}", VERSION, "volumepools", "VolumePool", namespaced=False
        ),
        singular="volumepool",
        description="VolumePool holds volumes.",
        schema={
            "spec": struct(
                {
                    "providerID": string("providerID is the ID of the pool at its provider."),
                    "taints": TAINTS,
                },
                description="spec is the desired state of the pool.",
            ),
            "status": struct(
                {
                    "state": string(
                        "state is the state of the pool.",
                        enum=["Available", "Pending", "Unavailable"],
                    ),
                    "conditions": CONDITIONS,
                    "availableVolumeClasses": array(
                        reference(),
                        "availableVolumeClasses are the VolumeClasses that the pool supports.",
                    ),
                    "capacity": mapping(
                        quantity(), "capacity is the total of the pool's resources."
                    ),
                    "allocatable": mapping(
                        quantity(), "allocatable is the part of capacity that is not in use."
                    ),
                },
                description="status is the observed state of the pool.",
            ),
        },
        columns=(Column("VolumeClasses", _classes),),
        has_status=True,
        counts_generation=True,
        validate_update=_pool_changed,
    )


def kinds(domain: str, *, older: bool = False) -> tuple[Kind, ...]:
    """Return all kinds in the group ``storage.DOMAIN``."""
    return volumes(domain, older=older), volumeclasses(domain), volumepools(domain)
