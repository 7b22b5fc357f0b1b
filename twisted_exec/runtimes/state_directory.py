"""
What a runtime keeps in its state directory for itself: that it is the only one, and who it is.
"""

from __future__ import annotations

import fcntl
import os
import re
import uuid

ID = re.compile(r"[0-9a-f]{32}")
"""What :func:`identity` makes, and what machines are called here."""


class StateInUse(Exception):
    """Another runtime has the state directory; it would end the other's machines."""


def lock(path: str) -> int:
    """
    A descriptor to keep; the lock goes with the process, however it ends.

    :raises StateInUse: another runtime has it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        directory = os.path.dirname(path)
        raise StateInUse(
            f"another runtime uses the state directory {directory}: stop it, or choose another"
        ) from None
    return descriptor


def identity(path: str) -> str:
    """This state directory's own word, made once; it marks processes as ours."""
    try:
        with open(path) as file:
            found = file.read().strip()
        if ID.fullmatch(found):
            return found
    except FileNotFoundError:
        pass
    made = uuid.uuid4().hex
    with open(f"{path}.new", "w") as file:
        file.write(made)
    os.replace(f"{path}.new", path)
    return made
