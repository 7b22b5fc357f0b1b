"""Places: the host and the state directory that have the physical spaces of a provider."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from typing import Any

from twisted_exec.tls.private_files import write_private

PLACE = "place"
"""Field of a SpaceProviderDesc's ``status``, and file in a state directory."""
_LONGEST = 1024


def place_of(directory: str) -> str:
    """
    Return the place of a state directory: an ID, followed by its current host and path for people.

    :raises TLSConfigError: the ID cannot be written.
    """
    path = os.path.join(directory, PLACE)
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            identity = _id(file.read(_LONGEST))
    except FileNotFoundError:
        identity = ""
    if not identity:
        identity = str(uuid.uuid4())
        write_private(path, f"{identity}\n".encode())
    return f"{identity} {socket.gethostname()}:{directory}"


def recorded_place(desc: Mapping[str, Any]) -> str:
    """Return the recorded place of a provider's physical spaces, or empty."""
    return str((desc.get("status") or {}).get(PLACE) or "")[:_LONGEST]


def is_same(first: str, second: str) -> bool:
    """Return whether two places have the same ID."""
    return _id(first) == _id(second)


def location_of(place: str) -> str:
    """Return the human-readable part: host and path at the time."""
    return place.partition(" ")[2].strip() or place


def _id(place: str) -> str:
    return place.partition(" ")[0].strip()
