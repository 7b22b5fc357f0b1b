"""
Files of a journal: opened without following links, and checked for their owner.

The *layer* is the module ``os``, or a stand-in that fails on purpose.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .records import Damaged


class Refused(OSError):
    """A file of a journal belongs to another user, or is not a file."""


@contextmanager
def opened(layer: Any, path: str, flags: int = os.O_RDONLY) -> Iterator[int]:
    """
    Open a file of a journal for a block of code.

    :param layer: the module ``os``, or a stand-in for it.
    :raises Refused: it is a symbolic link, not a file, or belongs to another user.
    """
    descriptor = open_file(layer, path, flags)
    try:
        yield descriptor
    finally:
        layer.close(descriptor)


def open_file(layer: Any, path: str, flags: int) -> int:
    """See :func:`opened`; the caller closes the descriptor."""
    # Without O_NONBLOCK, a FIFO in place of the file would block the program.
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor: int = layer.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Refused(errno.ELOOP, "it is a symbolic link", path) from None
        raise
    entry = layer.fstat(descriptor)
    if not stat.S_ISREG(entry.st_mode) or entry.st_uid != os.geteuid():
        layer.close(descriptor)
        raise Refused(errno.EPERM, "it is not a file of this program's user", path)
    return descriptor


def is_passing(error: OSError) -> bool:
    """Return whether reading again may work: it is a limit of the program, or the disk is slow."""
    return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ETIMEDOUT)


def read_output(layer: Any, descriptor: int, size: int, position: int) -> bytes:
    """
    Read a part of a file.

    :raises Damaged: the disk cannot read it.
    """
    try:
        data: bytes = layer.pread(descriptor, size, position)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise Damaged("the disk cannot read a part of the file") from None
    return data


def sync_directory(layer: Any, path: str) -> None:
    """Force the names in a directory to the disk."""
    descriptor = layer.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        layer.fsync(descriptor)
    finally:
        layer.close(descriptor)
