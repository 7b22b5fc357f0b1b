"""
The parts of twistd that a hand-over changes: the pidfile, daemons, the log.

Two processes of one command line run at once.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import MutableMapping
from typing import Any

from twisted.logger import Logger

_LOG = "twistd.log"
"""twistd's log file of daemons."""
# twistd's own for daemons (setupEnvironment of _twistd_unix.py).
_DAEMON_UMASK = 0o077
_PIDFILE = "successor-pidfile"

_log = Logger()


def prepare_successor(options: MutableMapping[str, Any]) -> None:
    """
    Change twistd's options in a successor, before twistd acts on them.

    The successor of a daemon stays in the foreground, because no parent waits for it. Its
    privileges are already those that twistd leaves to the program.
    """
    # twistd would refuse to start while the pidfile names the predecessor.
    if options.get("pidfile"):
        options[_PIDFILE], options["pidfile"] = os.path.abspath(options["pidfile"]), ""
    if not options.get("nodaemon", True):
        options["nodaemon"] = True
        if not options["logfile"] and not options["syslog"]:
            options["logfile"] = _LOG
        if options["umask"] is None:
            options["umask"] = _DAEMON_UMASK
    for name in ("uid", "gid"):
        if name in options:
            options[name] = None


class PidFile:
    """The file that names the process of a program."""

    def __init__(self, options: MutableMapping[str, Any] | None) -> None:
        self._options = {} if options is None else options
        self._path: str = self._options.get(_PIDFILE) or self._options.get("pidfile") or ""

    def take(self) -> None:
        """Write the id of this process, which has replaced another process."""
        if not self._path:
            return
        temporary = f"{self._path}.{os.getpid()}"
        try:
            try:
                _write(temporary)
                os.replace(temporary, self._path)
            except PermissionError:
                _write(self._path)  # twistd wrote it as root, in a directory of root
        except OSError as problem:
            why = f"{self._path}: {problem.strerror}"
            _log.warn("the pidfile does not name this process: {why}", why=why)

    def leave(self) -> None:
        """Leave the file to another process."""
        # twistd would remove the pidfile of the successor.
        self._path = self._options["pidfile"] = ""

    def remove(self) -> None:
        """Remove the file at the end of a process that has written it by :meth:`take`."""
        if self._path:
            try:
                os.unlink(self._path)
            except OSError as problem:
                why = f"{self._path}: {problem.strerror}"
                _log.warn("the pidfile cannot be removed: {why}", why=why)


def _write(path: str) -> None:
    with open(path, "w") as file:
        file.write(str(os.getpid()))


def append_to_log(options: MutableMapping[str, Any] | None) -> None:
    """
    Make this process append to its log file.

    twistd's log writes at its own position in the file, and would overwrite the lines of another
    process.
    """
    name = os.path.basename((options or {}).get("logfile") or _LOG)
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.path.basename(os.readlink(f"/proc/self/fd/{number}")) == name:
                flags = fcntl.fcntl(int(number), fcntl.F_GETFL)
                fcntl.fcntl(int(number), fcntl.F_SETFL, flags | os.O_APPEND)
        except OSError:
            continue  # closed meanwhile, such as the descriptor of the listing itself
