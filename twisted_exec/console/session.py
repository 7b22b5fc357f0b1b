"""
A line and its company.

A session opens its line once and keeps it while viewers come and go.  What the line prints goes
into one journal; each viewer reads from there at its own pace:

* A line that may be paused (a pty) waits when even the *fastest* viewer is half a
  mebibyte behind, so that somebody who is alone loses nothing.  With no viewers it
  runs freely.  A machine's serial line is never paused.
* A viewer that is more than a mebibyte behind is moved to the newest byte, and reads
  how many it missed.  It delays nobody else, and costs no memory of its own.

Input goes the other way: what those viewers type who drive (:mod:`.floor`) goes to the line.  When the
line takes no more, all viewers' input is paused; so it is before the line is open, and while it
sends BREAK.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from automat import TypeMachineBuilder
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import APIError
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    LINE_LOST,
    Break,
    Ending,
    IBreakable,
    IConsole,
    TerminalSize,
)

from .floor import Floor
from .journal import Journal
from .viewer import Viewer


@dataclass(frozen=True)
class Limits:
    """
    How far viewers may fall behind, and how long quiet is.

    :param scrollback_bytes: what a new viewer gets of the past.
    :param lag_bytes: a viewer farther behind is moved to the newest byte.
    :param pace_bytes: a paced line waits while its fastest viewer is so far behind.
    :param quiet_seconds: without output, until an attachment whose input ended is ended.
    """

    scrollback_bytes: int = 256 << 10
    lag_bytes: int = 1 << 20
    pace_bytes: int = 512 << 10
    quiet_seconds: float = 2.0


DEFAULT_LIMITS = Limits()


class _Lifecycle(Protocol):
    """What may happen to a session's line."""

    def open(self) -> None:
        """Connect it."""

    def opened(self, line: _Line) -> None:
        """It is connected."""

    def over(self, ending: Ending) -> None:
        """It ended, could not be opened, or its machine's time is over."""


@implementer(IPushProducer)
class _Line(TwistedProtocol):
    """The line itself; as a producer it is the viewers' input, for the line's transport."""

    transport: Any

    def __init__(self, core: Session) -> None:
        self._core = core

    def dataReceived(self, data: bytes) -> None:
        self._core._printed(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._core._line_lost(ending_of(reason))

    def pauseProducing(self) -> None:
        self._core._line_takes(False)

    def resumeProducing(self) -> None:
        self._core._line_takes(True)

    def stopProducing(self) -> None:
        """The line is going; ``connectionLost`` follows."""


class LineEnded(Exception):
    """A line's end that the console itself can explain, as its ``connectionLost`` reason."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.message or ending.reason)
        self.ending = ending


def ending_of(reason: Failure) -> Ending:
    """How a line ended, for its viewers."""
    error = reason.value
    if isinstance(error, LineEnded):
        return error.ending
    if isinstance(error, ProcessDone):
        return Ending(COMPLETED, "the process ended", exit_code=0)
    if isinstance(error, ProcessTerminated):
        signal = error.signal
        if signal is not None:
            # What a shell tells of a command that a signal ended.
            return Ending(COMPLETED, f"the process was ended by signal {signal}", 128 + signal)
        code = error.exitCode
        return Ending(COMPLETED, f"the process ended with exit code {code}", code)
    return Ending(LINE_LOST, f"the console line was lost: {reason.getErrorMessage()}")


class Session:
    """
    One line, opened once, and any number of viewers.

    :param console: provides :class:`~twisted_exec.streaming.interfaces.IConsole`.
    :param journal: goes on where an earlier session of the same machine ended.
    :param size: the line's first size, until a viewer has another.
    """

    def __init__(
        self,
        console: IConsole,
        clock: IReactorTime,
        *,
        journal: Journal | None = None,
        size: TerminalSize | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.clock = clock
        self.limits = limits
        self.journal = Journal() if journal is None else journal
        self.floor = Floor()
        self.last_output_at = clock.seconds()
        self.ending: Ending | None = None
        self.size = size
        self._console = console
        self._line: _Line | None = None
        self._viewers: list[Viewer] = []
        self._line_paused = False
        self._taking = False
        self._breaking: IDelayedCall | None = None
        self._waiting: list[Deferred[Ending]] = []
        self._opening: Deferred[Any] | None = None
        self._opened: Deferred[None] = Deferred()
        self._lifecycle = _build(self)
        if size is not None:
            console.window_changed(size)

    @property
    def viewers(self) -> tuple[Viewer, ...]:
        """Those attached now, in the order they came."""
        return tuple(self._viewers)

    def viewer(self) -> Viewer:
        """An attachment for one more user; it joins when its stream is up."""
        return Viewer(self)

    def open(self) -> Deferred[None]:
        """
        Open the line; call once.

        :return: fires when it is open; fails as the console's ``connect``
            does, after the viewers have been told, or with :class:`LineEnded`
            when the session is over already.
        """
        self._lifecycle.open()
        return self._opened

    def end(self, ending: Ending) -> None:
        """Tell every viewer why it is over, and close the line.  Repeated calls do nothing."""
        self._lifecycle.over(ending)

    def when_over(self) -> Deferred[Ending]:
        """Fires when the line has ended or the session was ended."""
        waiter: Deferred[Ending] = Deferred()
        if self.ending is not None:
            waiter.callback(self.ending)
        else:
            self._waiting.append(waiter)
        return waiter

    def window_changed(self, size: TerminalSize) -> None:
        """The latest size of who drives is the line's; the console remembers it until it opens."""
        self.size = size
        self._console.window_changed(size)

    def send_break(self, wanted: Break) -> bool:
        """
        Send BREAK; nobody's input goes on until it is over.

        One that is asked for while another lasts is the same.

        :return: whether this console can; what it cannot is nobody else's business.
        """
        if not IBreakable.providedBy(self._console):
            return False
        if self._line is not None and self._breaking is None:
            seconds = wanted.milliseconds / 1000
            self._breaking = self.clock.callLater(seconds, self._break_over)
            self._let_input()
            self._console.send_break(wanted.milliseconds)
        return True

    def _break_over(self) -> None:
        self._breaking = None
        self._let_input()

    # What viewers tell.

    def _joined(self, viewer: Viewer) -> None:
        viewer.offset = max(self.journal.start, self.journal.end - self.limits.scrollback_bytes)
        self._viewers.append(viewer)
        if not self._input_flowing:
            viewer.pause_input()
        viewer.pump()
        if self.ending is not None:
            viewer.finish(self.ending)
        else:
            self.floor.join(viewer, force=viewer.forces)
        self._pace()

    def _left(self, viewer: Viewer) -> None:
        if viewer in self._viewers:
            self._viewers.remove(viewer)
        if self.ending is None:
            self.floor.leave(viewer)
        self._pace()

    def _typed(self, data: bytes) -> None:
        if self._line is not None:
            self._line.transport.write(data)

    # What the line tells.

    def _printed(self, data: bytes) -> None:
        self.journal.append(data)
        self.last_output_at = self.clock.seconds()
        for viewer in list(self._viewers):
            viewer.pump()
            if self.journal.end - viewer.offset > self.limits.lag_bytes:
                viewer.skip_to(self.journal.end)
        self._trim()
        self._pace()

    def _line_lost(self, ending: Ending) -> None:
        self._line = None
        self._lifecycle.over(ending)

    def _line_takes(self, taking: bool) -> None:
        self._taking = taking
        self._let_input()

    @property
    def _input_flowing(self) -> bool:
        return self._taking and self._breaking is None

    def _let_input(self) -> None:
        for viewer in list(self._viewers):
            if self._input_flowing:
                viewer.resume_input()
            else:
                viewer.pause_input()

    def _trim(self) -> None:
        """Keep what a new viewer would get, and what the slowest one still needs."""
        needed = self.journal.end - self.limits.scrollback_bytes
        for viewer in self._viewers:
            needed = min(needed, viewer.offset)
        self.journal.keep_from(needed)

    def _pace(self) -> None:
        """Pause or resume a line that may be paused, after its fastest viewer."""
        if not self._console.paced or self._line is None:
            return
        # A viewer that just skipped seems to be at the end; it has not shown that it reads.
        reading = [one for one in self._viewers if not one.skipped] or self._viewers
        behind = min((self.journal.end - one.offset for one in reading), default=0)
        if not self._line_paused and behind >= self.limits.pace_bytes:
            self._line_paused = True
            self._line.transport.pauseProducing()
        elif self._line_paused and behind <= self.limits.pace_bytes // 2:
            self._line_paused = False
            self._line.transport.resumeProducing()

    # What the lifecycle does.

    def _connect(self) -> None:
        factory = Factory.forProtocol(lambda: _Line(self))
        factory.noisy = False
        self._opening = self._console.connect(factory)
        self._opening.addCallbacks(self._connected, self._not_connected)

    def _connected(self, line: _Line) -> None:
        self._opening = None
        self._lifecycle.opened(line)
        self._opened.callback(None)

    def _not_connected(self, failure: Failure) -> None:
        self._opening = None
        error = failure.value
        why = error.message if isinstance(error, APIError) else failure.getErrorMessage()
        self._lifecycle.over(Ending(LINE_LOST, f"the console cannot be opened: {why}"))
        self._opened.errback(failure)

    def _refuse(self) -> None:
        assert self.ending is not None
        if not self._opened.called:
            self._opened.errback(LineEnded(self.ending))

    def _go_live(self, line: _Line) -> None:
        self._line = line
        line.transport.registerProducer(line, True)
        self._line_takes(True)

    def _finish(self, ending: Ending) -> None:
        self.ending = ending
        line, self._line = self._line, None
        if self._breaking is not None:
            self._breaking.cancel()
            self._breaking = None
        for viewer in list(self._viewers):
            viewer.finish(ending)
        if line is not None:
            line.transport.unregisterProducer()
            line.transport.loseConnection()
        if self._opening is not None:
            self._opening.cancel()
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(ending)


def _build_machine() -> Any:
    """New, opening, live, over: read top to bottom."""
    builder = TypeMachineBuilder(_Lifecycle, Session)
    new, opening, live, over = (builder.state(name) for name in ("New", "Opening", "Live", "Over"))

    @new.upon(_Lifecycle.open).to(opening)
    def connect(_: _Lifecycle, core: Session) -> None:
        core._connect()

    @opening.upon(_Lifecycle.opened).to(live)
    def go_live(_: _Lifecycle, core: Session, line: _Line) -> None:
        core._go_live(line)

    @new.upon(_Lifecycle.over).to(over)
    @opening.upon(_Lifecycle.over).to(over)
    @live.upon(_Lifecycle.over).to(over)
    def finish(_: _Lifecycle, core: Session, ending: Ending) -> None:
        core._finish(ending)

    @over.upon(_Lifecycle.opened).loop()
    def too_late(_: _Lifecycle, core: Session, line: _Line) -> None:
        line.transport.loseConnection()

    @over.upon(_Lifecycle.open).loop()
    def refuse(_: _Lifecycle, core: Session) -> None:
        core._refuse()

    over.upon(_Lifecycle.over).loop().returns(None)
    return builder.build()


_build = _build_machine()
