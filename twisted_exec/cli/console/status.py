"""
A session's status, for ``~s``, and losses of its connection, as its user sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.names import display_name
from twisted_exec.console.floor import RoleNotices
from twisted_exec.kube.console import recorded_for
from twisted_exec.streaming.flow import shortest_round_trip_seconds
from twisted_exec.streaming.remotecommand.client import LOST

if TYPE_CHECKING:
    from twisted_exec.streaming.remotecommand.stream import ConsoleStream
    from twisted_exec.wire.resume import Attendance, Position, RoundTrip


def status(
    stream: ConsoleStream | None,
    *,
    seconds: float | None,
    outage: str,
    problem: str,
    notices: RoleNotices,
    read_only: bool,
    names: str = "",
    messages: Sequence[str] = (),
) -> list[str]:
    """
    Return the status, one line per fact.

    :param seconds: since the session was connected first, if it was.
    :param outage: a line about the present loss of the connection, or the wait for a server that
        was stopped, if any.
    :param problem: why it is not connected yet, if known.
    :param names: of the viewers, or why they are missing; may be empty.
    :param messages: the last ones of other users, the newest last.
    """
    if stream is None or seconds is None:
        return [f"{outage or 'not connected yet'}{problem and f': {problem}'}"]
    attendance = stream.attendance
    facts = {
        "session": stream.session,
        "role": "observer" if read_only or notices.is_observer else "writer",
        "writer": _writer(notices, attendance),
        "withheld": attendance.withheld if attendance is not None else "",
        "viewers": _viewers(attendance, names),
        "round trip": _round_trip(stream),
        "TCP": _tcp(stream.transport),
        "hops": _hops(stream.round_trips),
        "echo": _echo(stream.echo_seconds),
        "output": _offset(stream.position),
        "recorded": _recorded(attendance, stream.recorded),
        "resumable": "no: the session ends if its connection is lost",
    }
    if stream.is_resumable:
        facts["resumable"] = _resumable(stream.resumes)
    lines = [f"  {name:<11} {fact}" for name, fact in facts.items() if fact]
    lines += [f"  {each}" for each in messages]
    return [outage or f"connected for {duration(seconds)}", *lines]


def _viewers(attendance: Attendance | None, names: str) -> str:
    if attendance is None:
        return ""
    return f"{attendance.counted}: {names}" if names else attendance.counted


def _writer(notices: RoleNotices, attendance: Attendance | None) -> str:
    name = notices.writer
    if attendance is None or not attendance.writer or display_name(attendance.writer) != name:
        return name
    # The server's clock counts whole seconds.
    return f"{name}, for {duration(attendance.seconds).replace('.0', '')}"


def _round_trip(stream: ConsoleStream) -> str:
    """Return the time of the last ping, unless a newer one shows that it is out of date."""
    if overdue := stream.overdue_seconds:
        return f"unknown; no answer for {duration(overdue)}"
    seconds = stream.round_trip_seconds
    return "unknown" if seconds is None else _milliseconds(seconds)


def _tcp(transport: Any) -> str:
    seconds = shortest_round_trip_seconds(transport)
    if seconds is None:
        return ""
    peer = transport.getPeer()
    return f"{_milliseconds(seconds)} to {peer.host}"


def _hops(round_trips: Sequence[RoundTrip]) -> str:
    if not round_trips:
        return ""
    hops = ", ".join(f"{each.hop} {_milliseconds(each.microseconds / 1e6)}" for each in round_trips)
    return f"{hops} (TCP to the next hop, at the start)"


def _echo(seconds: float | None) -> str:
    return "" if seconds is None else f"{_milliseconds(seconds)} from the machine"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def _offset(position: Position | None) -> str:
    return "" if position is None else f"at offset {position.offset}"


def _recorded(attendance: Attendance | None, recorded: str) -> str:
    if attendance is None or attendance.recordings is None:
        return f"yes; input: {recorded}" if recorded else ""
    recordings = attendance.recordings
    return f"yes, for {recorded_for(recordings)}" if recordings else "no"


def _resumable(resumes: int) -> str:
    if not resumes:
        return "yes"
    return f"yes; resumed {resumes} time{'s' if resumes > 1 else ''}"


SILENT_SECONDS = 0.5
"""A loss that ends sooner is not worth a line."""


class Outage:
    """
    Tells the user about the loss, unless it ends soon.

    :param tell: prints the first lines.
    :param count: writes over the last of them with the seconds.
    :param how_to_leave: such as ``~. leaves``; may be empty.
    """

    def __init__(
        self,
        clock: IReactorTime,
        reason: str,
        tell: Callable[[str], None],
        count: Callable[[str], None],
        how_to_leave: str,
    ) -> None:
        self.was_told = False
        self._count = count
        self._clock, self._reason, self._tell = clock, reason, tell
        self._how_to_leave = how_to_leave
        self._begun = clock.seconds()
        self._timer = clock.callLater(SILENT_SECONDS, self._begin_line)
        self._stop_watching: Callable[[], None] = lambda: None

    def watch(
        self,
        watch_network: Callable[[Callable[[], None]], Callable[[], None]],
        changed: Callable[[], None],
    ) -> None:
        self._stop_watching = watch_network(changed)

    def status(self) -> str:
        seconds = self._clock.seconds() - self._begun
        why = f" ({self._reason})" if self._reason != LOST else ""
        return f"connection lost {duration(seconds)} ago{why}; reconnecting"

    def end_line(self, seconds: float, missed_bytes: int) -> str:
        """
        Return the line for the end of the outage.

        :param missed_bytes: output of the machine meanwhile, which follows.
        """
        line = f"reconnected after {duration(seconds)}"
        if not missed_bytes:
            return line
        if missed_bytes == 1:
            return f"{line}; 1 byte of output follows"
        return f"{line}; {missed_bytes} bytes of output follow"

    def stop(self) -> None:
        if self._timer.active():
            self._timer.cancel()
        stop, self._stop_watching = self._stop_watching, lambda: None
        stop()

    def _begin_line(self) -> None:
        self.was_told = True
        leaves = f"; {self._how_to_leave}" if self._how_to_leave else ""
        self._tell(f"connection lost{leaves}\nreconnecting")
        self._timer = self._clock.callLater(1, self._go_on)

    def _go_on(self) -> None:
        self._count(f"reconnecting, {self._clock.seconds() - self._begun:.0f} s")
        self._timer = self._clock.callLater(1, self._go_on)


def duration(seconds: float) -> str:
    """Return a length of time for people: ``3.2 s``, ``2 min 5 s`` or ``1 h 12 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"
