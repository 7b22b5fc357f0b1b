"""
Marks and reports of a session that can be resumed (:mod:`.resume`), sans I/O.

A *mark* is a JSON object and a newline on channel 4 towards the client, where clients of Kubernetes
expect nothing and are sent nothing.

======================== ==============================================================
mark                     meaning
======================== ==============================================================
``{"At":N,"Epoch":"E"}`` the next byte of output has the offset N in the journal E.  With
                         ``"Exact":false`` the amount of output missing before it is unknown.
                         ``"End":N`` is the offset at which the output ends at present
``{"Ack":N}``            N pieces of input are settled: they reached the line, or were
                         discarded and will not be sent.  ``null``: their number is
                         unknown; counting begins anew at 0
``{"Notice":TEXT}``      a message for the user
``{"Viewers":N}``        so many sessions are open at the console.  ``"Writer":NAME`` is the
                         user who has had the floor for ``"Seconds":N``; absent without one.
                         ``"Recordings":[{"Input":"masked","User":NAME}]`` are the recordings of the
                         console that go on; absent if that is unknown
``{"Echo":N}``           the machine took N microseconds from the last input of this session that was
                         measured to its next output
======================== ==============================================================

The first marks of a stream are Ack and At, before any output.  Another At follows each gap in the
output.  Input is counted by byte; a BREAK, a role request and the end of input count as one each.

A page in a browser sends *reports* on channel 4, each alone in a message.  Older servers ignore them::

    {"Taken":N}  {"Ping":N}  {"Pong":N}

It gets three further marks.  The hop that the browser is connected to sends the first one, since pages
cannot read the headers of a 101::

    {"Session":ID,"Key":KEY,"Seconds":N,"Hops":"apiserver/412,poollet/96"}  {"Ping":N}  {"Pong":N}
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.resume import EPOCH, Position, Resumable
from twisted_exec.wire.session_terms import RECORDED_INPUT

LONGEST_MARK_BYTES = 8 << 10

MOST_RECORDINGS = 8
"""Of one console, in a mark."""

_LONGEST_USER = 64


@dataclass(frozen=True)
class At:
    """
    The next byte of output has this position.

    :param exact: false if an unknown amount of output is missing before it: the machine may never
        have printed as much as the offsets differ.
    :param end: the offset at which the output ends at present; ``None`` if unknown.
    """

    position: Position
    exact: bool = True
    end: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Ack:
    """
    Input is settled.

    :param count: the number of pieces since the session began; ``None`` if unknown.
    """

    count: int | None


@dataclass(frozen=True)
class Notice:
    """A message for the user, without line breaks."""

    text: str


@dataclass(frozen=True)
class OpenRecording:
    """
    A recording of the console that goes on.

    :param input: ``none``, ``masked`` or ``all``.
    :param user: the user who asked for it, or whose session was the first that a policy wants recorded;
        empty if unknown.
    """

    input: str
    user: str = ""


@dataclass(frozen=True)
class Attendance:
    """
    The sessions at the console.

    :param viewers: their number, with those whose connections are lost.
    :param writer: the user who has the floor; empty if the console has no writer.
    :param seconds: how long this user has had it.
    :param recordings: those of the console that go on, :data:`MOST_RECORDINGS` at most; ``None`` if
        unknown.
    """

    viewers: int
    writer: str = ""
    seconds: int = 0
    recordings: tuple[OpenRecording, ...] | None = None


@dataclass(frozen=True)
class EchoTime:
    """The time from input of this session to the machine's next output."""

    microseconds: int


@dataclass(frozen=True)
class Question:
    """
    A ping that the program answers at the other end: browsers hide those of WebSockets from pages.

    It is a mark of the server, and a report of a page.
    """

    number: int


@dataclass(frozen=True)
class Answer:
    """The answer to a :class:`Question`, behind everything sent before it."""

    number: int


@dataclass(frozen=True)
class Taken:
    """A page's report: it has shown so many bytes of output of this connection."""

    count: int


Mark = At | Ack | Notice | Attendance | EchoTime
Report = Taken | Question | Answer

_REPORTS: dict[str, type[Report]] = {"Taken": Taken, "Ping": Question, "Pong": Answer}
_LONGEST_REPORT = 64


def encode_mark(mark: Mark | Question | Answer) -> bytes:
    """Encode a mark for channel 4; the text of a long notice is cut."""
    if isinstance(mark, At):
        at = mark.position
        document: dict[str, object] = {"At": at.offset, "Epoch": at.epoch}
        if not mark.exact:
            document["Exact"] = False
        if mark.end is not None:
            document["End"] = mark.end
    elif isinstance(mark, Ack):
        document = {"Ack": mark.count}
    elif isinstance(mark, Attendance):
        document = {"Viewers": mark.viewers}
        if mark.writer:
            document |= {"Writer": mark.writer, "Seconds": mark.seconds}
        if mark.recordings is not None:
            document["Recordings"] = [
                {"Input": each.input, "User": each.user[:_LONGEST_USER]}
                for each in mark.recordings[:MOST_RECORDINGS]
            ]
    elif isinstance(mark, EchoTime):
        document = {"Echo": mark.microseconds}
    elif isinstance(mark, Question):
        document = {"Ping": mark.number}
    elif isinstance(mark, Answer):
        document = {"Pong": mark.number}
    else:
        document = {"Notice": mark.text[: LONGEST_MARK_BYTES // 16]}
    return _line(document)


def encode_session(resumable: Resumable, session: str) -> bytes:
    """
    Encode the mark that tells a page what it cannot read in the headers of the 101.

    :param session: id of the connection's session.
    """
    document: dict[str, object] = {
        "Session": session,
        "Key": resumable.key,
        "Seconds": resumable.seconds,
    }
    if resumable.round_trips:
        document["Hops"] = resumable.hops
    return _line(document)


def _line(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


def parse_report(message: bytes) -> Report | None:
    """
    Read a message of a page on channel 4.

    :return: ``None`` if it is something else, such as a size of the terminal.
    :raises RemoteProtocolError: the number of a report is not valid.
    """
    if len(message) > _LONGEST_REPORT:
        return None
    try:
        document = json.loads(message)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or len(document) != 1:
        return None
    ((name, number),) = document.items()
    kind = _REPORTS.get(name)
    if kind is None:
        return None
    if not _is_count(number):
        raise RemoteProtocolError(f"a report {name} has no valid number")
    return kind(number)


class MarkDecoder:
    """Decodes marks; unknown ones are left out, so that later releases can add some."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> list[Mark]:
        """
        Take bytes of channel 4, split anywhere.

        :return: the complete marks.
        :raises RemoteProtocolError: a mark is too long or not valid.
        """
        *lines, self._pending = (self._pending + data).split(b"\n")
        if max(map(len, (*lines, self._pending))) > LONGEST_MARK_BYTES:
            raise RemoteProtocolError(f"a mark is longer than {LONGEST_MARK_BYTES} bytes")
        marks = (_mark(line) for line in lines if line.strip())
        return [mark for mark in marks if mark is not None]


def _mark(line: bytes) -> Mark | None:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        raise RemoteProtocolError("a mark is not JSON") from None
    if not isinstance(document, dict):
        raise RemoteProtocolError("a mark is not an object")
    if "At" in document:
        epoch = document.get("Epoch")
        if not (_is_count(document["At"]) and isinstance(epoch, str) and EPOCH.match(epoch)):
            raise RemoteProtocolError("a mark At has no valid position")
        exact, end = document.get("Exact") is not False, document.get("End")
        return At(Position(epoch, document["At"]), exact, end if _is_count(end) else None)
    if "Ack" in document:
        if document["Ack"] is not None and not _is_count(document["Ack"]):
            raise RemoteProtocolError("a mark Ack has no valid number")
        return Ack(document["Ack"])
    if "Viewers" in document:
        return _attendance(document)
    if "Echo" in document:
        if not _is_count(document["Echo"]):
            raise RemoteProtocolError("a mark Echo has no valid number")
        return EchoTime(document["Echo"])
    text = document.get("Notice")
    return Notice(text) if isinstance(text, str) else None


def _attendance(document: dict[str, object]) -> Attendance:
    viewers, seconds = document["Viewers"], document.get("Seconds", 0)
    writer = document.get("Writer", "")
    if not (
        isinstance(viewers, int)
        and isinstance(seconds, int)
        and isinstance(writer, str)
        and _is_count(viewers)
        and _is_count(seconds)
    ):
        raise RemoteProtocolError("a mark Viewers has no valid number or name")
    return Attendance(viewers, writer, seconds, _recordings(document.get("Recordings")))


def _recordings(value: object) -> tuple[OpenRecording, ...] | None:
    """Return the recordings in a mark; ``None`` if they are not valid, for they only inform."""
    if not isinstance(value, list):
        return None
    pairs = [(each.get("Input"), each.get("User")) for each in value if isinstance(each, dict)]
    return tuple(
        OpenRecording(input, user)
        for input, user in pairs
        if input in RECORDED_INPUT and isinstance(user, str)
    )


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63
