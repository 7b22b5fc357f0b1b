"""
Access to the files of journals: only regular files of this program's user are opened.

The parameter ``layer`` is the module :mod:`os`, or a double of it.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from twisted_exec.journal.records import Damaged


class ForeignFile(OSError):
    """A file or directory of a journal is of another type or user, or open to others."""


@contextmanager
def opened(layer: Any, path: str, flags: int = os.O_RDONLY) -> Iterator[int]:
    """
    Open a file of a journal for a block of code.

    :raises ForeignFile: the path is not a regular file of this program's user.
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
            raise ForeignFile(errno.ELOOP, "it is a symbolic link", path) from None
        raise
    entry = layer.fstat(descriptor)
    if not stat.S_ISREG(entry.st_mode) or entry.st_uid != os.geteuid():
        layer.close(descriptor)
        raise ForeignFile(errno.EPERM, "it is not a file of this program's user", path)
    return descriptor


def is_passing(error: OSError) -> bool:
    """Return whether reading again may work: files or memory ran out, or the disk is slow."""
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


def write_whole(layer: Any, descriptor: int, content: bytes) -> None:
    """
    Write the content of a new file with one call.

    :raises OSError: also if the disk takes only a part, which a full one does without an error.
    """
    if layer.write(descriptor, content) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def replace_file(layer: Any, path: str, content: bytes) -> None:
    """Write a small file, or leave the one that exists as it is."""
    new = f"{path}.new"
    with opened(layer, new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
        write_whole(layer, descriptor, content)
    layer.rename(new, path)


def check_directory(layer: Any, path: str) -> None:
    """
    Check the directory of a journal.

    :raises ForeignFile: it is no directory, or open to others or of another user.
    """
    entry = layer.lstat(path)
    if not stat.S_ISDIR(entry.st_mode):
        raise ForeignFile(errno.ENOTDIR, "it is not a directory", path)
    if entry.st_uid != os.geteuid():
        raise ForeignFile(errno.EPERM, f"it belongs to user id {entry.st_uid}", path)
    mode = stat.S_IMODE(entry.st_mode)
    if mode & 0o077:
        why = f"it is open to other users (mode {mode:o}); type: chmod 700 {shlex.quote(path)}"
        raise ForeignFile(errno.EPERM, why, path)


def sync_directory(layer: Any, path: str) -> None:
    descriptor = layer.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        layer.fsync(descriptor)
    finally:
        layer.close(descriptor)
