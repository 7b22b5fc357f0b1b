"""
The status of a session, for the escape ``~s``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twisted_exec.api.names import display_name
from twisted_exec.cli.console.outage import duration
from twisted_exec.console.floor import RoleNotices
from twisted_exec.kube.consoles.recording_news import recorded_for
from twisted_exec.streaming.tcp_info import round_trip_seconds

if TYPE_CHECKING:
    from twisted_exec.cli.console.interfaces import Stream
    from twisted_exec.wire.marks import Attendance
    from twisted_exec.wire.resume import Position, RoundTrip


def status(
    stream: Stream | None,
    *,
    seconds: float | None,
    outage: str,
    notices: RoleNotices,
    read_only: bool,
) -> list[str]:
    """
    Return the status, one line per fact.

    :param seconds: since the session was connected first; ``None`` if it was not yet.
    :param outage: a line about the present loss of the connection; empty if there is none.
    """
    if stream is None or seconds is None:
        return ["not connected yet"]
    attendance = getattr(stream, "attendance", None)
    facts = {
        "session": getattr(stream, "session", ""),
        "role": _role(notices, read_only),
        "writer": _writer(attendance),
        "viewers": str(attendance.viewers) if attendance is not None else "",
        "round trip": _round_trip(stream),
        "TCP": _tcp(getattr(stream, "transport", None)),
        "hops": _hops(getattr(stream, "round_trips", ())),
        "echo": _echo(getattr(stream, "echo_seconds", None)),
        "output": _offset(getattr(stream, "position", None)),
        "recorded": _recorded(attendance, getattr(stream, "recorded", "")),
        "resumable": "no: the session ends if its connection is lost",
    }
    if getattr(stream, "is_resumable", False):
        facts["resumable"] = _resumable(getattr(stream, "resumes", 0))
    lines = [f"  {name:<11} {fact}" for name, fact in facts.items() if fact]
    return [outage or f"connected for {duration(seconds)}", *lines]


def _role(notices: RoleNotices, read_only: bool) -> str:
    if not (read_only or notices.is_observer):
        return "writer"
    if notices.writer == "nobody":
        return "observer; this console has no writer"
    return f"observer; the writer is {notices.writer}" if notices.writer else "observer"


def _writer(attendance: Attendance | None) -> str:
    if attendance is None or not attendance.writer:
        return ""
    return f"{display_name(attendance.writer)}, for {duration(attendance.seconds)}"


def _round_trip(stream: Stream) -> str:
    """Return the time of the last ping, unless a newer one shows that it is out of date."""
    if overdue := getattr(stream, "overdue_seconds", 0.0):
        return f"unknown; no answer for {duration(overdue)}"
    seconds = getattr(stream, "round_trip_seconds", None)
    return "unknown" if seconds is None else _milliseconds(seconds)


def _tcp(transport: Any) -> str:
    seconds = round_trip_seconds(transport)
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
    """:param recorded: the input that this session wants recorded, which servers of any release say."""
    if attendance is None or attendance.recordings is None:
        return f"yes; input: {recorded}" if recorded else ""
    recordings = attendance.recordings
    return f"yes, for {recorded_for(recordings)}" if recordings else "no"


def _resumable(resumes: int) -> str:
    if not resumes:
        return "yes"
    return f"yes; resumed {resumes} time{'s' if resumes > 1 else ''}"
