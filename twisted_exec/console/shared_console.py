"""
A line and its viewers.

A shared console opens its line and keeps it open while viewers come and go.  Output goes into one
journal, from which each viewer reads at its own pace:

* A paced line (a pty) is paused when even the *fastest* viewer is 512 KiB behind (:mod:`.pacing`).  A
  machine's serial line is never paused.
* A viewer that is more than 1 MiB behind skips to the newest byte and gets a notice with the number
  of missed bytes.  It delays no other viewer and has no buffer of its own.
* A viewer whose stream is lost does not skip, neither while it is away nor, when it is back, until
  it has read everything.  A journal on disk has all of that; one in memory retains 1 MiB for it.

Input of writers (:mod:`.floor`) goes to the line if enough people are connected (:mod:`.attendance`).
All viewers' input is paused while the line accepts no more, before the line is open, and during a
BREAK.

When the machine of a line ends and starts again, the console gets another line.  Meanwhile users at
terminals wait (:mod:`.interruption`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError, message_of
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

from .acts import Act, ActReports, ignore
from .answers import SESSION, Answers
from .echo import Echo
from .floor import Floor
from .interfaces import IRecoveringTransport
from .interruption import Interruption
from .lifecycle import build
from .limits import DEFAULT_LIMITS, Limits
from .line import Line, LineEnded
from .pacing import Pacing
from .recorder import UnrecordedConsole
from .viewer import Viewer
from .viewer_state import ViewerState
from .viewers import Viewers

_OLD_OUTPUT_SECONDS = 10.0
"""From the opening of a line until its output is new, unless the machine starts with it."""


def _never(ending: Ending, has_exited: bool) -> bool:
    """Expect no other line."""
    return False


class SharedConsole:
    """
    A line, or one after the other, and any number of viewers.

    :param journal: continues that of an earlier console of the same machine.
    :param size: initial size of the line, until a writer has another.
    :param before_output: called once for each line, before its first output is written to the
        journal; that may be before the line is open.
    :param acted: called with take-overs and with discarded input, see :mod:`.acts`.
    :param restarts: returns whether another line follows one that ended by itself.  Called with its
        ending, and whether that is the exit code of a process.
    :param recorder: provides :class:`.interfaces.IConsoleRecorder`; ``None`` if the console cannot be
        recorded.
    :param answers_queries: answer the machine when it asks for the size of a terminal, and no user
        has the floor.
    :ivar ending: how the console ended; ``None`` while it lasts.
    :ivar is_new_boot: the machine of the line starts with it, and does not run already.
    :ivar interruption: lets sessions wait for the next line.
    :ivar unsent: input that the line gets before any other once it is open.
    """

    def __init__(
        self,
        console: IConsole,
        clock: IReactorTime,
        *,
        journal: IJournal | None = None,
        size: TerminalSize | None = None,
        limits: Limits = DEFAULT_LIMITS,
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
        """Take the console of the next line, before it is opened."""
        self._console = console
        self._is_silent = True
        if self.size is not None:
            console.window_changed(self.size)

    @property
    def floor(self) -> Floor:
        """The right to type at this console."""
        return self._viewers.floor

    @property
    def viewers(self) -> tuple[Viewer, ...]:
        """The viewers, with those that are away, in the order in which they joined."""
        return tuple(self._viewers)

    @property
    def is_live(self) -> bool:
        """True while the line is open."""
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
        """Why a ConsolePolicy withholds input at present; otherwise empty."""
        return self._viewers.missing_people

    def viewer(self) -> Viewer:
        """Create the attachment for one more user; it joins when its stream is up."""
        return Viewer(self, self._viewers)

    def restore(self, state: ViewerState) -> Viewer | None:
        """
        Add a viewer that goes on from an earlier process, and waits for its stream.

        :return: ``None`` if the console has ended, or has another journal.
        """
        if self.ending is not None or self.journal.epoch != state.epoch:
            return None
        viewer = self.viewer()
        self._viewers.restore(viewer, state)
        return viewer

    def open(self) -> Deferred[None]:
        """
        Open the line; call once for each, and again after :meth:`suspend`.

        :return: fires when the line is open; fails as the console's ``connect`` does, after
            the viewers of a first line were ended, or with :class:`LineEnded` if the console is over
            already.
        """
        opened = self._opened = Deferred()
        self._lifecycle.open()
        return opened

    def end(self, ending: Ending) -> None:
        """End every viewer with this status and close the line.  Repeated calls do nothing."""
        self._lifecycle.over(ending)

    def interrupt(self, ending: Ending) -> None:
        """
        Close the line, after which another one may follow.

        :param ending: of viewers that do not wait, or that wait in vain.
        """
        if self.limits.restart_seconds > 0:
            self._lifecycle.interrupted(ending)
        else:
            self._lifecycle.over(ending)

    def suspend(self) -> None:
        """
        Let go of the line, which goes on without this console, and of the journal.

        Viewers stay: they get no output, and their input waits.  Must not be called while the line is
        being opened.
        """
        self._viewers.suspend()
        self.interruption.suspend()
        self._lifecycle.let_go()

    def unsuspend(self, console: IConsole | None = None) -> None:
        """
        Go on after :meth:`suspend`; the line is opened by :meth:`open`.

        :param console: the line from now on, if it is another object.
        """
        if console is not None:
            self._console = console
            if self.size is not None:
                console.window_changed(self.size)
        self._viewers.unsuspend()
        self.interruption.unsuspend()
        self._viewers.attendance_changed()

    @property
    def is_suspended(self) -> bool:
        """True from :meth:`suspend` to :meth:`unsuspend`."""
        return self._viewers.is_suspended

    def when_line_over(self) -> Deferred[Ending]:
        """:return: fires when the line has ended, could not be opened, or was closed."""
        waiter: Deferred[Ending] = Deferred()
        if self._line_ending is not None:
            waiter.callback(self._line_ending)
        else:
            self._waiting.append(waiter)
        return waiter

    def window_changed(self, size: TerminalSize) -> None:
        """Resize the line; before it is open, the console remembers the size."""
        if self.is_suspended:
            self.size = size
            return
        if size != self.size:
            self.journal.resized(size.rows, size.columns)
        self.size = size
        self._console.window_changed(size)

    def send_break(self, signal: Break) -> bool:
        """
        Send BREAK and pause all input until it has ended.

        A request during a BREAK is ignored.

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
        """Tell the viewers about recordings that have begun or ended."""
        self._viewers.recordings_changed()

    def restore_size(self, size: TerminalSize) -> None:
        """Take note of the size that the line has had since before this process."""
        self.size = size
        self._console.window_changed(size)

    # Called by viewers.

    @property
    def accepts_input(self) -> bool:
        """True while the line accepts input."""
        return self._line_writable and self._breaking is None

    def typed(self, data: bytes, viewer: Viewer) -> None:
        """Send input of a session to the line; discard it if there is no line."""
        if self._line is not None:
            self._echo.typed(viewer)
            self._line.transport.write(data)

    def pace(self) -> None:
        """Pause or resume a line that can be paused, after a viewer has read or left."""
        self._pacing.follow()

    # Called by the line.

    def printed(self, data: bytes) -> None:
        """Pass output of the machine to the journal and the viewers."""
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
        self._echo.printed()
        if self._answers is not None:
            if self.floor.writers or self.clock.seconds() < self._old_until:
                self._answers.forget()
            else:
                self._answers.printed(data)

    def _answer(self, answer: bytes) -> None:
        """Send an answer of this program, as input, if the machine gets any."""
        line = self._line
        if line is None or not self.accepts_input or self.outage:
            return
        if self.recorder.typed(SESSION, answer):
            line.transport.write(answer)

    def noticed(self, text: bytes) -> None:
        """Pass a notice of the line to the viewers."""
        if self.outage:
            self.journal.missed()
        for viewer in self._viewers:
            viewer.tell(text)

    def line_lost(self, number: int, ending: Ending, has_exited: bool) -> None:
        """
        Follow the end of a line.

        :param has_exited: it is the exit code of a process.
        """
        if number != self._line_number:
            return  # this console has closed it
        self._line = None
        self._pacing.stop()
        if self._restarts(ending, has_exited):
            self.interrupt(ending)
        else:
            self._lifecycle.over(ending)

    def line_accepts(self, is_accepting: bool) -> None:
        """Take note of whether the line accepts input."""
        self._line_writable = is_accepting
        self._viewers.update_input()

    def _trim(self) -> None:
        """
        Discard output that no viewer needs, neither a new one nor the slowest one.

        The scrollback's length before the slowest one may be lost together with a stream.
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
        self._opening = self._console.connect(factory)
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
        """Close the line, unless it has ended, and ignore what becomes of it."""
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
