"""
Identity of the place of physical spaces that are on a manager's host.

The physical spaces of a provider such as ``local`` or ``kind`` only exist for one host and
``--state-dir``.  If a manager elsewhere became the leader, all of them would seem to be missing,
and would be created a second time, empty.  So the first manager that uses such a provider records
its place in the ``status``, and managers elsewhere report the place instead of using the provider.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from typing import Any

from twisted_exec.tls.pki.authority import write_private

PLACE = "place"
"""Field of a SpaceProviderDesc's ``status``, and file in a state directory."""
_LONGEST = 1024


def place_of(directory: str) -> str:
    """
    Return the place of a state directory: an ID, created on first use, and for people its current
    host and path.

    :param directory: absolute path of an existing directory.
    :raises TLSConfigError: the directory is not writable.
    :raises OSError: the recorded ID is unreadable.
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
    """Return whether two places have the same ID, even if the directory was moved."""
    return _id(first) == _id(second)


def location_of(place: str) -> str:
    """Return the human-readable part: host and path at the time."""
    return place.partition(" ")[2].strip() or place


def _id(place: str) -> str:
    return place.partition(" ")[0].strip()
