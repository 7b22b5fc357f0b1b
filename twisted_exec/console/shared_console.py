"""
A shared console: one line and its viewers.

Output goes into a journal, from which each viewer reads at its own pace. The fastest viewer slows
down a paced line, such as a pty (:class:`Pacing`); a machine's serial line does not wait for
viewers. A viewer that is too far behind usually skips to the newest byte, and learns that bytes are
missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import APIError, NotImplementedByBackend, message_of
from twisted_exec.console.acts import Act, ActReports, ignore
from twisted_exec.console.answers import SESSION, Answers
from twisted_exec.console.echo_time import EchoTime, EchoUser
from twisted_exec.console.floor import Floor
from twisted_exec.console.interfaces import IConsoleRecorder, IRecoveringTransport
from twisted_exec.console.interruption import Interruption
from twisted_exec.console.line import Line, LineEnded
from twisted_exec.console.pacing import Pacing
from twisted_exec.console.rate_limit import RateLimit
from twisted_exec.console.shared_console_limits import DEFAULT_LIMITS, ConsoleLimits
from twisted_exec.console.viewer import Viewer
from twisted_exec.console.viewers import Viewers
from twisted_exec.journal.interfaces import IJournal, recent_offset
from twisted_exec.journal.journal import Journal
from twisted_exec.streaming.interfaces import (
    LINE_LOST,
    Break,
    Ending,
    IBreakable,
    IConsole,
    TerminalSize,
)
from twisted_exec.streaming.lifecycle import Living
from twisted_exec.wire.marks import Notice, OpenRecording
from twisted_exec.wire.notices import decode_notice

_OLD_OUTPUT_SECONDS = 10.0
"""
Time after the opening of a line in which its output counts as old, unless the machine starts with
the line.
"""


_WHY = "this console cannot be recorded"


@implementer(IConsoleRecorder)
class UnrecordedConsole:
    """Refuses sessions that require a recording, and records no input."""

    recordings: tuple[OpenRecording, ...] = ()

    def require(self, recording: str) -> None:
        raise NotImplementedByBackend(_WHY)

    def problem(self, recording: str) -> str:
        return _WHY

    def typed(self, session: str, data: bytes) -> bool:
        return True


class ConsoleLife(Enum):
    """The phases of a console's life; :data:`CONSOLE_TRANSITIONS` has their order."""

    NEW = "new"
    """It has had no line yet."""
    OPENING = "opening"
    """Its line is being connected."""
    LIVE = "live"
    """It has a line."""
    WAITING = "waiting"
    """Its line has ended, and another may follow."""
    REOPENING = "reopening"
    """Another line is being connected."""
    OVER = "over"
    """It has no line any more."""


CONSOLE_TRANSITIONS: Mapping[ConsoleLife, frozenset[ConsoleLife]] = {
    ConsoleLife.NEW: frozenset({ConsoleLife.OPENING, ConsoleLife.WAITING, ConsoleLife.OVER}),
    ConsoleLife.OPENING: frozenset({ConsoleLife.LIVE, ConsoleLife.WAITING, ConsoleLife.OVER}),
    ConsoleLife.LIVE: frozenset({ConsoleLife.WAITING, ConsoleLife.OVER}),
    ConsoleLife.WAITING: frozenset({ConsoleLife.REOPENING, ConsoleLife.OVER}),
    ConsoleLife.REOPENING: frozenset({ConsoleLife.LIVE, ConsoleLife.WAITING, ConsoleLife.OVER}),
    ConsoleLife.OVER: frozenset(),
}
"""What may follow each phase of a console's life."""


def _never(ending: Ending, has_exited: bool) -> bool:
    return False


class SharedConsole(Living[ConsoleLife]):
    """
    A line, or several one after the other, and any number of viewers.

    :param journal: continues that of an earlier console of the same machine.
    :param before_output: called before the first output of a line is written to the journal; that
        may be before the line is open.
    :param restarts: returns whether another line follows a line that ended by itself. Called with
        its ending, and whether that is the exit code of a process.
    :param answers_queries: answer queries of the machine, such as for the size of a terminal, while
        no user has the floor.
    :ivar life: the phase of its life.
    :ivar is_new_boot: the machine starts with the line.
    :ivar announcement: see :meth:`announce`.
    """

    transitions = CONSOLE_TRANSITIONS

    def __init__(
        self,
        console: IConsole,
        clock: IReactorTime,
        *,
        journal: IJournal | None = None,
        size: TerminalSize | None = None,
        limits: ConsoleLimits = DEFAULT_LIMITS,
        before_output: Callable[[], None] | None = None,
        acted: Callable[[Act], None] = ignore,
        restarts: Callable[[Ending, bool], bool] = _never,
        recorder: IConsoleRecorder | None = None,
        answers_queries: bool = False,
    ) -> None:
        self.clock = clock
        self.reports = ActReports(acted, clock.seconds)
        self.recorder: IConsoleRecorder = UnrecordedConsole() if recorder is None else recorder
        self._before_output = before_output
        self._is_silent = True  # the line has printed nothing
        self._restarts = restarts
        self.limits = limits
        self.journal = Journal() if journal is None else journal
        self.last_output_at = clock.seconds()
        self.ending: Ending | None = None
        self.is_new_boot = False
        self.announcement = ""
        self.size = size
        self._console = console
        self._line: Line | None = None
        self._line_number = self._line_offset = 0
        self._line_ending: Ending | None = None
        self.interruption = Interruption(self)
        self._viewers = Viewers(self)
        self._pacing = Pacing(clock, self.journal, self._viewers, limits.pace_bytes)
        self._echo_time = EchoTime(clock)
        self._answers: Answers | None = None
        if answers_queries:
            self._answers = Answers(clock, lambda: self.size, self._answer)
        self._old_until = 0.0  # output of a line may be older than the line
        self._line_writable = False
        self._breaking: IDelayedCall | None = None
        self._waiting: list[Deferred[Ending]] = []
        self._opening: Deferred[Any] | None = None
        self.life = ConsoleLife.NEW
        if size is not None:
            console.window_changed(size)

    def use(self, console: IConsole) -> None:
        self._console = console
        self._is_silent = True
        if self.size is not None:
            console.window_changed(self.size)

    @property
    def floor(self) -> Floor:
        return self._viewers.floor

    @property
    def input_rate(self) -> RateLimit:
        return self._viewers.input_rate

    @property
    def viewers(self) -> tuple[Viewer, ...]:
        return tuple(self._viewers)

    @property
    def is_live(self) -> bool:
        return self._line is not None

    @property
    def boot_offset(self) -> int:
        """The offset at which the output of the present line begins; before the first line, the end."""
        return self.journal.end if self._line_number == 0 else self._line_offset

    @property
    def scrollback_start(self) -> int:
        """The offset at which a new viewer begins."""
        return recent_offset(self.journal, self.limits.scrollback_bytes)

    @property
    def outage(self) -> str:
        """Why input is discarded at present, if the line is lost for a while; otherwise empty."""
        transport = self._line and self._line.transport
        return str(transport.outage) if IRecoveringTransport.providedBy(transport) else ""

    @property
    def missing_people(self) -> str:
        return self._viewers.missing_people

    def viewer(self, banner: Sequence[str] = ()) -> Viewer:
        """Create the attachment for one more user."""
        return Viewer(self, self._viewers, banner)

    def open(self) -> Deferred[None]:
        """
        Open the line; call this once for each line.

        :return: fires when the line is open; fails as the console's ``connect`` does, or with
            :class:`LineEnded` if the console is over. A failure ends the viewers, unless they wait
            for the next line.
        """
        opened: Deferred[None] = Deferred()
        if self.ending is not None:
            opened.errback(LineEnded(self.ending))
        else:
            is_next = self.life is ConsoleLife.WAITING
            self._become(ConsoleLife.REOPENING if is_next else ConsoleLife.OPENING)
            self._connect(opened)
        return opened

    def end(self, ending: Ending) -> None:
        """End every viewer with this status and close the line."""
        if self.life is not ConsoleLife.OVER:
            self._become(ConsoleLife.OVER)
            self._finish(ending)

    def interrupt(self, ending: Ending) -> None:
        """
        Close the line, after which another line may follow; without ``restart_seconds`` end the
        console.
        """
        if self.limits.restart_seconds <= 0:
            self.end(ending)
        elif self.life is not ConsoleLife.OVER:
            if self.life is not ConsoleLife.WAITING:
                self._become(ConsoleLife.WAITING)
            self._wait(ending)

    def when_line_over(self) -> Deferred[Ending]:
        """
        :return: fires when the line has ended, could not be opened, or was closed.
        """
        waiter: Deferred[Ending] = Deferred()
        if self._line_ending is not None:
            waiter.callback(self._line_ending)
        else:
            self._waiting.append(waiter)
        return waiter

    def window_changed(self, size: TerminalSize) -> None:
        if size != self.size:
            self.size = size
            self.journal.resized(size.rows, size.columns)
            self._viewers.size_changed()
        self._console.window_changed(size)

    @property
    def has_break(self) -> bool:
        return IBreakable.providedBy(self._console)

    def send_break(self, signal: Break) -> bool:
        """
        Send BREAK and pause input until it has ended.

        A request during a BREAK, or while the line is not open, is ignored.

        :return: whether this console supports BREAK.
        """
        if not IBreakable.providedBy(self._console):
            return False
        if self._line is not None and self._breaking is None:
            seconds = signal.milliseconds / 1000
            self._breaking = self.clock.callLater(seconds, self._break_over)
            self._viewers.update_input()
            self._console.send_break(signal.milliseconds)
        return True

    def _break_over(self) -> None:
        self._breaking = None
        self._viewers.update_input()

    def recordings_changed(self) -> None:
        self._viewers.recordings_changed()

    # Called by viewers.

    @property
    def accepts_input(self) -> bool:
        return self._line_writable and self._breaking is None

    def typed(self, data: bytes, viewer: EchoUser) -> None:
        """Send input of a session to the line; discard it if there is no line."""
        if self._line is not None:
            self._echo_time.typed(viewer)
            self._line.transport.write(data)

    def pace(self) -> None:
        self._pacing.follow()

    # Called by the line.

    def printed(self, data: bytes) -> None:
        if self._is_silent:
            self._is_silent = False
            if self._before_output is not None:
                self._before_output()
        self.journal.append(data)
        self.last_output_at = self.clock.seconds()
        newest_to_skip = self.journal.end - self.limits.lag_bytes
        for viewer in self._viewers:
            output = viewer.output
            output.pump()
            if output.offset < newest_to_skip:
                output.fell_behind()
        if self._console.paced:
            self._pacing.printed(len(data))
        self._trim()
        self._pacing.follow()
        self._echo_time.printed()
        if self._answers is not None:
            if self.floor.writers or self.clock.seconds() < self._old_until:
                self._answers.forget()
            else:
                self._answers.printed(data)

    def _answer(self, answer: bytes) -> None:
        line = self._line
        if line is None or not self.accepts_input or self.outage:
            return
        if self.recorder.typed(SESSION, answer):
            line.transport.write(answer)

    def noticed(self, text: bytes) -> None:
        self.tell(decode_notice(text))

    def tell(self, text: str) -> None:
        """Show a notice to the viewers."""
        for viewer in self._viewers:
            viewer.tell(Notice(text))

    def announce(self, text: str) -> None:
        """
        Show a notice to the viewers, and to those who join later.

        :param text: empty if those who join later are to be shown nothing.
        """
        if text != self.announcement:
            self.announcement = text
            if text:
                self.tell(text)

    def line_lost(self, number: int, ending: Ending, has_exited: bool) -> None:
        """Follow the end of a line."""
        if number != self._line_number:
            return  # this console has closed it
        self._line = None
        self._pacing.stop()
        if self._restarts(ending, has_exited):
            self.interrupt(ending)
        else:
            self.end(ending)

    def line_accepts(self, is_accepting: bool) -> None:
        self._line_writable = is_accepting
        self._viewers.update_input()

    def _trim(self) -> None:
        """
        Discard output that neither a new viewer nor the slowest viewer needs.

        Some output before the slowest viewer stays: if the viewer's stream is lost, its last output
        may be lost too, and is sent again.
        """
        end = self.journal.end
        slowest = min((viewer.output.offset for viewer in self._viewers), default=end)
        oldest = max(slowest - self.limits.scrollback_bytes, end - self.limits.lag_bytes)
        self.journal.discard_before(oldest, slowest)

    # The steps of its life.

    def _connect(self, opened: Deferred[None]) -> None:
        self._line_ending = None
        self._line_offset = self.journal.end
        self._line_number += 1
        number = self._line_number
        factory = Factory.forProtocol(lambda: Line(self, number))
        factory.noisy = False
        # A console of an application may raise instead of returning a failure.
        self._opening = maybeDeferred(self._console.connect, factory)
        self._opening.addCallbacks(
            self._connected,
            self._not_connected,
            callbackArgs=(number, opened),
            errbackArgs=(number, opened),
        )

    def _connected(self, line: Line, number: int, opened: Deferred[None]) -> None:
        if number != self._line_number:  # too late
            line.transport.loseConnection()
        else:
            self._opening = None
            self._become(ConsoleLife.LIVE)
            self._go_live(line)
        opened.callback(None)

    def _not_connected(self, failure: Failure, number: int, opened: Deferred[None]) -> None:
        if number == self._line_number:
            self._opening = None
            self._could_not_open(failure)
        opened.errback(failure)

    def _could_not_open(self, failure: Failure) -> None:
        error = failure.value
        why = error.message if isinstance(error, APIError) else message_of(error)
        ending = Ending(LINE_LOST, f"the console cannot be opened: {why}")
        if self.life is ConsoleLife.REOPENING:
            self._become(ConsoleLife.WAITING)
            self._drop_line(ending)
        elif self.life is ConsoleLife.OPENING:
            self.end(ending)

    def _go_live(self, line: Line) -> None:
        self._line = line
        self._old_until = 0.0 if self.is_new_boot else self.clock.seconds() + _OLD_OUTPUT_SECONDS
        if self._console.paced:
            self._pacing.use(line.transport)
        line.transport.registerProducer(line, True)
        self.interruption.end()
        self.line_accepts(True)
        self._pacing.follow()

    def _wait(self, ending: Ending) -> None:
        self.interruption.begin(ending)
        self._viewers.update_input()  # the line may have held back what is to be discarded
        self._drop_line(ending)

    def _finish(self, ending: Ending) -> None:
        self.ending = ending
        self.interruption.stop()
        self._viewers.stop()
        for viewer in self._viewers:
            viewer.finish(ending)
        self._drop_line(ending)

    def _drop_line(self, ending: Ending) -> None:
        self._line_ending = ending
        self._line_number += 1
        line, self._line = self._line, None
        self._line_writable = False
        self._echo_time.forget()
        self._pacing.stop()
        if self._breaking is not None:
            self._breaking.cancel()
            self._breaking = None
        if line is not None:
            line.transport.unregisterProducer()
            line.transport.loseConnection()
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(ending)
