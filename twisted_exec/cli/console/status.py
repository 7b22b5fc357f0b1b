"""A session's status, for ``~s``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twisted_exec.api.display import display_name
from twisted_exec.cli.messages import age
from twisted_exec.console.notices import RoleNotices
from twisted_exec.kube.recording_news import recorded_for
from twisted_exec.streaming.tcp_info import shortest_round_trip_seconds

if TYPE_CHECKING:
    from twisted_exec.streaming.remotecommand.stream import ConsoleStream
    from twisted_exec.wire.marks import Attendance
    from twisted_exec.wire.resume import Position, RoundTrip


def status(
    stream: ConsoleStream | None,
    *,
    seconds: float | None,
    outage: str,
    problem: str,
    notices: RoleNotices,
    read_only: bool,
    names: str = "",
    size: str = "",
    messages: Sequence[str] = (),
) -> list[str]:
    """
    Return the status, one line per fact.

    :param seconds: since the session was connected first, if it was.
    :param outage: a line about the present loss of the connection, if any.
    :param problem: why it is not connected yet, if known.
    :param names: of the viewers, or why they are missing; may be empty.
    :param size: how the user's window differs from that for which a program draws; may be empty.
    :param messages: the last ones of other users and about dropped keys, the newest last.
    """
    if stream is None or seconds is None:
        return [f"not connected yet{problem and f': {problem}'}"]
    attendance = stream.attendance
    facts = {
        "session": stream.session,
        "state": f"{notices.interruption}; not started again yet" if notices.is_off else "",
        "role": "observer" if read_only or notices.is_observer else "writer",
        "writer": _writer(notices, attendance),
        "withheld": attendance.withheld if attendance is not None else "",
        "viewers": _viewers(attendance, names),
        "size": size,
        "round trip": _round_trip(stream),
        "TCP": _tcp(stream.transport),
        "hops": _hops(stream.round_trips),
        "echo": _echo(stream.echo_seconds),
        "output": _offset(stream.position),
        "recorded": _recorded(attendance, stream.recorded_input),
        "resumable": "no: the session ends if its connection is lost",
    }
    if stream.is_resumable:
        facts["resumable"] = _resumable(stream.resumes)
    lines = [f"  {name:<11} {fact}" for name, fact in facts.items() if fact]
    lines += [f"  {each}" for each in messages]
    return [outage or f"connected for {age(seconds)}", *lines]


def _viewers(attendance: Attendance | None, names: str) -> str:
    if attendance is None:
        return ""
    return f"{attendance.counted}: {names}" if names else attendance.counted


def _writer(notices: RoleNotices, attendance: Attendance | None) -> str:
    name = notices.writer
    if attendance is None or not attendance.writer or display_name(attendance.writer) != name:
        return name
    return f"{name}, for {age(attendance.seconds)}"


def _round_trip(stream: ConsoleStream) -> str:
    """Return the time of the last ping, unless a newer one shows that it is out of date."""
    if overdue := stream.overdue_seconds:
        return f"unknown; no answer for {age(overdue)}"
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
