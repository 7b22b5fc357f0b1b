"""
Which physical space a Space stands for, and what the Space of one that was discovered is called.

Without I/O.  An object's name is less than a provider may call something: where a name will not do, another
is made of it, and annotations say what is meant.
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
"""Of a Space's name: it is the value of a label as well."""
PHYSICAL_SPACE = "physicalSpace"
"""
Member of a Space's ``status``, ours: ``{name, parent, found}``.  It is written before a physical space is asked
for, so whoever comes later knows that there may be one; ``found`` says that it was there once.
"""

_OTHER_MARKS = re.compile(r"[^a-z0-9]+")
_DIGEST = 8


def type_of(space: Mapping[str, Any]) -> str:
    """``spec.Type`` of a Space, with its default."""
    return str((space.get("spec") or {}).get("Type") or spaces.MANAGED)


def provider_of(space: Mapping[str, Any]) -> str:
    """The name of a Space's SpaceProviderDesc; empty for none, and for what is imported."""
    if type_of(space) == spaces.IMPORTED:
        return ""
    return str((space.get("spec") or {}).get("SpaceProviderDescName") or "")


def viewpoints_of(space: Mapping[str, Any]) -> tuple[str, ...]:
    """From where a Space is to be reached; one that does not say so, from everywhere."""
    scope = (space.get("spec") or {}).get("accessscopetype") or spaces.BOTH
    return spaces.VIEWPOINTS if scope == spaces.BOTH else (str(scope),)


def misplaced(space: Mapping[str, Any]) -> tuple[str, str] | None:
    """Why a Space cannot be kept where it is: reason and message; ``None`` when it can."""
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
    """What a Space that belongs to a provider stands for, by its name and its annotations."""
    annotations = space["metadata"].get("annotations") or {}
    name = annotations.get(spaces.PHYSICAL_NAME) or space["metadata"]["name"]
    return Physical(str(name), str(annotations.get(spaces.PATH) or ""))


def recorded(space: Mapping[str, Any]) -> Physical | None:
    """What was asked for on its behalf, or found; ``None`` when nothing was."""
    known = (space.get("status") or {}).get(PHYSICAL_SPACE)
    if not isinstance(known, dict) or not known.get("name"):
        return None
    return Physical(str(known["name"]), str(known.get("parent") or ""))


def physical_of(space: Mapping[str, Any]) -> Physical:
    """
    What a Space that belongs to a provider stands for.

    What was asked for once counts more than annotations: who changes them later does not move anything.
    """
    return recorded(space) or said(space)


def was_found(space: Mapping[str, Any]) -> bool:
    """Whether its physical space was there at least once."""
    known = (space.get("status") or {}).get(PHYSICAL_SPACE)
    return isinstance(known, dict) and bool(known.get("found"))


def name_for(physical: Physical, is_free: bool = True) -> str:
    """
    What the Space of a discovered physical space is called: the same each time it is asked.

    :param is_free: nobody has the name that it gets otherwise; another one, longer, is nobody else's.
    """
    plain = physical.name if not physical.parent else f"{_slug(physical.parent)}.{physical.name}"
    if is_free and not names.dns_subdomain(plain) and len(plain) <= LONGEST:
        return plain
    digest = hashlib.sha256(f"{physical.parent}\0{physical.name}".encode()).hexdigest()[:_DIGEST]
    told = _slug(f"{physical.parent} {physical.name}")[: LONGEST - _DIGEST - 1].rstrip("-")
    return f"{told or 'space'}-{digest}"


def discovered(physical: Physical, provider: str, name: str) -> Object:
    """The Space that is made for a physical space that was found."""
    told = {}
    if physical.name != name:
        told[spaces.PHYSICAL_NAME] = physical.name
    if physical.parent:
        told[spaces.PATH] = physical.parent
    metadata: Object = {
        "name": name,
        "namespace": spaces.namespace_of(provider),
        "labels": {spaces.MANAGED_BY: spaces.MANAGER, spaces.PROVIDER_LABEL: provider},
    }
    if told:
        metadata["annotations"] = told
    return {
        "apiVersion": spaces.SPACES.api_version,
        "kind": spaces.SPACES.kind,
        "metadata": metadata,
        "spec": {
            "SpaceProviderDescName": provider,
            "Type": spaces.UNMANAGED,
            # Said, although it is the default: what is decided on the answer needs it.
            "accessscopetype": spaces.BOTH,
        },
    }


def is_discovered(space: Mapping[str, Any]) -> bool:
    """Whether it was made by us for what we found, and so is ours to delete."""
    labels = space["metadata"].get("labels") or {}
    return type_of(space) == spaces.UNMANAGED and labels.get(spaces.MANAGED_BY) == spaces.MANAGER


def _slug(text: str) -> str:
    return _OTHER_MARKS.sub("-", text.lower()).strip("-")
