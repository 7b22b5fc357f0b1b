"""
Telling systemd how a program does, so that whoever waits for it waits for the right thing.

A service of ``Type=notify`` has begun when it says ``READY=1``, not when its process
exists: what is ordered after it finds it listening.  Source: sd_notify(3); one datagram to the
socket that ``NOTIFY_SOCKET`` names, where a leading ``@`` stands for the NUL of an abstract one.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

VARIABLE = "NOTIFY_SOCKET"
READY, STOPPING = "READY=1", "STOPPING=1"


def notify(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """
    Say something, if anyone listens; that nobody does is no mistake.

    :param state: an assignment as sd_notify(3) lists them, such as :data:`READY`.
    :return: whether it was said.
    """
    path = environ.get(VARIABLE, "")
    if not path.startswith(("/", "@")):
        return False
    address = f"\0{path[1:]}" if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as told:
            # It never waits: the reactor's thread is the only one.
            told.setblocking(False)
            told.sendto(state.encode(), address)
    except OSError:
        return False
    return True
