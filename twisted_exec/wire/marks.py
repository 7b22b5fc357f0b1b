"""
Marks and reports on channel 4 of a console, sans I/O.

*Marks* are JSON objects beside the output, towards the client; a page in a browser sends *reports*.
See docs/reference/resume.rst.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeGuard

from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError
from twisted_exec.wire.keys import EPOCH
from twisted_exec.wire.notices import encode_notice, printable_line
from twisted_exec.wire.resize import TerminalSize
from twisted_exec.wire.resume import Position, Resumable
from twisted_exec.wire.session_terms import RECORDED_INPUT

LONGEST_MARK_BYTES = 8 << 10
MOST_RECORDINGS = 8
"""The most recordings of one console in a mark."""
_LONGEST_USER = 64
_LONGEST_REPORT = 64


@dataclass(frozen=True)
class At:
    """
    The next byte of output has this position.

    :param exact: false if an unknown amount of output is missing before it.
    :param end: the offset at which the output ends at present; ``None`` if unknown.
    """

    position: Position
    exact: bool = True
    end: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Ack:
    """
    Input is settled: it reached the line, or was discarded.

    :param count: pieces since counting began; ``None`` if unknown.
    """

    count: int | None


class NoticeKind(Enum):
    """The subject of a notice, for clients that act on it."""

    MESSAGE = "message"
    """Anything else."""
    ROLE = "role"
    """Roles: who may type."""
    DISCARDED = "discarded"
    """Input was discarded."""
    INTERRUPTED = "interrupted"
    """The machine has ended; the session waits for it to start again."""
    RESTARTED = "restarted"
    """The machine has started again."""
    BANNER = "banner"
    """The machine's banner."""
    SAID = "said"
    """A message of another user of the console."""
    RECEIPT = "receipt"
    """The answer to a message of this session: who gets it, or why nobody does."""


class NoticeRole(Enum):
    """The role of a session."""

    WRITER = "writer"
    OBSERVER = "observer"
    DENIED = "denied"
    """An observer whose user has no right to type."""


_NOTICE_KINDS = {each.value: each for each in NoticeKind}
_NOTICE_ROLES = {each.value: each for each in NoticeRole}
_KEY_OF_FREE_CONSOLE = "(~f to type)"
OPTION = "(--force takes over)"
"""End of a notice for users who do not have the keys of ``kubectl console``."""
TYPE = "(type to take over)"
"""End of a notice about the writer, for an observer to whom the writer yields, whatever the client."""


@dataclass(frozen=True)
class Notice:
    """
    A message for the user.

    :param role: the role of the session from now on.
    :param writer: the user who has the floor, to an observer.
    :param why: why input was discarded, or the machine has ended.
    :param hint: the end of the text, if that says how to take over.
    :param keys: how many keys of a session that goes on were discarded; 0 if the notice does not count them.
    """

    text: str
    kind: NoticeKind = NoticeKind.MESSAGE
    role: NoticeRole | None = None
    writer: str = ""
    why: str = ""
    hint: str = ""
    keys: int = 0

    def __post_init__(self) -> None:
        for name in ("text", "writer", "why", "hint"):
            object.__setattr__(self, name, printable_line(getattr(self, name)))

    @property
    def for_terminal(self) -> str:
        """The text for a user with keys; a console without a writer needs no takeover."""
        is_free = self.role is NoticeRole.OBSERVER and not self.writer
        return self.hinted(_KEY_OF_FREE_CONSOLE) if is_free else self.text

    @property
    def for_script(self) -> str:
        """The text for a script, a pipe or stock kubectl, which have options and no keys."""
        return self.hinted(OPTION)

    def hinted(self, hint: str) -> str:
        """Return the text with another hint, if it has one."""
        if self.hint in ("", TYPE) or not self.text.endswith(self.hint):  # a long text has been cut
            return self.text
        return self.text.removesuffix(self.hint) + hint

    @property
    def output(self) -> bytes:
        """The message in the output of a session without marks, such as that of stock kubectl."""
        return encode_notice(self.for_script)

    @property
    def members(self) -> dict[str, str | int]:
        """The members of the mark's JSON object; a long text is cut."""
        # One character takes up to 12 bytes in the JSON of a mark: an escaped pair of surrogates.
        members: dict[str, str | int] = {
            "Notice": self.text[: LONGEST_MARK_BYTES // 16],
            "Kind": self.kind.value,
            "Role": "" if self.role is None else self.role.value,
            "Writer": self.writer[:_LONGEST_USER],
            "Why": self.why,
            "Hint": self.hint,
            "Keys": self.keys,
        }
        return {name: each for name, each in members.items() if each or name == "Notice"}


def not_sent(why: str, role: NoticeRole | None = None) -> Notice:
    """Return the notice to a user whose input is discarded."""
    return Notice(f"what you type is not sent: {why}", NoticeKind.DISCARDED, role, why=why)


def parse_notice(members: Mapping[str, object]) -> Notice | None:
    """Read the mark from a JSON object; ``None`` if it is another mark."""
    texts = {name: each for name, each in members.items() if isinstance(each, str)}
    if "Notice" not in texts:
        return None
    keys = members.get("Keys")
    return Notice(
        texts["Notice"],
        _NOTICE_KINDS.get(texts.get("Kind", ""), NoticeKind.MESSAGE),
        _NOTICE_ROLES.get(texts.get("Role", "")),
        writer=texts.get("Writer", ""),
        why=texts.get("Why", ""),
        hint=texts.get("Hint", ""),
        keys=keys if _is_count(keys) else 0,
    )


@dataclass(frozen=True)
class OpenRecording:
    """
    A recording of the console that goes on.

    :param input: ``none``, ``masked`` or ``all``.
    :param user: for whom it was created; may be empty.
    :param policies: the ConsolePolicies that demand it, as ``NAMESPACE/NAME``.
    """

    input: str
    user: str = ""
    policies: tuple[str, ...] = ()

    @property
    def members(self) -> dict[str, object]:
        """The members of the mark's JSON object; a long name is cut."""
        members: dict[str, object] = {"Input": self.input, "User": self.user[:_LONGEST_USER]}
        return members | ({"Policies": self.policies} if self.policies else {})


@dataclass(frozen=True)
class Attendance:
    """
    The sessions at the console.

    :param viewers: their number, with those whose connections are lost.
    :param writer: the user who has the floor; may be empty.
    :param seconds: how long this user has had it.
    :param recordings: those that go on, :data:`MOST_RECORDINGS` at most; ``None`` if unknown.
    :param has_break: false if the console has no BREAK.
    :param withheld: why the machine gets no input at present; empty if it does.
    :param lost: the number of those whose connections are lost; 0 also if the runtime is of an
        earlier release.
    :param message_characters: the longest message that the console passes on to the other users; 0
        for none.
    :param size: of the terminal for which the machine's programs draw, the writer's; ``None`` if
        unknown.
    """

    viewers: int
    writer: str = ""
    seconds: int = 0
    recordings: tuple[OpenRecording, ...] | None = None
    has_break: bool = True
    withheld: str = ""
    lost: int = 0
    message_characters: int = 0
    size: TerminalSize | None = None

    @property
    def counted(self) -> str:
        """The numbers for people: ``3`` or ``2, 1 lost``."""
        present = max(0, self.viewers - self.lost)
        return f"{present}, {self.lost} lost" if self.lost else str(present)


@dataclass(frozen=True)
class EchoTime:
    """The time from input of this session to the machine's next output."""

    microseconds: int


@dataclass(frozen=True)
class Question:
    """A ping for a program: browsers hide the pings of WebSockets from pages."""

    number: int


@dataclass(frozen=True)
class Answer:
    """The answer to a :class:`Question`."""

    number: int


@dataclass(frozen=True)
class Taken:
    """A page's report: it has shown so many bytes of output of this connection."""

    count: int


Mark = At | Ack | Notice | Attendance | EchoTime
Report = Taken | Question | Answer
_REPORTS: dict[str, type[Report]] = {"Taken": Taken, "Ping": Question, "Pong": Answer}


def encode_mark(mark: Mark | Question | Answer) -> bytes:
    """Encode a mark for channel 4."""
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
        if mark.lost:
            document["Lost"] = mark.lost
        if mark.message_characters:
            document["Message"] = mark.message_characters
        if mark.size is not None:
            document |= {"Width": mark.size.columns, "Height": mark.size.rows}
        if mark.recordings is not None:
            recordings = mark.recordings[:MOST_RECORDINGS]
            document["Recordings"] = [each.members for each in recordings]
            if len(_line(document)) > LONGEST_MARK_BYTES:
                without = (replace(each, policies=()) for each in recordings)
                document["Recordings"] = [each.members for each in without]
        if not mark.has_break:
            document["Break"] = False
        if withheld := printable_line(mark.withheld)[: LONGEST_MARK_BYTES // 16]:
            document["Withheld"] = withheld
            if len(_line(document)) > LONGEST_MARK_BYTES:
                document["Withheld"] = "a ConsolePolicy"
    elif isinstance(mark, EchoTime):
        document = {"Echo": mark.microseconds}
    elif isinstance(mark, Question):
        document = {"Ping": mark.number}
    elif isinstance(mark, Answer):
        document = {"Pong": mark.number}
    else:
        document = {**mark.members}
        if len(_line(document)) > LONGEST_MARK_BYTES:
            document.pop("Why", None)  # it is in the text
    return _line(document)


def encode_session(resumable: Resumable, session: str) -> bytes:
    """Encode the mark that tells a page what it cannot read in the headers of the 101."""
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
    Read a message of a page on channel 4; ``None`` if it is no report.

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
    """Decodes marks; unknown ones are left out."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> list[Mark]:
        """
        Take bytes of channel 4, split anywhere; return the complete marks.

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
    return parse_notice(document)


def _attendance(document: dict[str, object]) -> Attendance:
    viewers, seconds = document["Viewers"], document.get("Seconds", 0)
    writer, lost = document.get("Writer", ""), document.get("Lost", 0)
    if not (
        isinstance(viewers, int)
        and isinstance(seconds, int)
        and isinstance(writer, str)
        and isinstance(lost, int)
        and _is_count(viewers)
        and _is_count(lost)
        and _is_count(seconds)
    ):
        raise RemoteProtocolError("a mark Viewers has no valid number or name")
    recordings = _recordings(document.get("Recordings"))
    has_break, withheld = document.get("Break") is not False, document.get("Withheld", "")
    if not isinstance(withheld, str):
        raise RemoteProtocolError("a mark Viewers has no valid reason why input is withheld")
    withheld = printable_line(withheld)
    longest = document.get("Message", 0)
    return Attendance(
        viewers,
        writer,
        seconds,
        recordings,
        has_break,
        withheld,
        lost,
        longest if isinstance(longest, int) and _is_count(longest) else 0,
        _size(document.get("Width"), document.get("Height")),
    )


def _size(columns: object, rows: object) -> TerminalSize | None:
    if not (_is_count(columns) and _is_count(rows)):
        return None
    assert isinstance(columns, int) and isinstance(rows, int)
    try:
        return TerminalSize(columns, rows)
    except LocalProtocolError:
        return None


def _recordings(value: object) -> tuple[OpenRecording, ...] | None:
    if not isinstance(value, list):
        return None
    members = [
        (each.get("Input"), each.get("User"), each.get("Policies"))
        for each in value
        if isinstance(each, dict)
    ]
    return tuple(
        OpenRecording(input, user, _names(policies))
        for input, user, policies in members
        if input in RECORDED_INPUT and isinstance(user, str)
    )


def _names(value: object) -> tuple[str, ...]:
    names = value if isinstance(value, list) else []
    return tuple(each for each in names if isinstance(each, str) and each)


def _is_count(value: object) -> TypeGuard[int]:
    # Not isinstance: ``true`` is an int in Python.
    return type(value) is int and 0 <= value < 1 << 63
