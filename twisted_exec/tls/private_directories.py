"""Directories that only their owner can use."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import tempfile

from twisted.logger import Logger

from twisted_exec.tls.errors import DirectoryError
from twisted_exec.tls.unix import LONGEST_SOCKET_PATH

_log = Logger()

# A slash, and a name of up to 47 bytes.
_ROOM_FOR_NAMES = 48


def private_directory(path: str) -> str:
    """
    Create a private directory, or check that an existing one is private.

    Missing parents are created, private as well. An existing directory that other users may enter
    is made private if it is empty, which the log says, and refused otherwise: another user may have planted its files.

    :return: its absolute path.
    :raises DirectoryError: it cannot be created, or is not private.
    """
    path = os.path.abspath(path)
    try:
        _make(path)
        _check_private(path)
    except (OSError, ValueError) as problem:
        why = os.strerror(problem.errno or 0) if isinstance(problem, OSError) else problem
        raise DirectoryError(f"cannot use directory {path!r}: {why}") from None
    return path


def _make(path: str) -> None:
    if os.path.lexists(path):
        return
    _make(os.path.dirname(path))
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass  # created by another process meanwhile; the checks find its owner


def _check_private(path: str) -> None:
    if os.path.islink(path):
        raise DirectoryError(f"{path!r} is a symbolic link: give the directory itself")
    if not os.path.isdir(path):
        raise DirectoryError(f"{path!r} is not a directory")
    # All checks use one descriptor: by path, another user could swap the directory between them.
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        entry = os.fstat(descriptor)
        if entry.st_uid != os.geteuid():
            raise DirectoryError(
                f"directory {path!r} belongs to user id {entry.st_uid}, not to {os.geteuid()}"
            )
        mode = stat.S_IMODE(entry.st_mode)
        if mode & 0o077:
            if os.listdir(descriptor):
                raise DirectoryError(
                    f"directory {path!r} is open to other users (mode {mode:o}): if all files in it are "
                    f"yours, type: chmod 700 {shlex.quote(path)}; otherwise name a directory that does "
                    "not exist yet"
                )
            os.fchmod(descriptor, 0o700)
            _log.warn(
                "directory {path!r} was empty and open to other users: its mode is 700 now, not {mode:o}",
                path=path,
                mode=mode,
            )
    finally:
        os.close(descriptor)


def runtime_directory(key: str = "") -> str:
    """
    Return a private directory with a short path, for UNIX sockets whose names have up to 47 bytes.

    :param key: the same path returns the same directory; empty creates a new one.
    :return: its absolute path; the caller removes the directory.
    :raises DirectoryError: no such directory can be created.
    """
    name = hashlib.sha256(os.fsencode(os.path.realpath(key))).hexdigest()[:16] if key else ""
    for parent in _parents():
        try:
            return _directory_in(parent, name)
        except (OSError, DirectoryError):
            continue  # not writable, or taken by another user: try the next one
    raise DirectoryError(
        "no place for UNIX sockets: set XDG_RUNTIME_DIR to a private directory "
        f"with a path of at most {LONGEST_SOCKET_PATH - _ROOM_FOR_NAMES - 30} bytes"
    )


def _parents() -> list[str]:
    offered = os.environ.get("XDG_RUNTIME_DIR", "")
    # Others may enter the one of a unit, for sockets; systemd separates several by colons.
    of_unit = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    parents = [offered] if os.path.isabs(offered) and _is_ours(offered, 0o077) else []
    parents += [of_unit] if os.path.isabs(of_unit) and _is_ours(of_unit, 0o022) else []
    return [*parents, "/run", "/tmp"]


def _is_ours(path: str, forbidden: int) -> bool:
    try:
        entry = os.lstat(path)
    except OSError:
        return False
    return (
        stat.S_ISDIR(entry.st_mode)
        and entry.st_uid == os.geteuid()
        and not stat.S_IMODE(entry.st_mode) & forbidden
    )


def _directory_in(parent: str, name: str) -> str:
    if name:
        path = os.path.join(parent, f"twisted-exec-{name}")
        if _fits(path):
            return private_directory(path)
    else:
        # mkdtemp adds eight characters.
        if _fits(os.path.join(parent, "twisted-exec-12345678")):
            return tempfile.mkdtemp(prefix="twisted-exec-", dir=parent)
    raise DirectoryError(f"{parent!r} is too long a path for UNIX sockets")


def _fits(directory: str) -> bool:
    return len(os.fsencode(directory)) + _ROOM_FOR_NAMES <= LONGEST_SOCKET_PATH
