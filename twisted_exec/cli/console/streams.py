"""
The user's input, output and messages: the standard descriptors of this process, or a channel of another program.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Protocol

from twisted_exec.cli.console.connecting import ProgressLine
from twisted_exec.cli.console.process import the_reactor
from twisted_exec.cli.console.terminal import (
    Signals,
    Terminal,
    TerminalInput,
    TerminalOutput,
    TypedLine,
    nonblocking,
)
from twisted_exec.cli.messages import say

if TYPE_CHECKING:
    from twisted_exec.cli.console.interfaces import Sink, Source
    from twisted_exec.cli.console.shell_run import Remedies
    from twisted_exec.wire.marks import Notice
    from twisted_exec.wire.resize import TerminalSize


class UserStreams(Protocol):
    """
    Where the user of a console is.

    :ivar reads_terminal: the input is a terminal.
    :ivar prints_on_terminal: the output is a terminal.
    :ivar reports_on_terminal: messages go to a terminal.
    :ivar shares_terminal: a program that this one starts can ask the user for a password.
    :ivar is_dumb: the terminal cannot move its cursor.
    """

    @property
    def reads_terminal(self) -> bool: ...
    @property
    def prints_on_terminal(self) -> bool: ...
    @property
    def reports_on_terminal(self) -> bool: ...
    @property
    def shares_terminal(self) -> bool: ...
    @property
    def is_dumb(self) -> bool: ...

    def size(self) -> TerminalSize | None:
        """Return the terminal's size; ``None`` without a terminal."""

    def begin(self) -> None:
        """Have each key from now on, and begin a line behind keys that were typed before."""

    def source(self, received: Callable[[bytes], None], ended: Callable[[], None]) -> Source:
        """
        Return the user's input, which nobody reads yet.

        :param ended: called once, at the end of input.
        """

    def sink(self, lost: Callable[[OSError | None], None]) -> Sink:
        """
        Return the user's output.

        :param lost: called once, when nothing can be written any more: with the system's message,
            or with ``None`` if everything was flushed or the reader went away.
        """

    def write_message(self, data: bytes) -> None:
        """Write messages that are formatted for the terminal."""

    def write_last(self, data: bytes) -> None:
        """Write into the output behind the end of its sink."""

    def say(self, line: str) -> None:
        """Print one message on a line of its own."""

    def text_of(self, notice: Notice) -> str:
        """Return the text of a notice for a user at the terminal, with how to take over."""

    def remedies(self) -> Remedies:
        """Return what the user can do if a command cannot run."""

    def progress_line(
        self, text: Callable[[int], str], write: Callable[[bytes], None]
    ) -> ProgressLine:
        """Return a line about a wait that begins now."""

    def suspend(self) -> bool:
        """Stop this program, as job control does; return whether it was stopped."""

    def has_unread_input(self) -> bool:
        """Return whether there is input that is not from a terminal, and that nobody has read."""

    def when_typed(self, key: int, call: Callable[[], None]) -> None:
        """Call ``call`` when the user types this control key, while nobody reads the terminal."""


class StandardStreams:
    """The standard descriptors of this process; a context manager, which restores the terminal."""

    def __init__(self) -> None:
        self.terminal = Terminal(0)
        self.reads_terminal = self.shares_terminal = self.terminal.is_terminal
        self._signals: Signals | None = None
        self._source, self._sink = 0, 1
        self._open = ExitStack()

    def __enter__(self) -> StandardStreams:
        with ExitStack() as opening:
            opening.enter_context(self.terminal)
            self._source = opening.enter_context(nonblocking(0, os.O_RDONLY))
            self._sink = opening.enter_context(nonblocking(1, os.O_WRONLY))
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def signals(
        self,
        *,
        resized: Callable[[], None],
        deadly: Callable[[int], None],
        continued: Callable[[], None],
    ) -> Signals:
        """Return the handlers of this process's signals, see :class:`Signals`."""
        self._signals = Signals(self.terminal, resized, deadly, continued)
        return self._signals

    @property
    def prints_on_terminal(self) -> bool:
        return os.isatty(1)

    @property
    def reports_on_terminal(self) -> bool:
        return os.isatty(2)

    @property
    def is_dumb(self) -> bool:
        return os.environ.get("TERM", "dumb") == "dumb"

    def size(self) -> TerminalSize | None:
        return self.terminal.size()

    def begin(self) -> None:
        was_raw = self.terminal.raw
        self.terminal.make_raw()
        is_new = self.terminal.raw and not was_raw
        if is_new and os.isatty(2) and select.select([self.terminal.fd], [], [], 0)[0]:
            self.write_message(b"\r\n")  # earlier keys have an echo in the present line

    def source(self, received: Callable[[bytes], None], ended: Callable[[], None]) -> Source:
        return TerminalInput(self._source, received, ended, the_reactor())

    def sink(self, lost: Callable[[OSError | None], None]) -> Sink:
        return TerminalOutput(self._sink, lost, the_reactor())

    def write_message(self, data: bytes) -> None:
        with suppress(OSError):  # a terminal that is gone
            os.write(2, data)

    def write_last(self, data: bytes) -> None:
        with suppress(OSError):  # a terminal that is gone or stuck
            os.write(self._sink, data)

    def say(self, line: str) -> None:
        say(line)

    def text_of(self, notice: Notice) -> str:
        return notice.for_terminal

    def remedies(self) -> Remedies:
        from twisted_exec.cli.console.shell_run import Remedies  # most sessions have no script

        return Remedies()

    def progress_line(
        self, text: Callable[[int], str], write: Callable[[bytes], None]
    ) -> ProgressLine:
        return ProgressLine.on_terminal(2 if os.isatty(2) else 1, the_reactor(), text, write)

    def suspend(self) -> bool:
        return self._signals is not None and self._signals.suspend()

    def has_unread_input(self) -> bool:
        return self.terminal.has_data

    def when_typed(self, key: int, call: Callable[[], None]) -> None:
        # A program behind a pipe, such as a pager, may have the terminal.
        is_alone = os.isatty(1) and os.isatty(2)
        if is_alone and self.terminal.end_lines_at(bytes([key])):
            reactor: Any = the_reactor()
            TypedLine(self._source, call, reactor).startReading()
