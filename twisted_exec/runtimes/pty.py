"""
The driver ``pty``: machines that are a command in a pseudo-terminal.

The command leads a session with the pty as its controlling terminal.  Its environment is built from
scratch, because the runtime's own may contain secrets.  When the command ends or the machine is
powered off, all processes that it started are ended, too.
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
from twisted_exec.program.descriptors import restore_descriptor_limit
from twisted_exec.streaming.interfaces import Ending, TerminalSize

from .interfaces import Build, IMachineDriver, IRestartPolicy, IRun, MachineFacts
from .processes import Leader, ProcessFamily, ProcessTable, leader, read_process
from .terminals import give, read_rest, set_size

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FULL_READ_BYTES, _MOST_READS = 1024, 15
_FIRST_SIZE = TerminalSize(80, 24)
_POLL_SECONDS = 0.001
_REAP_SECONDS = 2.0
_LEAD_SECONDS = 5.0


@dataclass(frozen=True)
class PtyOptions:
    """
    The options of a class.

    :param user: user of the process; empty for the runtime's own, which requires ``same_user``.
    :param environment: additional environment variables.
    :param directory: working directory; empty for the user's home.
    :param raw: start the terminal in raw mode, for programs that switch to it only after they have
        reported that they are ready.
    :param restart: ``always``, ``on-failure`` or ``never``.
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
    """Read the keys of a class; see :meth:`.IDriverMaker.configure`."""
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


@implementer(IMachineDriver, IRestartPolicy)
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
        """See :meth:`IRestartPolicy.restarts`; a lost line is a failure."""
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
        self._family = ProcessFamily(driver.table, lambda value: value == mark)

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
        command = leader(transport.pid) if transport.pid else None
        if command is not None:  # else it has ended already, and processExited follows
            self._family.add(command)
            self._facts.started(command)
            await self._wait_for_session(command)
        return line

    async def _wait_for_session(self, leader: Leader) -> None:
        """
        Wait until the child has its controlling terminal, or has given it up already.

        If the terminal were closed between fork and exec, the child would print an error to the
        runtime's standard error.
        """
        clock = self._driver.reactor
        until = clock.seconds() + _LEAD_SECONDS
        while clock.seconds() < until:
            process = read_process(leader.pid)
            if process is None or process.start != leader.start or process.terminal:
                return
            await deferLater(clock, _POLL_SECONDS)

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
        master, slave = os.openpty()
        try:
            set_size(master, self._size)
            if options.raw:
                tty.setraw(slave)
            switch = os.geteuid() == 0 and account.pw_uid != 0
            if switch:
                give(slave, account.pw_uid)
            terminal: Any = (master, slave, os.ttyname(slave))  # the stub permits only bool
            transport: Any = self._driver.reactor.spawnProcess(
                process,
                self._driver.executable() or options.command[0],
                list(options.command),
                env=self._environment(account),
                path=self._start_directory(account),
                uid=account.pw_uid if switch else None,
                gid=account.pw_gid if switch else None,
                usePTY=terminal,
            )
            restore_descriptor_limit(transport.pid)
            return transport
        except BaseException:
            os.close(master)
            os.close(slave)
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
        directory = self._driver.options.directory or account.pw_dir
        return directory if os.path.isdir(directory) else "/"


class _Process(ProcessProtocol):
    """
    Connects Twisted's process to the line's protocol.

    After the end of the command its other processes are ended, the remaining output is read, and
    then the line gets the exit status.
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
        if self._ended:
            return
        if len(data) >= _FULL_READ_BYTES:
            data = self._more(data)
        self._line.dataReceived(data)

    def _more(self, data: bytes) -> bytes:
        """
        Read what the process prints at full speed, up to 64 KiB.

        A terminal holds 4 KiB, and each piece of output costs far more than its bytes.
        """
        parts, fd = [data], self.transport.fd
        for _ in range(_MOST_READS):
            try:
                more = os.read(fd, 65_536)
            except OSError:
                break  # nothing left, or the end, which the next turn finds
            parts.append(more)
            if len(more) < _FULL_READ_BYTES:
                break
        return b"".join(parts)

    def resize(self, size: TerminalSize) -> None:
        if self.transport is not None and self.transport.connected:
            set_size(self.transport.fd, size)

    async def reaped(self, seconds: float, clock: IReactorTime) -> None:
        """Wait for the exit status, which arrives after the end."""
        if self._reason is None:
            waiter: Deferred[None] = Deferred()
            self._waiting.append(waiter)
            # It never arrives if SIGCHLD is not handled or other code reaps the process.
            await waiter.addTimeout(seconds, clock).addErrback(lambda _: None)

    def processExited(self, reason: Failure) -> None:
        self._reason = reason
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.called:
                waiter.callback(None)
        if self._ended:
            return  # stopped: its processes have ended already
        ending = self._family.end()
        ending.addErrback(lambda failure: self._log.failure("ending processes", failure=failure))
        ending.addBoth(lambda _: self.close())

    def processEnded(self, reason: Failure) -> None:
        """Do nothing: processExited has the exit status."""

    def close(self) -> None:
        """Read remaining output, close the terminal, and end the line."""
        if self._ended:
            return
        if self.transport.connected:
            # While the line was paused, output stayed in the terminal.
            for data in read_rest(self.transport.fd):
                self._line.dataReceived(data)
        self._ended = True
        if self.transport.connected:
            # Not loseConnection, which waits until pending input has been read.
            self.transport.unregisterProducer()
            self.transport.connectionLost(Failure(ConnectionDone()))
        self._line.connectionLost(self._reason or Failure(ConnectionDone()))
