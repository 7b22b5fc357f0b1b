"""
An endpoint whose connections are commands in pseudo-terminals, such as ssh(1).

Each connection is a :class:`~twisted_exec.runtimes.pty.PtyRun`; its end is a lost line.  The
endpoint waits until the program has reached the machine.  If it fails, its last message becomes the
reason.

ssh(1) and ipmitool(1) interpret an escape character, but only at the start of a line: at the very
beginning, and after a carriage return or newline.  There ``~.`` hangs up, ``~B`` sends BREAK and
``~~`` sends one ``~``.  Users' input is for the machine, so :class:`Escaper` doubles each ``~`` at
the start of a line.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ProcessDone, ProcessTerminated
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.console.interfaces import ILineTransport
from twisted_exec.console.line import ending_of
from twisted_exec.runtimes.pty import PtyRun
from twisted_exec.streaming.interfaces import TerminalSize

EARLY_END_SECONDS = 5.0
"""How long the last line of a command may be its own message about its end."""

_MAX_EARLY_BYTES = 64 << 10
_MAX_COMPLAINT = 200
_LINE_ENDS = b"\r\n"


class Escaper:
    """
    Encodes the input of one program.

    :param character: the program's escape character, one byte.
    """

    def __init__(self, character: bytes = b"~") -> None:
        self._character = character
        self._at_start = True

    def encode(self, data: bytes) -> bytes:
        """
        Encode input so that exactly ``data`` reaches the machine.

        :param data: at least 1 byte.
        """
        out = bytearray()
        start = 0
        while (at := data.find(self._character, start)) >= 0:
            before = data[at - 1] in _LINE_ENDS if at else self._at_start
            out += data[start : at + 1]
            if before:
                out += self._character
            start = at + 1
        out += data[start:]
        self._at_start = data[-1] in _LINE_ENDS
        return bytes(out)

    def command(self, letter: bytes) -> bytes:
        """
        Encode a command of the program.

        In the middle of a line it starts with a carriage return, which also reaches the machine.
        """
        lead = b"" if self._at_start else b"\r"
        self._at_start = True
        return lead + self._character + letter


class Typing:
    """
    Encodes input for a program without escape character; BREAK is a sequence of keys, or not
    available.
    """

    def __init__(self, break_keys: bytes = b"") -> None:
        self._break_keys = break_keys

    def encode(self, data: bytes) -> bytes:
        """Encode input so that ``data`` reaches the machine."""
        return data

    def break_input(self) -> bytes:
        """Return the input that makes the program send BREAK; empty if it cannot."""
        return self._break_keys


class EscapedInput(Typing):
    """Encodes input for a program with an escape character and the command ``B`` for BREAK."""

    def __init__(self) -> None:
        super().__init__()
        self._escaper = Escaper()

    def encode(self, data: bytes) -> bytes:
        return self._escaper.encode(data)

    def break_input(self) -> bytes:
        return self._escaper.command(b"B")


@implementer(IStreamClientEndpoint)
class CommandEndpoint:
    """
    Runs a command for each connection.

    :param name: the program's name in messages.
    :param make_run: creates one run of the command.
    :param typing: creates the encoder of input.
    :param prepare: run before each connection.
    :param leave: run after a connection that had reached the machine and was closed by this side.
    :param begins: takes the output so far (the newest 64 KiB); returns the offset at which the
        machine's output begins, or ``None`` if the machine is not reached yet.  Called after each
        output, and every ``look_seconds`` if that is not 0.
    :param complaint: takes the same output; returns the program's message about its end.  By
        default the last line, if the command ended within ``early_end_seconds``; later output is
        the machine's and only for its viewers.
    :param settle_seconds: for a command that does not report when it has reached the machine: it
        has if it still runs after this time.
    """

    def __init__(
        self,
        name: str,
        clock: Any,
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


def last_line(printed: bytes) -> str:
    """Return the last line with printable text, without control characters."""
    for line in reversed(printed.decode("utf-8", "replace").splitlines()):
        words = "".join(char for char in line if char.isprintable()).strip()
        if words:
            return words[:_MAX_COMPLAINT].rstrip(".")
    return ""


@implementer(ILineTransport)
class CommandLine(Protocol):
    """
    One run of the command: the protocol of its terminal, and the transport of the upper protocol.

    :ivar up: fires with the upper protocol when the machine is reached.
    """

    transport: Any
    _log = Logger()

    def __init__(self, endpoint: CommandEndpoint, run: PtyRun, factory: IProtocolFactory) -> None:
        self._endpoint, self._run, self._factory = endpoint, run, factory
        self._typing = endpoint.typing()
        self._printed = bytearray()
        self._began = endpoint.clock.seconds()
        self._upper: Any = None
        self._looking: Any = None
        self._ended = self._closing = False
        self.up: Deferred[Any] = Deferred(lambda _: None)

    # Protocol of the terminal.

    def connectionMade(self) -> None:
        self._look()

    def dataReceived(self, data: bytes) -> None:
        if self._upper is not None:
            self._upper.dataReceived(data)
            self._keep(data)
        else:
            self._keep(data)
            self._look()

    def _keep(self, data: bytes) -> None:
        self._printed += data
        if len(self._printed) > _MAX_EARLY_BYTES:
            del self._printed[:-_MAX_EARLY_BYTES]

    def _look(self) -> None:
        """Connect the upper protocol if the machine is reached."""
        if self._looking is not None and self._looking.active():
            self._looking.cancel()
        if self._upper is not None or self._ended or self.up.called:
            return
        clock = self._endpoint.clock
        unsettled = self._endpoint.settle_seconds - (clock.seconds() - self._began)
        begins = None if unsettled > 0 else self._endpoint.begins(bytes(self._printed))
        if begins is not None:
            self._upper = self._factory.buildProtocol(None)  # type: ignore[arg-type]
            self._upper.makeConnection(self)
            if early := bytes(self._printed[begins:]):
                self._upper.dataReceived(early)
            self.up.callback(self._upper)
        elif unsettled > 0 or self._endpoint.look_seconds:
            seconds = unsettled if unsettled > 0 else self._endpoint.look_seconds
            self._looking = clock.callLater(seconds, self._look)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._ended = True
        self._look()
        if not self._closing:
            self._over(Failure(self._why(reason)))
        elif self._upper is None or self._endpoint.leave is None:
            self._over(Failure(ConnectionDone()))
        else:
            leaving = Deferred.fromCoroutine(self._endpoint.leave())
            leaving.addErrback(lambda failure: self._log.failure("leaving", failure=failure))
            leaving.addCallback(lambda _: self._over(Failure(ConnectionDone())))

    def _over(self, failure: Failure) -> None:
        if self._upper is not None:
            self._upper.connectionLost(failure)
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

    # ILineTransport of the upper protocol.

    def write(self, data: bytes) -> None:
        if data:
            self.transport.write(self._typing.encode(data))

    def send_break(self, milliseconds: int) -> None:
        """Send BREAK; the program decides on its length."""
        keys = self._typing.break_input()
        if keys:
            self.transport.write(keys)

    def window_changed(self, size: TerminalSize) -> None:
        self._run.window_changed(size)

    def loseConnection(self) -> None:
        """End the command; ``connectionLost`` follows.  Repeated calls do nothing."""
        if not self._closing:
            self._closing = True
            stopping = self._run.stop()
            stopping.addErrback(lambda failure: self._log.failure("ending", failure=failure))

    def abortConnection(self) -> None:
        self.loseConnection()

    def registerProducer(self, producer: object, streaming: bool) -> None:
        self.transport.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        self.transport.unregisterProducer()

    def pauseProducing(self) -> None:
        self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        self.transport.resumeProducing()
