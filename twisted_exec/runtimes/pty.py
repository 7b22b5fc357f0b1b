"""
The driver ``pty``: machines that are a command in a pseudo-terminal.

The command's environment is built from scratch: the runtime's own may contain secrets. In a runtime
the command is a child of the keeper (:mod:`.keeper`), so that it can outlive the runtime.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tty
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocolFactory
from twisted.python.failure import Failure
from zope.interface import alsoProvides, implementer

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.control.polling import until
from twisted_exec.program.config_file import Reader
from twisted_exec.program.descriptors import restore_descriptor_limit
from twisted_exec.program.tasks import as_deferred
from twisted_exec.runtimes.interfaces import (
    Build,
    IAdoptsMachines,
    IMachineDriver,
    IReleasable,
    IRestartPolicy,
    IRun,
    IRunsHostProcesses,
    MachineFacts,
)
from twisted_exec.runtimes.keeper.client import Keeper, KeptCommand
from twisted_exec.runtimes.keeper.read_mark import ReadMark
from twisted_exec.runtimes.keeper.terminal import KeptTerminal, reason_of
from twisted_exec.runtimes.processes import (
    Leader,
    ProcessFamily,
    ProcessTable,
    leader,
    read_process,
)
from twisted_exec.runtimes.terminals import TerminalProcess, give, set_size, tty_group
from twisted_exec.streaming.interfaces import Ending, TerminalSize

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FIRST_SIZE = TerminalSize(80, 24)
_POLL_SECONDS = 0.001
_REAP_SECONDS = 2.0
_LEAD_SECONDS = 5.0


@dataclass(frozen=True)
class PtyOptions:
    """
    The options of a class of pty machines.

    :param user: user of the process; empty for the runtime's own, which requires ``same_user``.
    :param raw: start the terminal in raw mode, for programs that switch to it only after they have
        reported that they are ready.
    :param directory: working directory; empty for the user's home.
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
    """See :meth:`.IDriverMaker.configure`."""
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


@implementer(IMachineDriver, IRestartPolicy, IAdoptsMachines, IRunsHostProcesses)
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
        return PtyRun(self, facts, facts.keeper)

    def adopt(self, facts: MachineFacts, leaders: Sequence[Leader]) -> PtyRun:
        return PtyRun(self, facts, facts.keeper, leaders)


@implementer(IRun)
class PtyRun:
    """One command in one pseudo-terminal."""

    paced = True

    def __init__(
        self,
        driver: PtyDriver,
        facts: MachineFacts,
        keeper: Keeper | None = None,
        adopted: Sequence[Leader] | None = None,
    ) -> None:
        self._driver = driver
        self._facts = facts
        self._keeper = keeper
        self._adopted = adopted
        self._is_starting = False
        self._start_waiters: list[Deferred[None]] = []
        self._size = _FIRST_SIZE
        self._process: TerminalProcess | None = None
        mark = facts.marker[1]
        self._family = ProcessFamily(driver.table, lambda value: value == mark, adopted or ())
        if keeper is not None:
            alsoProvides(self, IReleasable)

    @as_deferred
    async def connect(self, factory: IProtocolFactory) -> Any:
        missing = self._driver.missing()
        if missing and self._adopted is None:
            raise ServiceUnavailable(missing)
        line = factory.buildProtocol(None)  # type: ignore[arg-type]
        if self._keeper is None:
            await self._start_child(TerminalProcess(line, self._family))
        else:
            self._is_starting = True
            over = self._start_over()
            starting = Deferred.fromCoroutine(self._start_kept(line, self._keeper))
            # A cancelled connect does not cancel the request: stop ends the command then.
            starting.addBoth(self._started)
            await over
        return line

    # With a keeper.

    async def _start_kept(self, line: Any, keeper: Keeper) -> None:
        id, keep = self._facts.id, self._facts.keep
        process = TerminalProcess(
            line, self._family, lambda: keeper.forget(id), partial(keeper.mark.reading, id)
        )

        def ended(status: int | None) -> None:
            process.processExited(reason_of(status))

        if self._adopted is None:
            keeper.forget(id)  # an earlier start may have been given up before it was answered
            held = await keeper.spawn(id, self._command(), ended, keep=keep)
        else:
            held = await keeper.take(id, ended, keep=keep)
            self._note_loss(keeper.mark)
        self._process = process
        terminal = KeptTerminal(self._driver.reactor, held.descriptor, process, keeper.mark, id)
        terminal.begin(held.input)
        if held.command is not None:
            self._family.add(held.command)
            self._facts.started(held.command)
        if held.status is not None:
            ended(held.status)

    def _note_loss(self, mark: ReadMark) -> None:
        name, journal = os.fsencode(self._facts.id), self._facts.journal
        if journal is not None and mark.was_interrupted(name):
            journal.lost()
            mark.forget(name)

    def _started(self, outcome: Failure | None) -> None:
        self._is_starting = False
        waiting, self._start_waiters = self._start_waiters, []
        for waiter in waiting:
            if not waiter.called:
                waiter.callback(outcome)  # a Failure fails it

    def _start_over(self) -> Deferred[None]:
        waiter: Deferred[None] = Deferred()
        self._start_waiters.append(waiter)
        return waiter

    @as_deferred
    async def release(self) -> None:
        await self._until_started()
        if self._process is not None and self._keeper is not None:
            self._keeper.release(self._facts.id, self._process.release())

    async def _until_started(self) -> None:
        if self._is_starting:
            await self._start_over().addErrback(lambda _: None)

    def _command(self) -> KeptCommand:
        options, account = self._driver.options, self._driver.account()
        user = None
        if self._switches_to(account):
            groups = os.getgrouplist(account.pw_name, account.pw_gid)
            user = account.pw_uid, account.pw_gid, groups
        return KeptCommand(
            path=self._driver.executable() or options.command[0],
            arguments=options.command,
            environment=self._environment(account),
            directory=self._start_directory(account),
            size=self._size,
            user=user,
            tty_group=tty_group(),
            raw=options.raw,
        )

    # Without a keeper.

    async def _start_child(self, process: TerminalProcess) -> None:
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

    async def _wait_for_session(self, leader: Leader) -> None:
        """
        Wait until the child has its controlling terminal, or has given it up already.

        If the terminal were closed between fork and exec, the child would print an error to the
        runtime's standard error.
        """

        def has_led() -> bool:
            process = read_process(leader.pid)
            return process is None or process.start != leader.start or bool(process.terminal)

        await until(has_led, self._driver.reactor, _POLL_SECONDS, _LEAD_SECONDS)

    def window_changed(self, size: TerminalSize) -> None:
        self._size = size
        if self._process is not None:
            self._process.resize(size)

    @as_deferred
    async def stop(self) -> None:
        await self._until_started()
        if self._process is None and self._adopted is None:
            return
        left = await self._family.end()
        if left:
            self._facts.event(
                "Warning", "ProcessesLeft", f"{len(left)} processes of the machine cannot be ended"
            )
        elif self._process is not None:
            await self._process.reaped(_REAP_SECONDS, self._driver.reactor)
        if self._process is not None:
            self._process.close()

    def _spawn(self, process: TerminalProcess) -> Any:
        options, account = self._driver.options, self._driver.account()
        master, slave = os.openpty()
        try:
            set_size(master, self._size)
            if options.raw:
                tty.setraw(slave)
            switch = self._switches_to(account)
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

    def _switches_to(self, account: pwd.struct_passwd) -> bool:
        return os.geteuid() == 0 and account.pw_uid != 0

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
