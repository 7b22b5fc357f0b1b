"""
Lock files of serial devices, as all programs that dial out have made them since UUCP.

``/run/lock/LCK..ttyUSB0`` holds the process id of whoever has the device (Filesystem Hierarchy
Standard 3.0, 5.9).  ser2net, minicom and picocom keep to it; locks of the kernel they do not all look at.
"""

from __future__ import annotations

import errno
import os

DIRECTORY = "/run/lock"


class DeviceLock:
    """
    The lock file of one device.

    :param path: of the device; one that is a link is locked by the name of what it leads to.
    """

    def __init__(self, path: str, directory: str | None = None) -> None:
        name = os.path.realpath(path).removeprefix("/dev/").replace("/", "_")
        self.path = os.path.join(directory or DIRECTORY, f"LCK..{name}")
        self._taken = False

    def take(self) -> None:
        """
        Make it.  Where one may not, there is none, and the kernel's locks must do.

        :raises OSError: ``EBUSY``: a process that is alive has it.
        """
        for _ in range(2):
            try:
                descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                self._clear()
            except OSError:
                return
            else:
                os.write(descriptor, b"%10d\n" % os.getpid())
                os.close(descriptor)
                self._taken = True
                return
        raise OSError(errno.EBUSY, "")

    def release(self) -> None:
        """Remove it, if it is ours.  Repeated calls do nothing."""
        if self._taken:
            self._taken = False
            self._remove()

    def _remove(self) -> None:
        try:
            os.unlink(self.path)
        except OSError:
            pass  # it is gone, or not ours to remove

    def _clear(self) -> None:
        """Remove one whose process is no more."""
        try:
            # Anybody may write to the directory: reading must not wait, nor lead elsewhere.
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(self.path, flags), "rb") as file:
                owner = int((file.read(64) or b"").split()[0])
            os.kill(owner, 0)
        except ProcessLookupError:
            self._remove()
        except (OSError, ValueError, IndexError, OverflowError):
            pass  # alive, though not ours to signal; or just being written
