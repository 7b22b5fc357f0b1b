"""
The time between two lines of a console: its machine has ended, and starts again.

The sessions of users at terminals wait for the next line.  What they type meanwhile was meant for the
machine that has ended, so it is discarded: a shell that comes up must not execute it.  All other
sessions, and those that wait too long, end as the last line did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.interfaces import IDelayedCall

from twisted_exec.streaming.interfaces import Ending

from .floor import WAITS, notice

if TYPE_CHECKING:
    from .shared_console import SharedConsole
    from .viewer import Viewer


class Interruption:
    """
    The sessions of one console that wait for its next line.

    The time counts from the end of the last line that was open.
    """

    def __init__(self, console: SharedConsole) -> None:
        self._console = console
        self._ending: Ending | None = None
        self._timer: IDelayedCall | None = None

    @property
    def why(self) -> str:
        """The reason for the end of the last line."""
        return "" if self._ending is None else self._ending.message

    def begin(self, ending: Ending) -> None:
        """
        Let the sessions wait.

        :param ending: of the line.  It replaces that of an interruption that has begun already: a
            machine that restarts may be switched off.
        """
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
        """Let a session wait, too, whose user has seen the line that has ended."""
        seconds = self._console.limits.restart_seconds
        text = f"{self.why}; {WAITS} {seconds:g} s for the machine to start again"
        viewer.input.is_interrupted = True
        viewer.tell(notice(text))

    def end(self) -> None:
        """The next line is open."""
        self.stop()
        for viewer in self._waiting():
            viewer.input.restarted(self._console.boot_offset)

    def stop(self) -> None:
        """Forget the ending and the time."""
        self.suspend()
        self._ending = None

    def suspend(self) -> None:
        """Stop the clock."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def unsuspend(self) -> None:
        """Go on with the whole time."""
        if self._ending is not None and self._timer is None:
            seconds = self._console.limits.restart_seconds
            self._timer = self._console.clock.callLater(seconds, self._expire)

    @property
    def ending(self) -> Ending | None:
        """The ending of sessions that wait too long; ``None`` while the line is open."""
        return self._ending

    def restore(self, viewer: Viewer, ending: Ending) -> None:
        """Let a session wait on that has waited in an earlier process."""
        if self._console.is_live:
            viewer.input.restarted(self._console.boot_offset)
        else:
            viewer.input.is_interrupted, self._ending = True, ending
            self.unsuspend()

    def _waiting(self) -> list[Viewer]:
        return [each for each in self._console.viewers if each.input.is_interrupted]

    def _expire(self) -> None:
        """End the sessions; those that came meanwhile wait on, as long as the machine starts."""
        assert self._ending is not None
        self._timer = None
        waiting = self._waiting()
        self._console.floor.dismiss(waiting)
        for viewer in waiting:
            viewer.finish(self._ending)
