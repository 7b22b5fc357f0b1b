"""
Machines that are a command in a pseudo-terminal.

The command leads a session of its own with the pty as its controlling terminal.
What it is given is made here: environment, directory, user; nothing comes from the runtime's
own environment, where secrets may be.  When the command ends, or the machine is powered off,
everything that it started is ended too.
"""

from __future__ import annotations

import errno
import fcntl
import grp
import os
import pwd
import shutil
import struct
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.streaming.interfaces import TerminalSize

from .interfaces import IMachineDriver, IRun, MachineFacts
from .processes import Family, Leader, ProcessTable, leader, read_process

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FIRST_SIZE = TerminalSize(80, 24)
_READ_BYTES = 64 << 10
_MOST_LEFT_BYTES = 1 << 20
_LOOK_SECONDS = 0.001


@dataclass(frozen=True)
class PtyOptions:
    """
    How a class runs its command.

    :param user: whose process it is; empty is the runtime's own user, which
        must be asked for by ``same_user``.
    :param environment: added to ours.
    :param directory: where it starts; empty is the user's home.
    """

    command: Sequence[str]
    user: str = ""
    same_user: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    term: str = "xterm-256color"


@implementer(IMachineDriver)
class PtyDriver:
    """Runs a class of pty machines."""

    name = "pty"

    def __init__(self, options: PtyOptions, reactor: Any, table: ProcessTable) -> None:
        self.options = options
        self.reactor = reactor
        self.table = table

    def missing(self) -> str:
        options = self.options
        if not options.user and not options.same_user:
            return "the class needs user=NAME, or same_user: true to run as the runtime's own user"
        if options.user:
            try:
                account = pwd.getpwnam(options.user)
            except KeyError:
                return f"there is no user {options.user!r} on this host"
            if os.geteuid() != 0 and account.pw_uid != os.geteuid():
                return f"only root can run machines as {options.user!r}"
        if self.executable() is None:
            return f"there is no executable {options.command[0]!r} on this host"
        return ""

    def executable(self) -> str | None:
        return shutil.which(self.options.command[0], path=_PATH)

    def account(self) -> pwd.struct_passwd:
        if self.options.user:
            return pwd.getpwnam(self.options.user)
        return pwd.getpwuid(os.geteuid())

    def run(self, facts: MachineFacts) -> PtyRun:
        return PtyRun(self, facts)


@implementer(IRun)
class PtyRun:
    """One command in one pseudo-terminal."""

    paced = True

    def __init__(self, driver: PtyDriver, facts: MachineFacts) -> None:
        self._driver = driver
        self._facts = facts
        self._size = _FIRST_SIZE
        self._process: _Process | None = None
        mark = facts.marker[1]
        self._family = Family(driver.table, lambda found: found == mark)

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        return Deferred.fromCoroutine(self._start(factory))

    async def _start(self, factory: IProtocolFactory) -> Any:
        missing = self._driver.missing()
        if missing:
            raise ServiceUnavailable(missing)
        line = factory.buildProtocol(None)  # type: ignore[arg-type]
        self._process = _Process(line, self._family)
        try:
            transport = self._spawn(self._process)
        except OSError as error:
            raise ServiceUnavailable(f"no pseudo-terminal: {error.strerror}") from None
        found = leader(transport.pid) if transport.pid else None
        if found is not None:  # else it has ended already, and its end is on its way
            self._family.add(found)
            self._facts.started(found)
            await self._until_it_leads(found)
        return line

    async def _until_it_leads(self, found: Leader) -> None:
        """
        Wait for the child between fork and exec.

        A terminal that is closed before it is the child's own would make the
        child complain, on the runtime's own standard error.
        """
        while True:
            process = read_process(found.pid)
            if process is None or process.start != found.start or process.terminal:
                return
            await deferLater(self._driver.reactor, _LOOK_SECONDS)

    def window_changed(self, size: TerminalSize) -> None:
        self._size = size
        if self._process is not None:
            self._process.resize(size)

    def stop(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self._process is None:
            return
        left = await self._family.end()
        if left:
            self._facts.event(
                "Warning", "ProcessesLeft", f"{len(left)} processes of the machine cannot be ended"
            )
        self._process.close()

    def _spawn(self, process: _Process) -> Any:
        options, account = self._driver.options, self._driver.account()
        ours, theirs = os.openpty()
        try:
            _set_size(ours, self._size)
            switch = os.geteuid() == 0 and account.pw_uid != 0
            if switch:
                _give(theirs, account.pw_uid)
            terminal: Any = (ours, theirs, os.ttyname(theirs))  # the stub knows only bool
            return self._driver.reactor.spawnProcess(
                process,
                self._driver.executable() or options.command[0],
                list(options.command),
                env=self._environment(account),
                path=self._start_directory(account),
                uid=account.pw_uid if switch else None,
                gid=account.pw_gid if switch else None,
                usePTY=terminal,
            )
        except BaseException:
            os.close(ours)
            os.close(theirs)
            raise

    def _environment(self, account: pwd.struct_passwd) -> dict[str, str]:
        variable, value = self._facts.marker
        return {
            "PATH": _PATH,
            "LANG": "C.UTF-8",
            "TERM": self._driver.options.term,
            "HOME": account.pw_dir,
            "SHELL": account.pw_shell or "/bin/sh",
            "USER": account.pw_name,
            "LOGNAME": account.pw_name,
            **self._driver.options.environment,
            variable: value,
        }

    def _start_directory(self, account: pwd.struct_passwd) -> str:
        wanted = self._driver.options.directory or account.pw_dir
        return wanted if os.path.isdir(wanted) else "/"


class _Process(ProcessProtocol):
    """
    Joins Twisted's process to the line's protocol.

    The line ends when the command has: what the command left running is ended, what is
    still unread is read, and then the line learns the exit status.
    """

    transport: Any
    _log = Logger()

    def __init__(self, line: Any, family: Family) -> None:
        self._line = line
        self._family = family
        self._reason: Failure | None = None
        self._ended = False

    def connectionMade(self) -> None:
        self._line.makeConnection(self.transport)

    def childDataReceived(self, child_fd: int, data: bytes) -> None:
        if not self._ended:
            self._line.dataReceived(data)

    def resize(self, size: TerminalSize) -> None:
        if self.transport is not None and self.transport.connected:
            _set_size(self.transport.fd, size)

    def processExited(self, reason: Failure) -> None:
        self._reason = reason
        ending = Deferred.fromCoroutine(self._family.end())
        ending.addErrback(lambda failure: self._log.failure("ending processes", failure=failure))
        ending.addBoth(lambda _: self.close())

    def processEnded(self, reason: Failure) -> None:
        """Nobody holds the terminal any more; the exit status came before."""

    def close(self) -> None:
        """The command is over: read the rest, close the terminal, tell the line."""
        if self._ended:
            return
        if self.transport.connected:
            self._read_rest()
        self._ended = True
        if self.transport.connected:
            # Not loseConnection: that waits until somebody has read what was typed.
            self.transport.unregisterProducer()
            self.transport.connectionLost(Failure(ConnectionDone()))
        self._line.connectionLost(self._reason or Failure(ConnectionDone()))

    def _read_rest(self) -> None:
        """A viewer that reads slowly may have left output in the terminal; it is little."""
        left = _MOST_LEFT_BYTES
        while left > 0:
            try:
                data = os.read(self.transport.fd, _READ_BYTES)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EIO):
                    raise
                return
            if not data:
                return
            left -= len(data)
            self._line.dataReceived(data)


def _set_size(descriptor: int, size: TerminalSize) -> None:
    cells = struct.pack("4H", size.rows, size.columns, 0, 0)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, cells)


def _give(descriptor: int, uid: int) -> None:
    """Make a terminal its user's, as login does, so that it can be opened by name."""
    try:
        tty_group = grp.getgrnam("tty").gr_gid
    except KeyError:
        tty_group = -1
    os.fchown(descriptor, uid, tty_group)
    os.fchmod(descriptor, 0o620)
