"""
The status of a session, for the escape ``~s``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted_exec.cli.console.outage import duration
from twisted_exec.console.floor import RoleNotices, display_name

if TYPE_CHECKING:
    from twisted_exec.cli.console.interfaces import Stream
    from twisted_exec.wire.resume import Attendance, Position


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
        "round trip": _milliseconds(getattr(stream, "round_trip_seconds", None)),
        "output": _offset(getattr(stream, "position", None)),
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


def _milliseconds(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds * 1000:.1f} ms"


def _offset(position: Position | None) -> str:
    return "" if position is None else f"at byte {position.offset}"


def _resumable(resumes: int) -> str:
    if not resumes:
        return "yes"
    return f"yes; resumed {resumes} time{'s' if resumes > 1 else ''}"
