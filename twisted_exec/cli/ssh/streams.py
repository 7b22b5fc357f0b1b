"""
A channel of ssh as the streams of a console.

With a terminal everything is one stream, as with ``sshd``: messages are in the output.  Without
one they go to ssh's standard error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.conch.ssh.connection import EXTENDED_DATA_STDERR
from twisted.internet.interfaces import IPushProducer, IReactorTime

from twisted_exec.cli.console.connecting import ProgressLine
from twisted_exec.cli.messages import one_line
from twisted_exec.ssh.channel import PseudoTerminal, SessionChannel
from twisted_exec.wire.marks import Notice
from twisted_exec.wire.resize import TerminalSize

if TYPE_CHECKING:
    from twisted_exec.cli.console.shell_run import Remedies

USUAL = TerminalSize(80, 24)
HINT = "(ssh -t with the command force takes over)"
"""In place of keys and options of ``kubectl console``."""


class ChannelStreams:
    """
    The streams of a session, and of those that follow it in the same channel.

    :param terminal: ``None`` without one, and for a command, whose output is not for a screen.
    :param is_on_screen: ssh has set the user's terminal to raw mode.
    """

    shares_terminal = False

    def __init__(
        self,
        channel: SessionChannel,
        clock: IReactorTime,
        terminal: PseudoTerminal | None,
        *,
        is_on_screen: bool,
    ) -> None:
        self._channel, self._clock, self._terminal = channel, clock, terminal
        self._size = None if terminal is None else terminal.size or USUAL
        self._newline = "\r\n" if is_on_screen else "\n"
        self._source: _Source | None = None
        self._held = b""  # input before there is a source, such as during a credential plugin
        channel.pauseProducing()
        self._sink = _Sink(channel, clock, lambda _: None, "\n")
        self.reads_terminal = self.prints_on_terminal = self.reports_on_terminal = (
            terminal is not None
        )
        self.is_dumb = terminal is None or terminal.name in ("", "dumb")

    # Of the client.

    def received(self, data: bytes) -> None:
        if self._source is None:
            self._held += data  # at most the client's window
        else:
            self._source.received(data)

    def resize(self, size: TerminalSize) -> None:
        self._size = size

    def full(self) -> None:
        self._sink.full()

    def drained(self) -> None:
        self._sink.drained()

    def hung_up(self) -> None:
        self._sink.hung_up()

    # Of the console.

    def size(self) -> TerminalSize | None:
        return self._size

    def begin(self) -> None:
        """Every key comes anyway."""

    def source(self, received: Callable[[bytes], None], ended: Callable[[], None]) -> _Source:
        self._source, self._held = _Source(self._channel, received, self._held), b""
        return self._source

    def sink(self, lost: Callable[[OSError | None], None]) -> _Sink:
        newline = "\n" if self._terminal is not None else self._newline
        self._sink = _Sink(self._channel, self._clock, lost, newline)
        return self._sink

    def write_message(self, data: bytes) -> None:
        if self._terminal is not None:
            self._channel.write(data)
        else:
            self._channel.writeExtended(EXTENDED_DATA_STDERR, data)

    def write_last(self, data: bytes) -> None:
        if data:
            self._channel.write(data)

    def say(self, line: str) -> None:
        self.write_message(f"{one_line(line)}{self._newline}".encode("utf-8", "replace"))

    def text_of(self, notice: Notice) -> str:
        return notice.hinted(HINT)

    def remedies(self) -> Remedies:
        from twisted_exec.cli.console.shell_run import Remedies  # most sessions run no command

        return Remedies(
            force="force run COMMAND",
            stop="Ctrl-C in its console ends it",
            log_in="log in first, in its console",
            boot="boot a system first, in its console",
            answer="answer it first, in its console",
        )

    def progress_line(
        self, text: Callable[[int], str], write: Callable[[bytes], None]
    ) -> ProgressLine:
        def draw(line: str) -> None:
            write(line.encode())

        def columns() -> int:
            return (self._size or USUAL).columns

        return ProgressLine(self._clock, draw, text, columns, is_plain=self.is_dumb)

    def suspend(self) -> bool:
        return False

    def has_unread_input(self) -> bool:
        return False

    def when_typed(self, key: int, call: Callable[[], None]) -> None:
        """ssh itself handles keys here."""


class _Source:
    """
    The client's input.

    :param held: input that has come before.
    """

    def __init__(
        self, channel: SessionChannel, received: Callable[[bytes], None], held: bytes
    ) -> None:
        self._channel, self._held = channel, held
        self.received = received

    def pauseProducing(self) -> None:
        self._channel.pauseProducing()

    def resumeProducing(self) -> None:
        held, self._held = self._held, b""
        if held:
            self.received(held)
        self._channel.resumeProducing()

    def stop(self) -> None:
        self.received = lambda _: None
        self._channel.resumeProducing()


class _Sink:
    """
    The client's output.

    :param newline: in place of a newline: a raw terminal needs a carriage return.
    """

    def __init__(
        self,
        channel: SessionChannel,
        clock: IReactorTime,
        lost: Callable[[OSError | None], None],
        newline: str,
    ) -> None:
        self._channel, self._clock, self._lost = channel, clock, lost
        self._newline = newline.encode()
        self._producers: list[IPushProducer] = []  # at most one
        self._is_closing = self._is_lost = False

    def write(self, data: bytes) -> None:
        if not (self._is_closing or self._is_lost):
            if self._newline != b"\n":
                data = data.replace(b"\n", self._newline)
            self._channel.write(data)

    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None:
        self._producers = [producer]
        if self._channel.is_full:
            producer.pauseProducing()

    def unregisterProducer(self) -> None:
        self._producers = []

    def loseConnection(self) -> None:
        """Flush, and call ``lost`` then; the channel stays open for the exit code."""
        self._is_closing = True
        if not self._channel.is_full:
            self._clock.callLater(0, self._gone)

    def full(self) -> None:
        for each in self._producers:
            each.pauseProducing()

    def drained(self) -> None:
        if self._is_closing:
            self._gone()
        for each in self._producers:
            each.resumeProducing()

    def hung_up(self) -> None:
        self._gone()

    def _gone(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._lost(None)
