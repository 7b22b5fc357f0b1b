"""
Machines that are a command in a pseudo-terminal.

The command leads a session of its own with the pty as its controlling terminal.
What it is given is made here: environment, directory, user; nothing comes from the runtime's
own environment, where secrets may be.  When the command ends, or the machine is powered off,
everything that it started is ended too.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tty
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IProtocolFactory, IReactorTime
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.program.config_file import Reader
from twisted_exec.streaming.interfaces import Ending, TerminalSize

from .interfaces import Build, IMachineDriver, IRestarting, IRun, MachineFacts
from .processes import Leader, ProcessFamily, ProcessTable, leader, read_process
from .terminals import give, read_rest, set_size

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FIRST_SIZE = TerminalSize(80, 24)
_LOOK_SECONDS = 0.001
_REAP_SECONDS = 2.0
_LEAD_SECONDS = 5.0


@dataclass(frozen=True)
class PtyOptions:
    """
    How a class runs its command.

    :param user: whose process it is; empty is the runtime's own user, which
        must be asked for by ``same_user``.
    :param environment: added to ours.
    :param directory: where it starts; empty is the user's home.
    :param raw: whether the terminal passes bytes as they are from the first moment, for programs
        that make it so themselves, but a little later than they say that they are ready.
    :param restart: whether a command that ended is started again: ``always``,
        ``on-failure`` or ``never``.
    """

    command: Sequence[str]
    user: str = ""
    same_user: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    term: str = "xterm-256color"
    restart: str = "always"
    raw: bool = False


def configure(reader: Reader, resources: Mapping[str, int]) -> Build:
    """A class's keys, as :class:`~twisted_exec.runtimes.drivers.IDriverMaker` asks."""
    options = PtyOptions(
        command=reader.words("command"),
        user=reader.take("user", str, ""),
        same_user=reader.take("same_user", bool, False),
        environment=reader.environment("environment"),
        directory=reader.take("directory", str, ""),
        term=reader.take("term", str, PtyOptions.term),
        restart=reader.choice("restart", ("never", "on-failure", "always"), PtyOptions.restart),
    )
    if bool(options.user) == options.same_user:
        raise reader.error(
            "a pty class needs either user: NAME, or same_user: true to run as the runtime's own"
        )
    return lambda reactor, table: PtyDriver(options, reactor, table)


@implementer(IMachineDriver, IRestarting)
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
        else:
            try:
                self.account()
            except KeyError:
                return f"this host does not know the runtime's own user (uid {os.geteuid()})"
        if self.executable() is None:
            return f"there is no executable {options.command[0]!r} on this host"
        return ""

    def executable(self) -> str | None:
        return shutil.which(self.options.command[0], path=_PATH)

    def account(self) -> pwd.struct_passwd:
        if self.options.user:
            return pwd.getpwnam(self.options.user)
        return pwd.getpwuid(os.geteuid())

    def restarts(self, ending: Ending) -> bool:
        """As :class:`IRestarting` says; a lost line is a failure."""
        restart = self.options.restart
        return restart == "always" or (restart == "on-failure" and ending.exit_code != 0)

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
        self._family = ProcessFamily(driver.table, lambda found: found == mark)

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        return Deferred.fromCoroutine(self._start(factory))

    async def _start(self, factory: IProtocolFactory) -> Any:
        missing = self._driver.missing()
        if missing:
            raise ServiceUnavailable(missing)
        line = factory.buildProtocol(None)  # type: ignore[arg-type]
        process = _Process(line, self._family)
        try:
            transport = self._spawn(process)
        except OSError as error:
            raise ServiceUnavailable(
                f"the command cannot be started: {error.strerror or error}"
            ) from None
        self._process = process
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
        child complain, on the runtime's own standard error.  A command may also
        have given it up already.
        """
        clock = self._driver.reactor
        until = clock.seconds() + _LEAD_SECONDS
        while clock.seconds() < until:
            process = read_process(found.pid)
            if process is None or process.start != found.start or process.terminal:
                return
            await deferLater(clock, _LOOK_SECONDS)

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
        else:
            await self._process.reaped(_REAP_SECONDS, self._driver.reactor)
        self._process.close()

    def _spawn(self, process: _Process) -> Any:
        options, account = self._driver.options, self._driver.account()
        ours, theirs = os.openpty()
        try:
            set_size(ours, self._size)
            if options.raw:
                tty.setraw(theirs)
            switch = os.geteuid() == 0 and account.pw_uid != 0
            if switch:
                give(theirs, account.pw_uid)
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

    def __init__(self, line: Any, family: ProcessFamily) -> None:
        self._line = line
        self._family = family
        self._reason: Failure | None = None
        self._ended = False
        self._waiting: list[Deferred[None]] = []

    def connectionMade(self) -> None:
        self._line.makeConnection(self.transport)

    def childDataReceived(self, child_fd: int, data: bytes) -> None:
        if not self._ended:
            self._line.dataReceived(data)

    def resize(self, size: TerminalSize) -> None:
        if self.transport is not None and self.transport.connected:
            set_size(self.transport.fd, size)

    async def reaped(self, seconds: float, clock: IReactorTime) -> None:
        """Wait for the exit status, which comes a little after the end."""
        if self._reason is None:
            waiter: Deferred[None] = Deferred()
            self._waiting.append(waiter)
            # Where nobody handles SIGCHLD, or somebody else reaps, none comes.
            await waiter.addTimeout(seconds, clock).addErrback(lambda _: None)

    def processExited(self, reason: Failure) -> None:
        self._reason = reason
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.called:
                waiter.callback(None)
        if self._ended:
            return  # stopped: what it left is ended already
        ending = self._family.end()
        ending.addErrback(lambda failure: self._log.failure("ending processes", failure=failure))
        ending.addBoth(lambda _: self.close())

    def processEnded(self, reason: Failure) -> None:
        """Nobody holds the terminal any more; the exit status came before."""

    def close(self) -> None:
        """The command is over: read the rest, close the terminal, tell the line."""
        if self._ended:
            return
        if self.transport.connected:
            # A viewer that reads slowly may have left output in the terminal.
            for data in read_rest(self.transport.fd):
                self._line.dataReceived(data)
        self._ended = True
        if self.transport.connected:
            # Not loseConnection: that waits until somebody has read what was typed.
            self.transport.unregisterProducer()
            self.transport.connectionLost(Failure(ConnectionDone()))
        self._line.connectionLost(self._reason or Failure(ConnectionDone()))
