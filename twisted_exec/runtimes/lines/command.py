r"""
The driver ``command``: consoles behind a command of this host, such as conserver's console(1).

::

    - name: rack
      driver: command
      same_user: true
      lines:
        web-1:
          command: [console, -M, conserver.lab, -f, web-1]
          break: "\x05cl0"
      capabilities: {cpu: "1", memory: 1Gi}

The end of the command is a lost line, which :mod:`.shared_line` reopens.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import (
    ConnectionDone,
    ProcessDone,
    ProcessTerminated,
)
from twisted.internet.interfaces import IProtocolFactory, IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Factory, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.console.line import ending_of
from twisted_exec.program.config_file import Reader
from twisted_exec.runtimes.interfaces import Build, IMachineDriver, MachineFacts
from twisted_exec.runtimes.lines.driver import LineDriver
from twisted_exec.runtimes.lines.escapes import Typing
from twisted_exec.runtimes.lines.layer import LineLayer
from twisted_exec.runtimes.lines.programs import last_line
from twisted_exec.runtimes.processes import ProcessTable
from twisted_exec.runtimes.pty import PtyDriver, PtyOptions, PtyRun
from twisted_exec.streaming.interfaces import TerminalSize

EARLY_END_SECONDS = 5.0
"""
The last line of output of a command that ends within this time counts as the reason for its end.
"""

_MAX_EARLY_BYTES = 64 << 10
_MAX_BREAK_BYTES = 64


@implementer(IStreamClientEndpoint)
class CommandEndpoint:
    """
    Runs a command for each connection.

    Each connection is a :class:`~twisted_exec.runtimes.pty.PtyRun`; its end is a lost line.

    :param leave: run after a connection that had reached the machine and was closed by this side.
    :param begins: takes the output so far (the newest 64 KiB); returns the offset at which the
        machine's output begins, or ``None`` if the machine is not reached yet. Called at output and
        every ``look_seconds``, 0 for never, until the machine is reached.
    :param settle_seconds: ``begins`` is not called before this time.
    """

    def __init__(
        self,
        name: str,
        clock: IReactorTime,
        make_run: Callable[[], PtyRun],
        *,
        typing: Callable[[], Typing] = Typing,
        complaint: Callable[[bytes], str] | None = None,
        begins: Callable[[bytes], int | None] = lambda printed: 0,
        look_seconds: float = 0.0,
        settle_seconds: float = 0.0,
        early_end_seconds: float = EARLY_END_SECONDS,
        prepare: Callable[[], Coroutine[Any, Any, None]] | None = None,
        leave: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self.name, self.clock = name, clock
        self._make_run, self._prepare, self.leave = make_run, prepare, leave
        self.typing, self.begins = typing, begins
        self.complaint = complaint
        self.look_seconds, self.settle_seconds = look_seconds, settle_seconds
        self.early_end_seconds = early_end_seconds

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        return Deferred.fromCoroutine(self._connect(protocolFactory))

    async def _connect(self, factory: IProtocolFactory) -> Any:
        if self._prepare is not None:
            await self._prepare()
        run = self._make_run()
        line = CommandLine(self, run, factory)
        try:
            await run.connect(Factory.forProtocol(lambda: line))
            return await line.up
        except BaseException:
            # Stopping fails ``up``, which nothing waits for after a cancellation.
            line.up.addErrback(lambda _: None)
            await run.stop()
            raise


class CommandLine(LineLayer):
    """One run of the command; ``upper`` is ``None`` until the machine is reached."""

    _log = Logger()

    def __init__(self, endpoint: CommandEndpoint, run: PtyRun, factory: IProtocolFactory) -> None:
        super().__init__(None)
        self._endpoint, self._run, self._factory = endpoint, run, factory
        self._typing = endpoint.typing()
        self._printed = bytearray()
        self._began = endpoint.clock.seconds()
        self._looking: Any = None
        self._ended = self._closing = False
        self.up: Deferred[Any] = Deferred(lambda _: None)

    # Protocol of the terminal.

    def connectionMade(self) -> None:
        self._look()

    def dataReceived(self, data: bytes) -> None:
        if self.upper is not None:
            self.deliver(data)
            self._keep(data)
        else:
            self._keep(data)
            self._look()

    def _keep(self, data: bytes) -> None:
        self._printed += data
        if len(self._printed) > _MAX_EARLY_BYTES:
            del self._printed[:-_MAX_EARLY_BYTES]

    def _look(self) -> None:
        if self._looking is not None and self._looking.active():
            self._looking.cancel()
        if self.upper is not None or self._ended or self.up.called:
            return
        clock = self._endpoint.clock
        unsettled = self._endpoint.settle_seconds - (clock.seconds() - self._began)
        begins = None if unsettled > 0 else self._endpoint.begins(bytes(self._printed))
        if begins is not None:
            self.upper = self._factory.buildProtocol(None)  # type: ignore[arg-type]
            self.begin()
            if early := bytes(self._printed[begins:]):
                self.deliver(early)
            self.up.callback(self.upper)
        elif unsettled > 0 or self._endpoint.look_seconds:
            seconds = unsettled if unsettled > 0 else self._endpoint.look_seconds
            self._looking = clock.callLater(seconds, self._look)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._ended = True
        self._look()
        if not self._closing:
            self._over(Failure(self._why(reason)))
        elif self.upper is None or self._endpoint.leave is None:
            self._over(Failure(ConnectionDone()))
        else:
            leaving = Deferred.fromCoroutine(self._endpoint.leave())
            leaving.addErrback(lambda failure: self._log.failure("leaving", failure=failure))
            leaving.addCallback(lambda _: self._over(Failure(ConnectionDone())))

    def _over(self, failure: Failure) -> None:
        if self.upper is not None:
            super().connectionLost(failure)  # after the output that a pause has held back
        elif not self.up.called:
            self.up.errback(failure)

    def _why(self, reason: Failure) -> Exception:
        name = self._endpoint.name
        complaint = self._complaint()
        detail = f": {complaint}" if complaint else ""
        if reason.check(ProcessDone, ProcessTerminated):
            ended = ending_of(reason).message.removeprefix("the process ")
            return ServiceUnavailable(f"{name} {ended}{detail}")
        return ServiceUnavailable(f"{name} has gone{detail}")

    def _complaint(self) -> str:
        printed = bytes(self._printed)
        if self._endpoint.complaint is not None:
            return self._endpoint.complaint(printed)
        lasted = self._endpoint.clock.seconds() - self._began
        return last_line(printed) if lasted < self._endpoint.early_end_seconds else ""

    # ISharedLineTransport of the upper protocol.

    def write(self, data: bytes) -> None:
        if data:
            self.transport.write(self._typing.encode(data))

    def send_break(self, milliseconds: int) -> None:
        keys = self._typing.break_input()
        if keys:
            self.transport.write(keys)

    def window_changed(self, size: TerminalSize) -> None:
        self._run.window_changed(size)

    def loseConnection(self) -> None:
        if not self._closing:
            self._closing = True
            stopping = self._run.stop()
            stopping.addErrback(lambda failure: self._log.failure("ending", failure=failure))

    def abortConnection(self) -> None:
        self.loseConnection()


@dataclass(frozen=True)
class CommandLineOptions:
    """
    One line.

    :param break_keys: input that makes the command send BREAK; empty if it cannot.
    """

    pty: PtyOptions
    break_keys: bytes = b""


def configure(reader: Reader, resources: Mapping[str, int]) -> Build:
    """See :meth:`.IDriverMaker.configure`."""
    user = reader.take("user", str, "")
    same_user = reader.take("same_user", bool, False)
    environment = reader.environment("environment")
    if bool(user) == same_user:
        raise reader.error(
            "a command class needs either user: NAME, or same_user: true to run as the runtime's own"
        )
    lines = {}
    for name, line_reader in reader.lines().items():
        pty = PtyOptions(line_reader.words("command"), user, same_user, environment)
        lines[name] = CommandLineOptions(pty, _break_keys(line_reader))
    return lambda reactor, table: CommandDriver(lines, reactor, table)


def _break_keys(reader: Reader) -> bytes:
    keys = reader.take("break", str, "").encode("utf-8")
    if len(keys) > _MAX_BREAK_BYTES:
        raise reader.error(f"break has more than {_MAX_BREAK_BYTES} bytes")
    return bytes(keys)


@implementer(IMachineDriver)
class CommandDriver(LineDriver[CommandLineOptions]):
    """Runs a class of machines behind commands."""

    name = "command"
    settle_seconds = 1.0
    early_end_seconds = EARLY_END_SECONDS

    def __init__(
        self, lines: Mapping[str, CommandLineOptions], reactor: Any, table: ProcessTable
    ) -> None:
        super().__init__(lines, reactor)
        self._table = table
        self._drivers = [self._pty(line) for line in lines.values()]

    def _pty(self, line: CommandLineOptions) -> PtyDriver:
        return PtyDriver(line.pty, self.reactor, self._table)

    def missing(self) -> str:
        """Return the problem of the first line, if each line has a problem."""
        problems = [driver.missing() for driver in self._drivers]
        return problems[0] if all(problems) else ""

    def _has_break(self, line: CommandLineOptions) -> bool:
        return bool(line.break_keys)

    def _claim(self, facts: MachineFacts) -> tuple[str, IStreamClientEndpoint]:
        name, line = self.lines.claim(facts)
        driver = self._pty(line)

        def make_run() -> PtyRun:
            return PtyRun(driver, facts)

        program = line.pty.command[0]
        return name, CommandEndpoint(
            program,
            self.reactor,
            make_run,
            typing=lambda: Typing(line.break_keys),
            settle_seconds=self.settle_seconds,
            early_end_seconds=self.early_end_seconds,
        )
