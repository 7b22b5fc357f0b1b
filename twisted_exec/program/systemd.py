"""
The interface between a program and systemd: notifications, and sockets that systemd opened.

Source: sd_notify(3): one datagram to the socket in ``NOTIFY_SOCKET``.

systemd may also open listening sockets for this process. Source: sd_listen_fds(3).  Twisted reads
``LISTEN_FDS`` when its endpoints are imported, and removes it from the environment; the kernel
still has the environment that this process was started with.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from twisted.python.systemd import ListenFDs

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


def activated_sockets() -> list[socket.socket]:
    """
    Return the listening sockets of systemd.

    They are duplicates: Twisted's ``systemd:`` endpoints know the original descriptors by number.
    """
    listening = []
    for number in ListenFDs.fromEnvironment(_first_environment()).inheritedDescriptors():
        try:
            os.set_inheritable(number, False)
            duplicate = socket.socket(fileno=os.dup(number))
        except OSError:
            continue  # no socket, such as a FIFO
        if _listens(duplicate):
            listening.append(duplicate)
        else:
            duplicate.close()
    return listening


def _first_environment() -> dict[str, str]:
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(each).partition("=") for each in entries)
    return {name: value for name, _, value in pairs}


def _listens(each: socket.socket) -> bool:
    is_stream = each.type == socket.SOCK_STREAM
    return is_stream and bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
