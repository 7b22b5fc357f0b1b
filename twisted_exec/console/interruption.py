"""Sessions that wait for the next line of their console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.console.floor import Floor, Participant
from twisted_exec.console.notices import WAITS
from twisted_exec.console.shared_console_limits import ConsoleLimits
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.wire.marks import Notice, NoticeKind


class WaitingInput(Protocol):
    """The input of a session that may wait."""

    is_interrupted: bool

    def restarted(self, offset: int) -> None:
        """Take note that the next line is open; its output begins at an offset of the journal."""


class WaitingViewer(Participant, Protocol):
    """A session that may wait."""

    @property
    def input(self) -> WaitingInput: ...
    @property
    def is_ending(self) -> bool: ...
    @property
    def may_wait(self) -> bool: ...
    def finish(self, ending: Ending) -> None: ...
    def tell(self, notice: Notice) -> None: ...


class InterruptedConsole(Protocol):
    """What an interruption needs of its console."""

    clock: IReactorTime
    limits: ConsoleLimits

    @property
    def viewers(self) -> Sequence[WaitingViewer]: ...
    @property
    def floor(self) -> Floor: ...
    @property
    def boot_offset(self) -> int: ...


class Interruption:
    """
    The sessions of one console that wait for its next line.

    Input meanwhile was meant for the machine that has ended, so it is discarded: a shell that comes
    up must not execute it.
    """

    def __init__(self, console: InterruptedConsole) -> None:
        self._console = console
        self._ending: Ending | None = None
        self._timer: IDelayedCall | None = None

    @property
    def why(self) -> str:
        return "" if self._ending is None else self._ending.message

    def begin(self, ending: Ending) -> None:
        """Let the sessions wait; the newest ending of the line replaces an earlier one."""
        before, self._ending = self.why, ending
        if self._timer is None:
            seconds = self._console.limits.restart_seconds
            self._timer = self._console.clock.callLater(seconds, self._expire)
        for viewer in self._console.viewers:
            if viewer.is_ending:
                continue
            if not viewer.may_wait:
                viewer.finish(ending)
            elif not viewer.input.is_interrupted or self.why != before:
                self.join(viewer)

    def join(self, viewer: WaitingViewer) -> None:
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
        self._ending = None
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    @property
    def ending(self) -> Ending | None:
        return self._ending

    def _waiting(self) -> list[WaitingViewer]:
        return [each for each in self._console.viewers if each.input.is_interrupted]

    def _expire(self) -> None:
        assert self._ending is not None
        self._timer = None
        waiting = self._waiting()
        self._console.floor.dismiss(waiting)
        for viewer in waiting:
            viewer.finish(self._ending)
