"""Paths of UNIX sockets, and the users of their peers."""

from __future__ import annotations

import os
import pwd
import socket
import struct

from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.fast.transport import socket_transport

LONGEST_SOCKET_PATH = 107
"""``sizeof(sun_path) - 1``: see unix(7)."""


def uid_of(user: str) -> int:
    """
    Return the user id of a user of this host.

    :param user: number or name.
    :raises ValueError: no user has the name.
    """
    try:
        return int(user) if user.isascii() and user.isdigit() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ValueError(f"there is no user {user!r} on this host") from None


def peer_uid(transport: object) -> int:
    """
    Return the user id of the connected process (``SO_PEERCRED``).

    :param transport: with or without TLS.
    :raises TLSConfigError: it is not a UNIX socket.
    """
    handle = getattr(socket_transport(transport), "getHandle", lambda: None)()
    if not isinstance(handle, socket.socket) or handle.family != socket.AF_UNIX:
        raise TLSConfigError("only UNIX sockets know their peer's user")
    credentials = handle.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, uid, _gid = struct.unpack("3i", credentials)
    return int(uid)


def checked_socket_path(path: str) -> str:
    """
    Check the path of a UNIX socket and return it.

    :raises TLSConfigError: it is empty, too long, or holds a NUL.
    """
    length = len(os.fsencode(path))
    if not path or "\0" in path:
        raise TLSConfigError(f"{path!r} is no path for a UNIX socket")
    if length > LONGEST_SOCKET_PATH:
        raise TLSConfigError(
            f"UNIX socket path {path!r} has {length} bytes; {LONGEST_SOCKET_PATH} are possible"
        )
    return path
