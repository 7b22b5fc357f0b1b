"""
Checks of writes against the stored object, and the changes that the writes make.
"""

from __future__ import annotations

from twisted_exec.api.encoded import Encoded
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import AlreadyExists, Conflict, NotFound
from twisted_exec.storage.interfaces import ADDED, Event, Object


def created(obj: Object, version: int) -> Event:
    """Return the change that adds ``obj``."""
    return Event(ADDED, versioned(obj, version), None, version)


def versioned(obj: Object, version: int) -> Encoded:
    """Return a copy with another resourceVersion."""
    metadata = {**obj["metadata"], "resourceVersion": str(version)}
    return Encoded({**obj, "metadata": metadata})


def check_absent(resource: Resource, obj: Object, stored: object) -> None:
    """
    Check that no object has the name of a new one.

    :raises AlreadyExists: there is one.
    """
    if stored is not None:
        raise AlreadyExists(resource.plural, obj["metadata"]["name"], resource.group)


def check_current(resource: Resource, obj: Object, uid: str | None, version: str) -> None:
    """
    Check that the writer has read the stored object.

    :param uid: UID of the stored object, ``None`` if there is none.
    :raises NotFound: there is none.
    :raises Conflict: it has another UID, or has changed.
    """
    metadata = obj["metadata"]
    if uid is None:
        raise NotFound(resource.plural, metadata["name"], resource.group)
    if metadata.get("uid") != uid or metadata.get("resourceVersion") != version:
        raise Conflict(
            f'Operation cannot be fulfilled on {resource.qualified} "{metadata["name"]}": the '
            "object has been modified; please apply your changes to the latest version and try "
            "again",
            details={
                "name": metadata["name"],
                "group": resource.group,
                "kind": resource.plural,
            },
        )
