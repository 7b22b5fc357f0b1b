"""
Listening sockets that systemd opened for this process.

Source: sd_listen_fds(3).  Twisted reads ``LISTEN_FDS`` when its endpoints are imported, and removes
it from the environment; the kernel still has the environment that this process was started with.
"""

from __future__ import annotations

import os
import socket

from twisted.python.systemd import ListenFDs

from twisted_exec.program.listening import ListeningSocket


def activated_sockets() -> list[ListeningSocket]:
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
            listening.append(ListeningSocket("", duplicate, is_shared=True))
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
