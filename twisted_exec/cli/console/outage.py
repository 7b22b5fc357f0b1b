"""
One loss of a session's connection, as its user sees it.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from twisted_exec.streaming.remotecommand.client import LOST

SILENT_SECONDS = 0.5
"""A loss that ends sooner is not worth a line."""


class Outage:
    """
    Tells the user about the loss, unless it ends soon.

    :param reason: why the connection is lost.
    :param tell: prints a line.
    :param how_to_leave: such as ``~. leaves``; may be empty.
    :ivar was_told: the line about the loss was printed.
    """

    def __init__(
        self, clock: IReactorTime, reason: str, tell: Callable[[str], None], how_to_leave: str
    ) -> None:
        self.was_told = False
        self._clock, self._reason, self._tell = clock, reason, tell
        self._how_to_leave = how_to_leave
        self._begun = clock.seconds()
        self._timer = clock.callLater(SILENT_SECONDS, self._begin_line)
        self._stop_watching: Callable[[], None] = lambda: None

    def watch(
        self,
        watch_network: Callable[[Callable[[], None]], Callable[[], None]],
        changed: Callable[[], None] | None,
    ) -> None:
        """Call ``changed`` at each change of the network while the outage lasts."""
        if changed is not None:
            self._stop_watching = watch_network(changed)

    def status(self) -> str:
        """Return a line about the outage."""
        seconds = self._clock.seconds() - self._begun
        why = f" ({self._reason})" if self._reason != LOST else ""
        return f"connection lost {duration(seconds)} ago{why}; reconnecting"

    def end_line(self, seconds: float, missed_bytes: int) -> str:
        """
        Return the line for the end of the outage.

        :param seconds: length of the outage.
        :param missed_bytes: output of the machine meanwhile, which follows.
        """
        line = f"reconnected after {duration(seconds)}"
        if not missed_bytes:
            return line
        if missed_bytes == 1:
            return f"{line}; 1 byte of output follows"
        return f"{line}; {missed_bytes} bytes of output follow"

    def stop(self) -> None:
        """End the timer and the watch on the network."""
        if self._timer.active():
            self._timer.cancel()
        stop, self._stop_watching = self._stop_watching, lambda: None
        stop()

    def _begin_line(self) -> None:
        self.was_told = True
        hint = f" ({self._how_to_leave})" if self._how_to_leave else ""
        self._tell(f"connection lost; reconnecting{hint}")


def duration(seconds: float) -> str:
    """Return a length of time for people: ``3.2 s``, ``2 min 5 s`` or ``1 h 12 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"
