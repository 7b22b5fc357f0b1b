"""
Where physical spaces are kept that are on a manager's host.

Of a provider such as ``local`` or ``kind`` another manager, on another host or with another ``--state-dir``, has
none of the spaces.  Were it to lead, all of them would be missing, and so be made a second time and empty.
So the first that takes such a provider up writes in its ``status`` where that was, and others say where instead of
looking.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from typing import Any

from twisted_exec.tls.pki.authority import write_private

PLACE = "place"
"""Member of a SpaceProviderDesc's ``status``, and the file of a state directory."""
_LONGEST = 1024


def place_of(directory: str) -> str:
    """
    What a state directory is called, made up when it is used first: an id, and for people where it lies now.

    :param directory: absolute; there.
    :raises TLSConfigError: nothing can be written there.
    :raises OSError: what was written there cannot be read.
    """
    path = os.path.join(directory, PLACE)
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            known = _id(file.read(_LONGEST))
    except FileNotFoundError:
        known = ""
    if not known:
        known = str(uuid.uuid4())
        write_private(path, f"{known}\n".encode())
    return f"{known} {socket.gethostname()}:{directory}"


def recorded_place(desc: Mapping[str, Any]) -> str:
    """Where the physical spaces of a provider are, empty when nobody has said so."""
    return str((desc.get("status") or {}).get(PLACE) or "")[:_LONGEST]


def is_same(one: str, other: str) -> bool:
    """Whether it is the same place, wherever it lay when it was told."""
    return _id(one) == _id(other)


def shown(place: str) -> str:
    """For people: where it lay when it was told."""
    return place.partition(" ")[2].strip() or place


def _id(place: str) -> str:
    return place.partition(" ")[0].strip()
