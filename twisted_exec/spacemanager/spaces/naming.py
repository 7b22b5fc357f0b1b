"""
Names: the physical space of a Space, and the name of a discovered Space.

A discovered Space may have a derived name; its annotations then have the original.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from twisted_exec.api import names, spaces
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.interfaces import Physical

LONGEST = 63
"""Limit for a Space's name, which is also a label value."""
PHYSICAL_SPACE = "physicalSpace"
"""
Field of a Space's ``status``, ours: ``{name, parent, found}``.  It is written before the physical
space is created, so a later leader knows that one may exist; ``found`` means that it has been
observed.
"""

_OTHER_MARKS = re.compile(r"[^a-z0-9]+")
_DIGEST = 8


def type_of(space: Mapping[str, Any]) -> str:
    """Return ``spec.Type`` of a Space, with its default."""
    return str((space.get("spec") or {}).get("Type") or spaces.MANAGED)


def provider_of(space: Mapping[str, Any]) -> str:
    """Return the name of a Space's SpaceProviderDesc; may be empty."""
    if type_of(space) == spaces.IMPORTED:
        return ""
    return str((space.get("spec") or {}).get("SpaceProviderDescName") or "")


def viewpoints_of(space: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the viewpoints of a Space."""
    scope = (space.get("spec") or {}).get("accessscopetype") or spaces.BOTH
    return spaces.VIEWPOINTS if scope == spaces.BOTH else (str(scope),)


def misplaced(space: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return reason and message if a Space names no provider, or is in the wrong namespace."""
    name, namespace = provider_of(space), space["metadata"].get("namespace", "")
    if not name:
        return (
            "NoProvider",
            f"a {type_of(space)} Space belongs to a provider: set spec.SpaceProviderDescName",
        )
    if namespace != spaces.namespace_of(name):
        return (
            "WrongNamespace",
            f'Spaces of provider "{name}" live in namespace {spaces.namespace_of(name)}, not in '
            f"{namespace}: make it there, and delete this one",
        )
    return None


def said(space: Mapping[str, Any]) -> Physical:
    """Return the physical space by the Space's name and annotations."""
    annotations = space["metadata"].get("annotations") or {}
    name = annotations.get(spaces.PHYSICAL_NAME) or space["metadata"]["name"]
    return Physical(str(name), str(annotations.get(spaces.PATH) or ""))


def recorded(space: Mapping[str, Any]) -> Physical | None:
    """Return the recorded physical space, or ``None``."""
    record = (space.get("status") or {}).get(PHYSICAL_SPACE)
    if not isinstance(record, dict) or not record.get("name"):
        return None
    return Physical(str(record["name"]), str(record.get("parent") or ""))


def physical_of(space: Mapping[str, Any]) -> Physical:
    """
    Return the physical space of a provider's Space.

    The record takes precedence, so later changes of annotations have no effect.
    """
    return recorded(space) or said(space)


def was_found(space: Mapping[str, Any]) -> bool:
    """Return whether the physical space has been observed."""
    record = (space.get("status") or {}).get(PHYSICAL_SPACE)
    return isinstance(record, dict) and bool(record.get("found"))


def name_for(physical: Physical, is_free: bool = True) -> str:
    """Return the name for the Space of a discovered physical space."""
    plain = physical.name if not physical.parent else f"{_slug(physical.parent)}.{physical.name}"
    if is_free and not names.dns_subdomain(plain) and len(plain) <= LONGEST:
        return plain
    digest = hashlib.sha256(f"{physical.parent}\0{physical.name}".encode()).hexdigest()[:_DIGEST]
    slug = _slug(f"{physical.parent} {physical.name}")[: LONGEST - _DIGEST - 1].rstrip("-")
    return f"{slug or 'space'}-{digest}"


def discovered(physical: Physical, provider: str, name: str) -> Object:
    """Return the Space for a discovered physical space."""
    annotations = {}
    if physical.name != name:
        annotations[spaces.PHYSICAL_NAME] = physical.name
    if physical.parent:
        annotations[spaces.PATH] = physical.parent
    metadata: Object = {
        "name": name,
        "namespace": spaces.namespace_of(provider),
        "labels": {spaces.MANAGED_BY: spaces.MANAGER, spaces.PROVIDER_LABEL: provider},
    }
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": spaces.SPACES.api_version,
        "kind": spaces.SPACES.kind,
        "metadata": metadata,
        "spec": {
            "SpaceProviderDescName": provider,
            "Type": spaces.UNMANAGED,
            # Explicit, because the object is also used before the server sets defaults.
            "accessscopetype": spaces.BOTH,
        },
    }


def is_discovered(space: Mapping[str, Any]) -> bool:
    """Return whether discovery created a Space, so that the manager may delete it."""
    labels = space["metadata"].get("labels") or {}
    return type_of(space) == spaces.UNMANAGED and labels.get(spaces.MANAGED_BY) == spaces.MANAGER


def _slug(text: str) -> str:
    return _OTHER_MARKS.sub("-", text.lower()).strip("-")
