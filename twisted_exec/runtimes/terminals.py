"""
Pseudo-terminals as the kernel has them: their size, their owner, and what is left in them.

See ioctl_tty(2) and pty(7).
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
_MOST_LEFT_BYTES = 1 << 20


def set_size(descriptor: int, size: TerminalSize) -> None:
    """Tell a terminal its size; its processes get SIGWINCH when it is another."""
    cells = struct.pack("4H", size.rows, size.columns, 0, 0)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, cells)


def give(descriptor: int, uid: int) -> None:
    """Make a terminal its user's, as login does, so that it can be opened by name."""
    try:
        tty_group = grp.getgrnam("tty").gr_gid
    except KeyError:
        tty_group = -1
    os.fchown(descriptor, uid, tty_group)
    os.fchmod(descriptor, 0o620)


def read_rest(descriptor: int) -> Iterator[bytes]:
    """
    What is in a terminal whose processes have ended.

    :param descriptor: the master's, which does not block.
    """
    left = _MOST_LEFT_BYTES
    while left > 0:
        try:
            data = os.read(descriptor, _READ_BYTES)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EIO):
                raise
            return
        if not data:
            return
        left -= len(data)
        yield data
