"""
A line and its viewers.

A shared console opens its line and keeps it open while viewers come and go.  Output goes into one
journal, from which each viewer reads at its own pace:

* A paced line (a pty) is paused when even the *fastest* viewer is 512 KiB behind, so a sole viewer
  loses nothing.  Without viewers it is read at a limited rate.  A machine's serial line is never
  paused.
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
from dataclasses import dataclass
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
    TOO_MANY_VIEWERS,
    Break,
    Ending,
    IBreakable,
    IConsole,
    Position,
    Role,
    TerminalSize,
)
from twisted_exec.wire.session_terms import Terms

from .acts import Act, ActReports, ignore
from .attendance import missing_people, missing_place
from .floor import Floor, notice
from .handed_viewers import ViewerState
from .interfaces import IRecoveringTransport
from .interruption import Interruption
from .lifecycle import build
from .line import Line, LineEnded
from .presence import Presence
from .rate_limit import ReadRateLimit
from .viewer import Viewer


@dataclass(frozen=True)
class Limits:
    """
    Limits of a shared console.

    :param scrollback_bytes: past output that a new viewer gets.
    :param lag_bytes: a viewer farther behind skips to the newest byte.
    :param pace_bytes: a paced line is paused while its fastest viewer is this far behind.
    :param quiet_seconds: time without output after which a viewer whose input ended is ended.
    :param restart_seconds: how long viewers wait for the next line when one has ended; 0: they end
        with it.
    """

    scrollback_bytes: int = 256 << 10
    lag_bytes: int = 1 << 20
    pace_bytes: int = 512 << 10
    quiet_seconds: float = 2.0
    restart_seconds: float = 0.0


DEFAULT_LIMITS = Limits()

UNWATCHED_BYTES_PER_SECOND = 1 << 20
"""
Rate of reading a paced line without viewers.

A process that prints without end takes half of a processor if it is read as fast as it prints.
"""


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
    ) -> None:
        self.clock = clock
        self.reports = ActReports(acted, clock.seconds)
        self._before_output = before_output
        self._is_silent = True  # the line has printed nothing
        self._restarts = restarts
        self.limits = limits
        self.journal = Journal() if journal is None else journal
        self.floor = Floor()
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
        self._viewers: list[Viewer] = []
        self._presence = Presence(clock, self.floor, self._viewers)
        self._line_paused = False
        self._unwatched = ReadRateLimit(clock, self._pace, self._pace, UNWATCHED_BYTES_PER_SECOND)
        self._line_writable = False
        self._breaking: IDelayedCall | None = None
        self._waiting: list[Deferred[Ending]] = []
        self._opening: Deferred[Any] | None = None
        self._opened: Deferred[None] = Deferred()
        self._left_meanwhile: list[str] | None = None  # a list while the console is suspended
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
    def viewers(self) -> tuple[Viewer, ...]:
        """The viewers, with those that are away, in the order in which they joined."""
        return tuple(self._viewers)

    @property
    def is_live(self) -> bool:
        """True while the line is open."""
        return self._line is not None

    @property
    def boot_offset(self) -> int:
        """Where the output of the present line begins, or of the next one if it has not been opened."""
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
        return missing_people(self._viewers)

    def missing_place(self, terms: Terms) -> str:
        """Return why a ConsolePolicy has no place for a session with these terms; otherwise empty."""
        return missing_place(self._viewers, terms)

    def viewer(self) -> Viewer:
        """Create the attachment for one more user; it joins when its stream is up."""
        return Viewer(self)

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
        self._left_meanwhile = []
        self._update_input()
        for viewer in list(self._viewers):
            viewer.suspend()
        self.interruption.suspend()
        self._presence.stop()
        self._lifecycle.let_go()

    def unsuspend(self, console: IConsole | None = None) -> None:
        """
        Go on after :meth:`suspend`; the line is opened by :meth:`open`.

        :param console: the line from now on, if it is another object.
        """
        left, self._left_meanwhile = self._left_meanwhile or [], None
        for joined_as in left:
            self.journal.left(joined_as)
        if console is not None:
            self._console = console
            if self.size is not None:
                console.window_changed(self.size)
        self._update_input()
        for viewer in list(self._viewers):
            viewer.unsuspend()
        self.interruption.unsuspend()
        self._attendance_changed()

    @property
    def is_suspended(self) -> bool:
        """True from :meth:`suspend` to :meth:`unsuspend`."""
        return self._left_meanwhile is not None

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
            self._update_input()
            self._console.send_break(signal.milliseconds)
        return True

    def _break_over(self) -> None:
        self._breaking = None
        self._update_input()

    # Called by viewers.

    def _joined(self, viewer: Viewer, position: Position | None = None) -> None:
        """
        Add a viewer.

        :param position: where the output continues, if the session was in an earlier process.
        """
        if why := self.missing_place(viewer.terms):
            viewer.output.start(self.journal.end)
            viewer.finish(Ending(TOO_MANY_VIEWERS, why))
            return
        if position is None:
            viewer.output.start(self.scrollback_start)
        else:
            viewer.output.resume(position, self.scrollback_start)
            if self.is_new_boot and position.offset <= self.boot_offset:
                viewer.input.is_interrupted = not self.is_live
                viewer.input.restarted(self.boot_offset)
                viewer.input.catch_up(position)
        self._viewers.append(viewer)
        self.journal.joined(viewer.joined_as, viewer.user, viewer.role.name.lower())
        self._update_input_of(viewer)
        viewer.output.pump()
        if self.outage:
            viewer.tell(notice(self.outage))
        if self.ending is not None:
            viewer.finish(self.ending)
        else:
            if position is None:
                self.floor.join(viewer, force=viewer.forces)
            else:
                self.floor.rejoin(viewer)
            self._attendance_changed()
        self._pace()

    def restore_size(self, size: TerminalSize) -> None:
        """Take note of the size that the line has had since before this process."""
        self.size = size
        self._console.window_changed(size)

    def restore(self, state: ViewerState) -> Viewer | None:
        """
        Add a viewer that goes on from an earlier process, and waits for its stream.

        :return: ``None`` if the console has ended, or has another journal.
        """
        if self.ending is not None or self.journal.epoch != state.epoch:
            return None
        viewer = self.viewer()
        viewer.restore(state)
        if state.waits_after is not None:
            self.interruption.restore(viewer, state.waits_after)
        self._viewers.append(viewer)
        self.floor.restore(viewer)
        viewer.expect()
        return viewer

    def _went_away(self, viewer: Viewer) -> None:
        self.floor.follow_presence()
        self._attendance_changed()
        self._pace()

    def _returned(self, viewer: Viewer) -> None:
        self.floor.follow_presence()
        self._attendance_changed()
        self._update_input_of(viewer)
        viewer.output.pump()
        self._pace()

    def _left(self, viewer: Viewer) -> None:
        if viewer in self._viewers:
            self._viewers.remove(viewer)
            if self._left_meanwhile is None:
                self.journal.left(viewer.joined_as)
            else:
                self._left_meanwhile.append(viewer.joined_as)
        if self.ending is None:
            self.floor.leave(viewer)
            self._attendance_changed()
        self._pace()

    def _attendance_changed(self) -> None:
        """Follow a change of the viewers, their roles or their terms: tell the writers about input."""
        if self.ending is not None:
            return
        if not self.is_suspended:
            self._presence.changed()
        missing = self.missing_people
        changed = [
            each.input.people_changed(missing if each.role is Role.WRITER else "")
            for each in list(self._viewers)
            if not each.is_away
        ]
        if any(changed):
            self._update_input()

    def _role_changed(self, viewer: Viewer) -> None:
        if viewer in self._viewers and not self.is_suspended:
            self.journal.role_changed(viewer.joined_as, viewer.role.name.lower())

    def typed(self, data: bytes) -> None:
        """Send input to the line; discard it if there is no line."""
        if self._line is not None:
            self._line.transport.write(data)

    # Called by the line.

    def _printed(self, data: bytes) -> None:
        if self._is_silent:
            self._is_silent = False
            if self._before_output is not None:
                self._before_output()
        self.journal.append(data)
        self.last_output_at = self.clock.seconds()
        newest_to_skip = self.journal.end - self.limits.lag_bytes
        for viewer in list(self._viewers):
            output = viewer.output
            output.pump()
            if output.offset < newest_to_skip:
                output.fell_behind()
        if self._console.paced and not self._viewers:
            self._unwatched.charge(len(data))
        self._trim()
        self._pace()

    def _noticed(self, text: bytes) -> None:
        if self.outage:
            self.journal.missed()
        for viewer in list(self._viewers):
            viewer.tell(text)

    def _line_lost(self, number: int, ending: Ending, has_exited: bool) -> None:
        if number != self._line_number:
            return  # this console has closed it
        self._line = None
        if self._restarts(ending, has_exited):
            self.interrupt(ending)
        else:
            self._lifecycle.over(ending)

    def _set_line_writable(self, writable: bool) -> None:
        self._line_writable = writable
        self._update_input()

    @property
    def _input_flowing(self) -> bool:
        return self._line_writable and self._breaking is None

    def _update_input(self) -> None:
        for viewer in list(self._viewers):
            self._update_input_of(viewer)

    def _update_input_of(self, viewer: Viewer) -> None:
        if not self.is_suspended and (self._input_flowing or viewer.input.is_discarded):
            viewer.resume_input()
        else:
            viewer.pause_input()

    def _trim(self) -> None:
        """
        Discard output that no viewer needs, neither a new one nor the slowest one.

        The scrollback's length before the slowest one may be lost together with a stream.
        """
        end = self.journal.end
        slowest = min((viewer.output.offset for viewer in self._viewers), default=end)
        oldest = max(slowest - self.limits.scrollback_bytes, end - self.limits.lag_bytes)
        self.journal.discard_before(oldest, slowest)

    def _pace(self) -> None:
        """Pause or resume a paced line: by the lag of its fastest viewer, or by the rate without one."""
        if not self._console.paced or self._line is None:
            return
        wait = self._fastest_is_behind() if self._viewers else self._unwatched.is_paused
        if wait and not self._line_paused:
            self._line_paused = True
            self._line.transport.pauseProducing()
        elif self._line_paused and not wait:
            self._line_paused = False
            self._line.transport.resumeProducing()

    def _fastest_is_behind(self) -> bool:
        """Return whether even the fastest viewer is too far behind, or has not caught up again."""
        # A viewer that has just skipped is at the end without having read anything.
        reading = [each for each in self._viewers if not each.output.skipped] or self._viewers
        behind = self.journal.end - max(each.output.offset for each in reading)
        if self._line_paused:
            return behind > self.limits.pace_bytes // 2
        return behind >= self.limits.pace_bytes

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
        unsent, self.unsent = self.unsent, b""
        if unsent:
            line.transport.write(unsent)
        line.transport.registerProducer(line, True)
        self.interruption.end()
        self._set_line_writable(True)
        self._pace()

    def _wait(self, ending: Ending) -> None:
        self.unsent = b""
        self.interruption.begin(ending)
        self._update_input()  # the line may have held back what is to be discarded
        self._drop_line(ending)

    def _let_go(self) -> None:
        line, self._line = self._line, None
        assert line is not None
        self._forget_line()
        line.let_go()

    def _forget_line(self) -> None:
        self._line_writable = self._line_paused = False
        self._unwatched.stop()
        if self._breaking is not None:
            self._breaking.cancel()
            self._breaking = None

    def _finish(self, ending: Ending) -> None:
        self.ending = ending
        self.interruption.stop()
        self._presence.stop()
        for viewer in list(self._viewers):
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
