"""
Size, owner and remaining output of pseudo-terminals: see ioctl_tty(2) and pty(7).
"""

from __future__ import annotations

import errno
import fcntl
import grp
import os
import struct
import termios
from collections.abc import Iterator

from twisted_exec.streaming.interfaces import TerminalSize

_READ_BYTES = 64 << 10
_MAX_REST_BYTES = 1 << 20


def set_size(descriptor: int, size: TerminalSize) -> None:
    """Set the size of a terminal; its processes get SIGWINCH if it changed."""
    cells = struct.pack("4H", size.rows, size.columns, 0, 0)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, cells)


def give(descriptor: int, uid: int) -> None:
    """Change the owner of a terminal, as login(1) does, so that the user can open it by name."""
    try:
        tty_group = grp.getgrnam("tty").gr_gid
    except KeyError:
        tty_group = -1
    os.fchown(descriptor, uid, tty_group)
    os.fchmod(descriptor, 0o620)


def read_rest(descriptor: int) -> Iterator[bytes]:
    """
    Read the output that is left in a terminal after its processes have ended, at most 1 MiB.

    :param descriptor: the master, in non-blocking mode.
    """
    remaining = _MAX_REST_BYTES
    while remaining > 0:
        try:
            data = os.read(descriptor, _READ_BYTES)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EIO):
                raise
            return
        if not data:
            return
        remaining -= len(data)
        yield data
