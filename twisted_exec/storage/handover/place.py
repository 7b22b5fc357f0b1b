"""
The UNIX socket of a store, beside its database, and the user of its peer.
"""

from __future__ import annotations

import os
import stat

from twisted_exec.storage.interfaces import StorageError
from twisted_exec.tls.unix import LONGEST_SOCKET_PATH, peer_uid


class SocketPlace:
    """
    The path of the socket, relative to the descriptor of the directory: the kernel limits its
    length.

    :raises StorageError: the directory cannot be opened, or the name is too long.
    """

    def __init__(self, path: str) -> None:
        directory, name = os.path.split(f"{os.path.abspath(path)}-successor")
        try:
            self._handle = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise StorageError(f"cannot open {directory}: {error.strerror}") from None
        self.path = f"/proc/self/fd/{self._handle}/{name}"
        if len(os.fsencode(self.path)) > LONGEST_SOCKET_PATH:
            self.close()
            raise StorageError(
                f"the name of the store {path} is too long for a hand-over: give it a shorter one"
            )

    def remove_stale(self) -> None:
        """
        Remove the socket of a server that did not stop properly.

        :raises StorageError: something else has the path, or it cannot be removed.
        """
        try:
            if not stat.S_ISSOCK(os.lstat(self.path).st_mode):
                raise StorageError(f"{os.path.realpath(self.path)} is not a socket: remove it")
            os.unlink(self.path)
        except FileNotFoundError:
            pass
        except OSError as error:
            path = os.path.realpath(self.path)
            raise StorageError(f"cannot remove {path}: {error.strerror}") from None

    def close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


def is_same_user(transport: object) -> bool:
    """Return whether the peer of a UNIX socket is a process of this process's user."""
    return peer_uid(transport) == os.geteuid()
