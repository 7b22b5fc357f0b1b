"""
A shared console: one line and its viewers.

Output goes into a journal, from which each viewer reads at its own pace. The fastest viewer slows
down a paced line, such as a pty (:class:`Pacing`); a machine's serial line does not wait for
viewers. A viewer that is too far behind usually skips to the newest byte, and learns that bytes are
missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from automat import TypeMachineBuilder
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.kinds.consolerecordings import CANNOT_BE_RECORDED
from twisted_exec.api.status import APIError, NotImplementedByBackend, message_of
from twisted_exec.console.acts import Act, ActReports, ignore
from twisted_exec.console.floor import WAITS, Floor
from twisted_exec.console.interfaces import IConsoleRecorder, ILineTransport, IRecoveringTransport
from twisted_exec.console.line import Line, LineEnded, ReadRateLimit
from twisted_exec.console.viewer import Viewer, ViewerState
from twisted_exec.console.viewers import Viewers
from twisted_exec.console.wrappers import Wrappers
from twisted_exec.journal.interfaces import IJournal
from twisted_exec.journal.journal import Journal
from twisted_exec.streaming.interfaces import (
    LINE_LOST,
    Break,
    Ending,
    IBreakable,
    IConsole,
    TerminalSize,
)
from twisted_exec.wire.control_messages import decode_notice
from twisted_exec.wire.escape_sequences import QueryFilter
from twisted_exec.wire.resume import Notice, NoticeKind, OpenRecording

if TYPE_CHECKING:
    from twisted_exec.console.viewer import Viewer


class Lifecycle(Protocol):
    """Inputs of the state machine."""

    def open(self) -> None:
        """Connect the line, or the next one."""

    def opened(self, line: Line) -> None:
        """The line is connected."""

    def let_go(self) -> None:
        """Give up the line, which goes on."""

    def failed(self, ending: Ending) -> None:
        """The line could not be opened."""

    def interrupted(self, ending: Ending) -> None:
        """The line ended or is to be closed, and another line may follow."""

    def over(self, ending: Ending) -> None:
        """The line ended, or the console is to end."""


def build(console: type[SharedConsole]) -> Any:
    """Build the state machine."""
    builder = TypeMachineBuilder(Lifecycle, console)
    new, opening, live, waiting, reopening, over = (
        builder.state(name) for name in ("New", "Opening", "Live", "Waiting", "Reopening", "Over")
    )

    @new.upon(Lifecycle.open).to(opening)
    @waiting.upon(Lifecycle.open).to(reopening)
    def connect(_: Lifecycle, core: SharedConsole) -> None:
        core._connect()

    @opening.upon(Lifecycle.opened).to(live)
    @reopening.upon(Lifecycle.opened).to(live)
    def go_live(_: Lifecycle, core: SharedConsole, line: Line) -> None:
        core._go_live(line)

    @live.upon(Lifecycle.let_go).to(new)
    def let_go(_: Lifecycle, core: SharedConsole) -> None:
        core._let_go()

    @new.upon(Lifecycle.interrupted).to(waiting)
    @opening.upon(Lifecycle.interrupted).to(waiting)
    @live.upon(Lifecycle.interrupted).to(waiting)
    @waiting.upon(Lifecycle.interrupted).loop()
    @reopening.upon(Lifecycle.interrupted).to(waiting)
    def wait(_: Lifecycle, core: SharedConsole, ending: Ending) -> None:
        core._wait(ending)

    @reopening.upon(Lifecycle.failed).to(waiting)
    def wait_on(_: Lifecycle, core: SharedConsole, ending: Ending) -> None:
        core._drop_line(ending)

    @opening.upon(Lifecycle.failed).to(over)
    @new.upon(Lifecycle.over).to(over)
    @opening.upon(Lifecycle.over).to(over)
    @live.upon(Lifecycle.over).to(over)
    @waiting.upon(Lifecycle.over).to(over)
    @reopening.upon(Lifecycle.over).to(over)
    def finish(_: Lifecycle, core: SharedConsole, ending: Ending) -> None:
        core._finish(ending)

    @waiting.upon(Lifecycle.opened).loop()
    @over.upon(Lifecycle.opened).loop()
    def too_late(_: Lifecycle, core: SharedConsole, line: Line) -> None:
        line.transport.loseConnection()

    @over.upon(Lifecycle.open).loop()
    def refuse(_: Lifecycle, core: SharedConsole) -> None:
        core._refuse()

    for state in (new, waiting, over):
        state.upon(Lifecycle.let_go).loop().returns(None)
    waiting.upon(Lifecycle.failed).loop().returns(None)
    over.upon(Lifecycle.failed).loop().returns(None)
    over.upon(Lifecycle.interrupted).loop().returns(None)
    over.upon(Lifecycle.over).loop().returns(None)
    return builder.build()


class Interruption:
    """
    The sessions of one console that wait for its next line.

    Input meanwhile was meant for the machine that has ended, so it is discarded: a shell that comes
    up must not execute it.
    """

    def __init__(self, console: SharedConsole) -> None:
        self._console = console
        self._ending: Ending | None = None
        self._timer: IDelayedCall | None = None

    @property
    def why(self) -> str:
        return "" if self._ending is None else self._ending.message

    def begin(self, ending: Ending) -> None:
        """Let the sessions wait; the newest ending of the line replaces an earlier one."""
        before, self._ending = self.why, ending
        self.unsuspend()
        for viewer in self._console.viewers:
            if viewer.is_ending:
                continue
            if not viewer.may_wait:
                viewer.finish(ending)
            elif not viewer.input.is_interrupted or self.why != before:
                self.join(viewer)

    def join(self, viewer: Viewer) -> None:
        """Let another session wait, whose user has seen the line that has ended."""
        seconds = self._console.limits.restart_seconds
        text = f"{self.why}; {WAITS} {seconds:g} s for the machine to start again"
        viewer.input.is_interrupted = True
        viewer.tell(Notice(text, NoticeKind.INTERRUPTED, why=self.why))

    def end(self) -> None:
        self.stop()
        for viewer in self._waiting():
            viewer.input.restarted(self._console.boot_offset)

    def stop(self) -> None:
        self.suspend()
        self._ending = None

    def suspend(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def unsuspend(self) -> None:
        """Start the waiting time anew."""
        if self._ending is not None and self._timer is None:
            seconds = self._console.limits.restart_seconds
            self._timer = self._console.clock.callLater(seconds, self._expire)

    @property
    def ending(self) -> Ending | None:
        return self._ending

    def restore(self, viewer: Viewer, ending: Ending) -> None:
        if self._console.is_live:
            viewer.input.restarted(self._console.boot_offset)
        else:
            viewer.input.is_interrupted, self._ending = True, ending
            self.unsuspend()

    def _waiting(self) -> list[Viewer]:
        return [each for each in self._console.viewers if each.input.is_interrupted]

    def _expire(self) -> None:
        assert self._ending is not None
        self._timer = None
        waiting = self._waiting()
        self._console.floor.dismiss(waiting)
        for viewer in waiting:
            viewer.finish(self._ending)


UNWATCHED_BYTES_PER_SECOND = 1 << 20
"""Maximal rate of reading a paced line without viewers."""


class Pacing:
    """Pauses and resumes the line of one console, if the line is paced."""

    def __init__(
        self,
        clock: IReactorTime,
        journal: IJournal,
        viewers: Collection[Viewer],
        pace_bytes: int,
    ) -> None:
        self._journal, self._viewers, self._pace_bytes = journal, viewers, pace_bytes
        self._line: ILineTransport | None = None
        self._is_paused = False
        self._unwatched = ReadRateLimit(clock, self.follow, self.follow, UNWATCHED_BYTES_PER_SECOND)

    def use(self, line: ILineTransport) -> None:
        self._line = line

    def stop(self) -> None:
        self._line, self._is_paused = None, False
        self._unwatched.stop()

    def printed(self, size: int) -> None:
        """Count output against the limit of a line without viewers; :meth:`follow` follows."""
        if not self._viewers:
            self._unwatched.charge(size)

    def follow(self) -> None:
        if self._line is None:
            return
        wait = self._fastest_is_behind() if self._viewers else self._unwatched.is_paused
        if wait and not self._is_paused:
            self._is_paused = True
            self._line.pauseProducing()
        elif self._is_paused and not wait:
            self._is_paused = False
            self._line.resumeProducing()

    def _fastest_is_behind(self) -> bool:
        # A viewer that has just skipped is at the end without having read anything.
        reading = [each for each in self._viewers if not each.output.skipped] or self._viewers
        behind = self._journal.end - max(each.output.offset for each in reading)
        if self._is_paused:
            return bool(behind > self._pace_bytes // 2)
        return bool(behind >= self._pace_bytes)


LONGEST_SECONDS = 2.0
"""Longest time from input to its echo; later output is no echo."""


class Echo:
    """Measures the time from input to the next output, for the session that typed."""

    __slots__ = ("_clock", "_typed_at", "_viewer")

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        # Its input is not answered yet.  It may leave before that, and is freed by reference counts.
        self._viewer: ref[Viewer] | None = None
        self._typed_at = 0.0

    def typed(self, viewer: Viewer) -> None:
        now = self._clock.seconds()
        if self._viewer is None or now - self._typed_at > LONGEST_SECONDS:
            self._viewer, self._typed_at = ref(viewer), now

    def printed(self) -> None:
        if self._viewer is None:
            return
        viewer, self._viewer = self._viewer(), None
        seconds = self._clock.seconds() - self._typed_at
        if viewer is not None and seconds <= LONGEST_SECONDS:
            viewer.echoed(seconds)

    def forget(self) -> None:
        self._viewer = None


SESSION = "runtime"
"""In place of a session's id, where input is recorded."""

SIZE = TerminalSize(columns=80, rows=24)
"""The size of a line that has had no terminal."""

MOST_PER_SECOND = 8


class Answers:
    """
    The answers to one machine.

    Programs on a serial line ask the terminal for its size, and wait if no terminal answers:
    systemd 257 and later a third of a second for each of two questions, at every boot.

    A machine, or a file that it prints, may ask as well in order to have the answer typed into a
    program that reads input. So the answers are few and limited in rate, and have a fixed form: one
    escape sequence, which ends no line and is itself no query.
    """

    def __init__(
        self,
        clock: IReactorTime,
        size: Callable[[], TerminalSize | None],
        send: Callable[[bytes], None],
    ) -> None:
        self._clock, self._size, self._send = clock, size, send
        self._sent_at: deque[float] = deque(maxlen=MOST_PER_SECOND)
        self._queries: list[bytes] = []
        self._filter = QueryFilter(self._queries.append)

    def printed(self, data: bytes) -> None:
        self._filter.feed(data)
        # The same list, because the filter appends to it.
        queries, self._queries[:] = self._queries[:MOST_PER_SECOND], []
        for query in queries:
            answer = self._answer(query)
            if answer and self._may_send():
                self._send(answer)

    def forget(self) -> None:
        """Forget the first half of a query."""
        self._filter = QueryFilter(self._queries.append)

    def _answer(self, query: bytes) -> bytes:
        size = self._size() or SIZE
        if query == b"18t":
            return b"\x1b[8;%d;%dt" % (size.rows, size.columns)  # XTWINOPS 18 (ctlseqs)
        if query == b"6n":
            # Programs move the cursor as far as it goes before they ask.
            return b"\x1b[%d;%dR" % (size.rows, size.columns)
        return b"\x1b[?6c" if query in (b"c", b"0c") else b""  # a VT102, as the Linux console says

    def _may_send(self) -> bool:
        now = self._clock.seconds()
        sent_at = self._sent_at
        if len(sent_at) == MOST_PER_SECOND and now - sent_at[0] < 1:
            return False
        sent_at.append(now)
        return True


_WHY = f"this console {CANNOT_BE_RECORDED}, and a ConsolePolicy requires that"


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


@dataclass(frozen=True)
class ConsoleLimits:
    """
    Limits of a shared console.

    :param scrollback_bytes: past output that a new viewer gets.
    :param lag_bytes: a viewer farther behind usually skips to the newest byte.
    :param pace_bytes: a paced line is paused while its fastest viewer is this far behind.
    :param quiet_seconds: time without output after which a session whose input ended is ended.
    :param restart_seconds: how long viewers wait for the next line; 0: not at all.
    """

    scrollback_bytes: int = 256 << 10
    lag_bytes: int = 1 << 20
    pace_bytes: int = 512 << 10
    quiet_seconds: float = 2.0
    restart_seconds: float = 0.0


DEFAULT_LIMITS = ConsoleLimits()


_OLD_OUTPUT_SECONDS = 10.0
"""
Time after the opening of a line in which its output counts as old, unless the machine starts with
the line.
"""


def _never(ending: Ending, has_exited: bool) -> bool:
    return False


class SharedConsole:
    """
    A line, or several one after the other, and any number of viewers.

    :param journal: continues that of an earlier console of the same machine.
    :param before_output: called before the first output of a line is written to the journal; that
        may be before the line is open.
    :param restarts: returns whether another line follows a line that ended by itself. Called with
        its ending, and whether that is the exit code of a process.
    :param answers_queries: answer queries of the machine, such as for the size of a terminal, while
        no user has the floor.
    :ivar is_new_boot: the machine starts with the line.
    :ivar unsent: input that the line gets before any other once it is open.
    """

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
        recorder: Any = None,
        answers_queries: bool = False,
    ) -> None:
        self.clock = clock
        self.reports = ActReports(acted, clock.seconds)
        self.recorder: Any = UnrecordedConsole() if recorder is None else recorder
        self._before_output = before_output
        self._is_silent = True  # the line has printed nothing
        self._restarts = restarts
        self.limits = limits
        self.journal = Journal() if journal is None else journal
        self.last_output_at = clock.seconds()
        self.ending: Ending | None = None
        self.is_new_boot = False
        self.unsent = b""
        self.size = size
        self._console = console
        self._line: Line | None = None
        self._line_number = self._line_offset = 0
        self._line_ending: Ending | None = None
        self.interruption = Interruption(self)
        self._viewers = Viewers(self)
        self._pacing = Pacing(clock, self.journal, self._viewers, limits.pace_bytes)
        self._echo = Echo(clock)
        self.wrappers = Wrappers(clock, self.journal, self._show)
        self._answers: Answers | None = None
        if answers_queries:
            self._answers = Answers(clock, lambda: self.size, self._answer)
        self._old_until = 0.0  # output of a line may be older than the line
        self._line_writable = False
        self._breaking: IDelayedCall | None = None
        self._waiting: list[Deferred[Ending]] = []
        self._opening: Deferred[Any] | None = None
        self._opened: Deferred[None] = Deferred()
        self._lifecycle = _build(self)
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
        return self.journal.next_available(self.journal.end - self.limits.scrollback_bytes)

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

    def restore(self, state: ViewerState) -> Viewer | None:
        """
        Add a viewer that goes on from an earlier process.

        :return: ``None`` if the console has ended, or has another journal.
        """
        if self.ending is not None or self.journal.epoch != state.epoch:
            return None
        viewer = self.viewer()
        self._viewers.restore(viewer, state)
        return viewer

    def open(self) -> Deferred[None]:
        """
        Open the line; call this once for each line, and again after :meth:`suspend`.

        :return: fires when the line is open; fails as the console's ``connect`` does, or with
            :class:`LineEnded` if the console is over. A failure ends the viewers, unless they wait
            for the next line.
        """
        opened = self._opened = Deferred()
        self._lifecycle.open()
        return opened

    def end(self, ending: Ending) -> None:
        """End every viewer with this status and close the line."""
        self._lifecycle.over(ending)

    def interrupt(self, ending: Ending) -> None:
        """
        Close the line, after which another line may follow; without ``restart_seconds`` end the
        console.
        """
        if self.limits.restart_seconds > 0:
            self._lifecycle.interrupted(ending)
        else:
            self._lifecycle.over(ending)

    def suspend(self) -> None:
        """
        Let go of the line, which goes on without this console, and of the journal.

        Viewers stay: they get no output, and their input waits. Must not be called while the line
        is being opened.
        """
        self._viewers.suspend()
        self.interruption.suspend()
        self._lifecycle.let_go()

    def unsuspend(self, console: IConsole | None = None) -> None:
        """Go on after :meth:`suspend`; the line is opened by :meth:`open`."""
        if console is not None:
            self._console = console
            if self.size is not None:
                console.window_changed(self.size)
        self._viewers.unsuspend()
        self.interruption.unsuspend()
        self._viewers.attendance_changed()

    @property
    def is_suspended(self) -> bool:
        return self._viewers.is_suspended

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
        if self.is_suspended:
            self.size = size
            return
        if size != self.size:
            self.journal.resized(size.rows, size.columns)
        self.size = size
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

    def restore_size(self, size: TerminalSize) -> None:
        """Set the size that the line has had since before this process."""
        self.size = size
        self._console.window_changed(size)

    # Called by viewers.

    @property
    def accepts_input(self) -> bool:
        return self._line_writable and self._breaking is None

    def typed(self, data: bytes, viewer: Viewer) -> None:
        """Send input of a session to the line; discard it if there is no line."""
        if self._line is not None:
            self._echo.typed(viewer)
            self._line.transport.write(data)

    def pace(self) -> None:
        self._pacing.follow()

    # Called by the line.

    def printed(self, data: bytes) -> None:
        if self._is_silent:
            self._is_silent = False
            if self._before_output is not None:
                self._before_output()
        self.wrappers.append(data)
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
        self._echo.printed()
        if self._answers is not None:
            if self.floor.writers or self.clock.seconds() < self._old_until:
                self._answers.forget()
            else:
                self._answers.printed(data)

    def _show(self) -> None:
        for viewer in self._viewers:
            viewer.output.pump()

    def _answer(self, answer: bytes) -> None:
        line = self._line
        if line is None or not self.accepts_input or self.outage:
            return
        if self.recorder.typed(SESSION, answer):
            line.transport.write(answer)

    def noticed(self, text: bytes) -> None:
        if self.outage:
            self.journal.missed()
        notice = Notice(decode_notice(text))
        for viewer in self._viewers:
            viewer.tell(notice)

    def line_lost(self, number: int, ending: Ending, has_exited: bool) -> None:
        """Follow the end of a line."""
        if number != self._line_number:
            return  # this console has closed it
        self._line = None
        self._pacing.stop()
        if self._restarts(ending, has_exited):
            self.interrupt(ending)
        else:
            self._lifecycle.over(ending)

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

    # Actions of the lifecycle.

    def _connect(self) -> None:
        self._line_ending = None
        self._line_offset = self.journal.end
        self._line_number += 1
        number = self._line_number
        factory = Factory.forProtocol(lambda: Line(self, number))
        factory.noisy = False
        # A console of an application may raise instead of returning a failure.
        self._opening = maybeDeferred(self._console.connect, factory)
        self._opening.addCallbacks(self._connected, self._not_connected)

    def _connected(self, line: Line) -> None:
        self._opening = None
        self._lifecycle.opened(line)
        self._opened.callback(None)

    def _not_connected(self, failure: Failure) -> None:
        self._opening = None
        error = failure.value
        why = error.message if isinstance(error, APIError) else message_of(error)
        self._lifecycle.failed(Ending(LINE_LOST, f"the console cannot be opened: {why}"))
        self._opened.errback(failure)

    def _refuse(self) -> None:
        assert self.ending is not None
        if not self._opened.called:
            self._opened.errback(LineEnded(self.ending))

    def _go_live(self, line: Line) -> None:
        self._line = line
        self._old_until = 0.0 if self.is_new_boot else self.clock.seconds() + _OLD_OUTPUT_SECONDS
        if self._console.paced:
            self._pacing.use(line.transport)
        unsent, self.unsent = self.unsent, b""
        if unsent:
            line.transport.write(unsent)
        line.transport.registerProducer(line, True)
        self.interruption.end()
        self.line_accepts(True)
        self._pacing.follow()

    def _wait(self, ending: Ending) -> None:
        self.unsent = b""
        self.interruption.begin(ending)
        self._viewers.update_input()  # the line may have held back what is to be discarded
        self._drop_line(ending)

    def _let_go(self) -> None:
        line, self._line = self._line, None
        assert line is not None
        self._forget_line()
        line.let_go()

    def _forget_line(self) -> None:
        self._line_writable = False
        self._echo.forget()
        self.wrappers.stop()
        self._pacing.stop()
        if self._breaking is not None:
            self._breaking.cancel()
            self._breaking = None

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
        self._forget_line()
        if line is not None:
            line.transport.unregisterProducer()
            line.transport.loseConnection()
        if self._opening is not None:
            self._opening.cancel()
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(ending)


_build = build(SharedConsole)
