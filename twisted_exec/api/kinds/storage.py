"""
Volumes, the classes that they come in and the pools that have them.

A poollet attaches the Volumes that its machines name.  Nothing here makes them: that is for
a volume poollet, or for whoever writes the status by hand.

Source: ironcore ``api/storage/v1alpha1`` and ``internal/apis/storage/validation``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from twisted_exec.api import fields
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.common import validation
from twisted_exec.api.kinds.common.schemas import (
    CONDITIONS,
    TAINTS,
    TOLERATIONS,
    claim,
    extend_schema,
)
from twisted_exec.api.kinds.kind import Column, Kind, Object
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
_RESOURCES = mapping(quantity(), "How much of what: storage, tps, iops.")
_NEED_A_CLASS = ("volumePoolSelector", "volumePoolRef", "resources", "tolerations")

_SPEC = struct(
    {
        "volumeClassRef": reference(
            description="Its VolumeClass; empty: a program outside provides it."
        ),
        "volumePoolSelector": mapping(
            string(), "Labels of pools that may have the volume.", atomic=True
        ),
        "volumePoolRef": reference(
            description="The VolumePool that has it; once set it cannot be changed."
        ),
        "claimRef": claim("Whose it is: the Machine that uses it."),
        "resources": _RESOURCES,
        "unclaimable": boolean("Whether nobody may claim it."),
        "tolerations": TOLERATIONS,
        "encryption": struct(
            {"secretRef": reference(description="The Secret with the key.")},
            required=["secretRef"],
            description="How it is encrypted; it cannot be changed.",
        ),
        "dataSource": struct(
            {
                "volumeSnapshotRef": reference(description="A VolumeSnapshot."),
                "osImage": struct(
                    {
                        "image": string("The image."),
                        "architecture": string("Of which architecture."),
                    },
                    description="An image of an operating system.",
                ),
            },
            description="What it begins as.",
        ),
    },
    description="What the volume shall be.",
)

_STATUS = struct(
    {
        "volumeID": string("TYPE://ID, as its provider knows it."),
        "state": string("What it is.", enum=["Pending", "Available", "Error"]),
        "lastStateTransitionTime": moment("When its state changed last."),
        "access": struct(
            {
                "secretRef": reference(description="The Secret with the credentials."),
                "driver": string("Which driver attaches it."),
                "handle": string("What the driver knows it by."),
                "volumeAttributes": mapping(string(), "What else the driver needs."),
            },
            required=["driver", "handle"],
            description="How a machine gets at it.",
        ),
        "conditions": CONDITIONS,
        "resources": _RESOURCES,
    },
    description="What the volume is.",
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
    found = list(validation.reference(spec, "volumeClassRef", "spec.volumeClassRef"))
    if "volumeClassRef" in spec:
        found += validation.labels(spec.get("volumePoolSelector", {}), "spec.volumePoolSelector")
        found += validation.reference(spec, "volumePoolRef", "spec.volumePoolRef")
        found += validation.positive(spec.get("resources", {}), "storage", "spec.resources")
    else:
        given = [key for key in _NEED_A_CLASS if key in spec]
        given += ["dataSource.osImage"] if "osImage" in source else []
        told = "must not specify if volume class is empty"
        found += [fields.forbidden(f"spec.{key}", told) for key in given]
    if spec.get("unclaimable") and "claimRef" in spec:
        found.append(fields.forbidden("spec.claimRef", "cannot specify unclaimable and claimRef"))
    found += validation.reference(spec, "claimRef", "spec.claimRef")
    found += validation.reference(
        spec.get("encryption", {}), "secretRef", "spec.encryption.secretRef"
    )
    if "volumeSnapshotRef" in source and "osImage" in source:
        told = "must only specify one volume data source"
        found.append(fields.forbidden("spec.dataSource.osImage", told))
    found += validation.reference(source, "volumeSnapshotRef", "spec.dataSource.volumeSnapshotRef")
    return found


def _volume_changed(new: Object, old: Object) -> list[Cause]:
    after, before = new.get("spec", {}), old.get("spec", {})
    found: list[Cause] = []
    for key in ("volumeClassRef", "encryption"):
        found += validation.unchanged(after.get(key), before.get(key), f"spec.{key}")
    key = "volumePoolRef"
    found += validation.set_once(after.get(key), before.get(key), f"spec.{key}")
    return found


_OLDER_SPEC = {
    "image": string("An image that it begins as."),
    "imagePullSecretRef": reference(description="The Secret to get the image with."),
}
_OLDER_STATUS = {
    "phase": string("Whose it is.", enum=["Unbound", "Pending", "Bound"]),
    "lastPhaseTransitionTime": moment("When its phase changed last."),
}


def volumes(domain: str, *, older: bool = False) -> Kind:
    """
    Volumes of the group ``storage.DOMAIN``.

    :param older: with what onmetal-api v0.1 has besides.
    """
    spec = extend_schema(_SPEC, _OLDER_SPEC if older else {})
    status = extend_schema(_STATUS, _OLDER_STATUS if older else {})
    return Kind(
        resource=Resource(f"storage.{domain}", VERSION, "volumes", "Volume"),
        singular="volume",
        description="Volume is a disk that machines can be given.",
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
    given = volume_class.get("capabilities", {})
    found: list[Cause] = []
    for key in {"tps": None, "iops": None, **given}:
        found += validation.positive(given, key, "capabilities")
    return found


def _class_changed(new: Object, old: Object) -> list[Cause]:
    key = "capabilities"
    return list(validation.unchanged(new.get(key), old.get(key), key))


def _capability(key: str) -> Column:
    return Column(key.upper(), lambda obj: str(obj.get("capabilities", {}).get(key, "<none>")))


def volumeclasses(domain: str) -> Kind:
    """VolumeClasses of the group ``storage.DOMAIN``."""
    return Kind(
        resource=Resource(
            f"storage.{domain}", VERSION, "volumeclasses", "VolumeClass", namespaced=False
        ),
        singular="volumeclass",
        description="VolumeClass is a kind of volumes.",
        schema={
            "capabilities": mapping(quantity(), "What a volume of this class can do."),
            "resizePolicy": string(
                "Whether its volumes can grow.", enum=["Static", "ExpandOnly"], default="Static"
            ),
        },
        columns=(_capability("tps"), _capability("iops")),
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
    """VolumePools of the group ``storage.DOMAIN``."""
    return Kind(
        resource=Resource(
            f"storage.{domain}", VERSION, "volumepools", "VolumePool", namespaced=False
        ),
        singular="volumepool",
        description="VolumePool is what has volumes.",
        schema={
            "spec": struct(
                {"providerID": string("Identifies the pool to its provider."), "taints": TAINTS},
                description="What the pool shall be.",
            ),
            "status": struct(
                {
                    "state": string(
                        "What the pool is.", enum=["Available", "Pending", "Unavailable"]
                    ),
                    "conditions": CONDITIONS,
                    "availableVolumeClasses": array(
                        reference(), "The VolumeClasses that it has volumes of."
                    ),
                    "capacity": mapping(quantity(), "What it has in all."),
                    "allocatable": mapping(quantity(), "What is left of it."),
                },
                description="What the pool is.",
            ),
        },
        columns=(Column("VolumeClasses", _classes),),
        has_status=True,
        counts_generation=True,
        validate_update=_pool_changed,
    )


def kinds(domain: str, *, older: bool = False) -> tuple[Kind, ...]:
    """Everything in the group ``storage.DOMAIN``."""
    return volumes(domain, older=older), volumeclasses(domain), volumepools(domain)
