"""
Lock files of serial devices.
"""

from __future__ import annotations

import errno
import os

LOCK_DIRECTORY = "/run/lock"


class DeviceLock:
    """
    The lock file of one device, in the form of UUCP, if the runtime may create one:
    ``/run/lock/LCK..ttyUSB0`` contains the process id of the owner.

    :param path: the device; for a symbolic link, its target's name is locked.
    """

    def __init__(self, path: str, directory: str | None = None) -> None:
        name = os.path.realpath(path).removeprefix("/dev/").replace("/", "_")
        self.path = os.path.join(directory or LOCK_DIRECTORY, f"LCK..{name}")
        self._is_owner = False

    def take(self) -> None:
        """
        Create the lock file, if permitted; otherwise only the kernel's locks apply.

        :raises OSError: ``EBUSY``: there is a lock file, and its process is not known to have
            ended.
        """
        for _ in range(2):
            try:
                descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                self._clear()
            except OSError:
                return
            else:
                # Ten characters, padded with blanks (Filesystem Hierarchy Standard 3.0, 5.9).
                os.write(descriptor, b"%10d\n" % os.getpid())
                os.close(descriptor)
                self._is_owner = True
                return
        raise OSError(errno.EBUSY, "")

    def release(self) -> None:
        if self._is_owner:
            self._is_owner = False
            self._remove()

    def _remove(self) -> None:
        try:
            os.unlink(self.path)
        except OSError:
            pass  # already removed, or owned by another user

    def _clear(self) -> None:
        try:
            # The directory is world-writable: do not block on a FIFO or follow a link.
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(self.path, flags), "rb") as file:
                owner = int((file.read(64) or b"").split()[0])
            os.kill(owner, 0)
        except ProcessLookupError:
            self._remove()
        except (OSError, ValueError, IndexError, OverflowError):
            pass  # alive with another user, or being written
