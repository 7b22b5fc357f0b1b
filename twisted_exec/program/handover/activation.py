"""
Listening sockets that systemd opened for this process.

Source: sd_listen_fds(3).  Twisted reads ``LISTEN_FDS`` when its endpoints are imported, and removes
it from the environment.
"""

from __future__ import annotations

import os
import socket

from twisted.internet import endpoints

from twisted_exec.tls.listening import ListeningSocket


def activated_sockets() -> list[ListeningSocket]:
    """
    Return the listening sockets of systemd.

    They are duplicates: Twisted's ``systemd:`` endpoints know the original descriptors by number.
    """
    found = []
    for number in endpoints._SystemdParser._sddaemon.inheritedDescriptors():
        try:
            os.set_inheritable(number, False)
            duplicate = socket.socket(fileno=os.dup(number))
        except OSError:
            continue  # no socket, such as a FIFO
        if _listens(duplicate):
            found.append(ListeningSocket("", duplicate, is_shared=True))
        else:
            duplicate.close()
    return found


def _listens(each: socket.socket) -> bool:
    is_stream = each.type == socket.SOCK_STREAM
    return is_stream and bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
