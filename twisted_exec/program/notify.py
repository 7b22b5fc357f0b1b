"""
Notifications to systemd.

systemd considers a service of ``Type=notify`` started when it sends ``READY=1``, so units ordered
after it find it listening.  Source: sd_notify(3): one datagram to the socket in ``NOTIFY_SOCKET``,
where a leading ``@`` stands for the NUL of an abstract address.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

VARIABLE = "NOTIFY_SOCKET"
READY, STOPPING = "READY=1", "STOPPING=1"


def notify(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """
    Send a state to systemd, if ``NOTIFY_SOCKET`` is set.

    :param state: assignments of sd_notify(3), such as :data:`READY`, one a line.
    :return: whether it was sent.
    """
    path = environ.get(VARIABLE, "")
    if not path.startswith(("/", "@")):
        return False
    address = f"\0{path[1:]}" if path.startswith("@") else path
    try:
        with socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
        ) as notify_socket:
            # Must not block the reactor's thread.
            notify_socket.setblocking(False)
            notify_socket.sendto(state.encode(), address)
    except OSError:
        return False
    return True


def reloading() -> str:
    """Return the state of a service that reads its configuration again, until it is ready."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"


def replaced_by(pid: int) -> str:
    """Return the state of a service whose main process is another one from now on."""
    return f"{READY}\nMAINPID={pid}"
