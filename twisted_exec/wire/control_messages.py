"""
Control messages of a console session: terminal sizes, BREAK, roles, and how the session ended.

A session ends with one ``Status`` document on the error channel.  BREAK, roles and messages to
other users are our own: an extra member of an object in the stream of terminal sizes.

Sources: ``k8s.io/kubelet/pkg/cri/streaming/remotecommand`` (what servers write),
``k8s.io/client-go/tools/remotecommand/{v2,v4,resize}.go`` (what clients read).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from twisted_exec.wire.channel import V4, V4_BASE64, V5
from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError

# Reasons for the end of a session.  ``COMPLETED`` with no exit code or 0 is Success on the wire,
# with another exit code NonZeroExitCode.  Every other reason is a Failure that carries it in
# details.causes.
COMPLETED = "Completed"
MACHINE_DELETED = "MachineDeleted"
POOL_DELETED = "PoolDeleted"
POWERED_OFF = "PoweredOff"
LINE_LOST = "LineLost"
SHUTTING_DOWN = "ShuttingDown"
REVOKED = "AuthorizationWithdrawn"
SESSION_DELETED = "SessionDeleted"
IDLE = "Idle"
TIME_OVER = "TimeOver"
CONSOLE_IN_USE = "ConsoleInUse"
INPUT_DENIED = "InputDenied"
TOO_MANY_VIEWERS = "TooManyViewers"
RESUMED = "Resumed"
USER_LEFT = "UserLeft"
INTERNAL = "InternalError"

HOP_REASONS = frozenset(
    {
        MACHINE_DELETED,
        POOL_DELETED,
        POWERED_OFF,
        LINE_LOST,
        SHUTTING_DOWN,
        REVOKED,
        SESSION_DELETED,
        IDLE,
        TIME_OVER,
        INTERNAL,
    }
)
"""Reasons for which any hop may end a session."""

FAILURES = HOP_REASONS | {CONSOLE_IN_USE, INPUT_DENIED, TOO_MANY_VIEWERS, RESUMED}
"""Reasons that are read from the causes of a failed Status."""

STATUS_LIMIT_BYTES = 64 << 10
"""A larger Status is rejected unparsed."""
_MAX_CAUSES = 8

_WITH_STATUS = frozenset({V5, V4, V4_BASE64})
_NO_SPACE = re.compile(r"[^ \t\r\n]")
_JSON = json.JSONDecoder()
EXIT_REASON = "NonZeroExitCode"
"""Reason of a Status with a nonzero exit code, as in Kubernetes."""
_EXIT_CAUSE = "ExitCode"


@dataclass(frozen=True)
class TerminalSize:
    """A terminal's size in character cells, each 1 to 65535."""

    columns: int
    rows: int

    def __post_init__(self) -> None:
        if not (1 <= self.columns <= 0xFFFF and 1 <= self.rows <= 0xFFFF):
            raise LocalProtocolError(f"no terminal has {self.columns} by {self.rows} cells")


MAX_BREAK_MILLISECONDS = 5000


@dataclass(frozen=True)
class Break:
    """
    A user's request for a BREAK on the line.

    :param milliseconds: duration, 1 to 5000.
    """

    milliseconds: int = 250

    def __post_init__(self) -> None:
        if not 1 <= self.milliseconds <= MAX_BREAK_MILLISECONDS:
            raise LocalProtocolError(f"no BREAK lasts {self.milliseconds} ms")


class Role(Enum):
    """The role of one user at a console."""

    WRITER = "drive"
    """The user's input goes to the machine."""
    OBSERVER = "watch"
    """The user sees the output; input is discarded."""


MESSAGE_CHARACTERS = 200
"""The longest message: an object with it fits into the limit of :class:`SizeDecoder`."""


@dataclass(frozen=True)
class Message:
    """
    A user's message to the other users of a console.

    :param text: one line, 1 to 200 printable characters, as :func:`message_line` returns it.
    """

    text: str

    def __post_init__(self) -> None:
        if not self.text or self.text != message_line(self.text):
            raise LocalProtocolError("a message is one line of 1 to 200 printable characters")


def message_line(text: str) -> str:
    """Return the text of a message as it is sent; empty if nothing is left of it."""
    # Blanks are collapsed, because a line that wraps could look like another notice.
    return printable_line(" ".join(text.split()))[:MESSAGE_CHARACTERS].rstrip()


@dataclass(frozen=True)
class Ending:
    """
    Why a session ended, as its final Status reports it.

    :param exit_code: the exit code (0 to 255) of a process, else ``None``.
    :param reason: one of the reasons above, for programs.
    :param message: for people: what ended, and why.
    :param causes: further reasons for programs, such as the hop that failed
        (:class:`~twisted_exec.api.obstacles.Obstacle`); at most 8 are read.
    """

    reason: str
    message: str = ""
    exit_code: int | None = None
    causes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # client-go parses the code with 8 bits (v4.go).
        if self.exit_code is not None and not 0 <= self.exit_code <= 255:
            raise LocalProtocolError(f"no process ends with code {self.exit_code}")

    @property
    def ok(self) -> bool:
        """True for a Success status: the session ended as its user intended."""
        return self.reason == COMPLETED and not self.exit_code


def has_status(protocol: str) -> bool:
    """Return whether a protocol ends with a Status; versions before 4 end with plain text."""
    return protocol in _WITH_STATUS


def encode_ending(ending: Ending, protocol: str) -> bytes:
    """Encode the message for the error channel; may be empty in protocols with plain text."""
    if has_status(protocol):
        return encode_status(ending)
    text: str = _status(ending).get("message", "")
    return text.encode()


def decode_ending(document: bytes, protocol: str) -> Ending:
    """
    Decode everything that was received on the error channel.

    :raises RemoteProtocolError: see :func:`decode_status`.
    """
    if has_status(protocol) or not document:
        return decode_status(document)
    if len(document) > STATUS_LIMIT_BYTES:
        raise RemoteProtocolError(f"status is larger than {STATUS_LIMIT_BYTES} bytes")
    return Ending(INTERNAL, document.decode("utf-8", "replace").strip())


def encode_status(ending: Ending) -> bytes:
    """Encode the Status of an ending as JSON."""
    return json.dumps(_status(ending), separators=(",", ":")).encode()


def _status(ending: Ending) -> dict[str, Any]:
    if ending.ok:
        # Go writes the empty metadata of each Status.
        return {"metadata": {}, "status": "Success"}
    status: dict[str, Any] = {"metadata": {}, "status": "Failure"}
    if ending.reason == COMPLETED:
        code = ending.exit_code
        detail = ending.message or f"command terminated with exit code {code}"
        # The words of kubelets (exec.go), which kubectl shows.
        status["message"] = f"command terminated with non-zero exit code: {detail}"
        status["reason"] = EXIT_REASON
        status["details"] = {"causes": [{"reason": _EXIT_CAUSE, "message": str(code)}]}
        return status
    message = ending.message or f"the session ended: {ending.reason}"
    status["message"] = message
    status["reason"] = ending.reason
    causes = [{"reason": ending.reason, "message": message}]
    causes += [{"reason": each} for each in ending.causes]
    status["details"] = {"causes": causes}
    if ending.reason == INTERNAL:
        # As in Kubernetes' NewInternalError.
        status["code"] = 500
    return status


def decode_status(document: bytes) -> Ending:
    """
    Decode the peer's Status.

    A failure without an exit code and without one of :data:`FAILURES` becomes ``INTERNAL``.

    :param document: the complete JSON text.  Empty means success, as in client-go.
    :raises RemoteProtocolError: the document is not a valid Status.
    """
    # client-go reads the channel to its end, and takes no bytes for success (errorstream.go).
    if not document:
        return Ending(COMPLETED)
    if len(document) > STATUS_LIMIT_BYTES:
        raise RemoteProtocolError(f"status is larger than {STATUS_LIMIT_BYTES} bytes")
    try:
        status = json.loads(document)
    # Deep nesting raises RecursionError, which is no ValueError.
    except (ValueError, RecursionError):
        raise RemoteProtocolError("status is not JSON") from None
    if not isinstance(status, dict):
        raise RemoteProtocolError("status is not an object")
    if status.get("status") == "Success":
        return Ending(COMPLETED)
    if status.get("status") != "Failure":
        raise RemoteProtocolError("status is neither Success nor Failure")
    return _failure(status)


def _failure(status: dict[str, Any]) -> Ending:
    message = str(status.get("message") or "")
    causes = _causes(status)
    if status.get("reason") == EXIT_REASON:
        return Ending(COMPLETED, _strip_exit_prefix(message), _exit_code(causes))
    reasons = [reason for reason, _ in causes if reason]
    for number, reason in enumerate(reasons):
        if reason in FAILURES:
            further = reasons[number + 1 : number + 1 + _MAX_CAUSES]
            return Ending(reason, message, causes=tuple(further))
    return Ending(INTERNAL, message or "the server gave no reason")


def _causes(status: dict[str, Any]) -> list[tuple[str, str]]:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    if not isinstance(causes, list):
        return []
    return [
        (str(cause.get("reason", "")), str(cause.get("message", "")))
        for cause in causes
        if isinstance(cause, dict)
    ]


def _exit_code(causes: list[tuple[str, str]]) -> int:
    for reason, value in causes:
        if reason == _EXIT_CAUSE:
            # isdecimal() alone accepts the digits of other scripts.
            if value.isascii() and value.isdecimal() and len(value) <= 3 and int(value) <= 255:
                return int(value)
            raise RemoteProtocolError("status carries an exit code that is not 0 to 255")
    raise RemoteProtocolError("status says NonZeroExitCode without a code")


def _strip_exit_prefix(message: str) -> str:
    return message.removeprefix("command terminated with non-zero exit code: ")


def encode_size(size: TerminalSize) -> bytes:
    """Encode a resize event: a JSON object and a newline, with keys capitalised as in Go."""
    return b'{"Width":%d,"Height":%d}\n' % (size.columns, size.rows)


def encode_wish(wish: Break | Role, size: TerminalSize | None) -> bytes:
    """
    Encode a user's request as a message in the stream of sizes.

    :param size: the last size sent, which is repeated; ``None`` if there was none.
    """
    columns, rows = (0, 0) if size is None else (size.columns, size.rows)
    if isinstance(wish, Break):
        return b'{"Width":%d,"Height":%d,"Break":%d}\n' % (columns, rows, wish.milliseconds)
    return b'{"Width":%d,"Height":%d,"Role":"%s"}\n' % (columns, rows, wish.value.encode())


def encode_message(message: Message, size: TerminalSize | None) -> bytes:
    """Encode a message to the other users in the stream of sizes; ``size`` as for a wish."""
    columns, rows = (0, 0) if size is None else (size.columns, size.rows)
    document = {"Width": columns, "Height": rows, "Message": message.text}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class SizeDecoder:
    """
    Decodes the stream of sizes: a sequence of JSON objects, possibly with our requests.

    An object that is not valid ends this stream, and not the session.
    """

    _LIMIT_BYTES = 1024
    _MESSAGE_BYTES = 4 << 10

    def __init__(self) -> None:
        self._pending = b""
        self._broken = False

    def export(self) -> list[Any]:
        """Return the state for another process, as JSON values."""
        return [self._pending.decode("latin-1"), self._broken]

    def restore(self, values: list[Any]) -> None:
        pending, self._broken = values
        self._pending = pending.encode("latin-1")

    def feed(self, data: bytes) -> list[TerminalSize | Break | Role | Message]:
        """
        Take bytes of the resize channel.

        :param data: more than 4 KiB count as invalid.
        :return: the complete and valid events, oldest first, without sizes with a zero.
        """
        events: list[TerminalSize | Break | Role | Message] = []
        if self._broken:
            return events
        if len(data) > self._MESSAGE_BYTES:
            self._give_up()
            return events
        # As Latin-1, in which a character is a byte: a piece may end inside a character of UTF-8.
        text = (self._pending + data).decode("latin-1")
        start = _behind_space(text, 0)
        while not self._broken and (found := self._object(text, start)) is not None:
            document, end = found
            event = self._read(document)
            if event is not None:
                events.append(event)
            start = _behind_space(text, end)
        self._pending = text[start:].encode("latin-1")
        if len(self._pending) >= self._LIMIT_BYTES:
            self._give_up()
        return events

    def _object(self, text: str, start: int) -> tuple[dict[str, Any], int] | None:
        """Return the object that begins at ``start``, and its end; ``None`` if it is incomplete."""
        if text[start : start + 1] not in ("", "{"):
            self._give_up()
            return None
        try:
            # In one attempt, not one for each brace: a string may have a thousand of them.
            document, end = _JSON.raw_decode(text, start)
        except (ValueError, RecursionError):
            return None
        return (document, end) if end - start <= self._LIMIT_BYTES else None

    def _read(self, document: dict[str, Any]) -> TerminalSize | Break | Role | Message | None:
        # Go matches keys case-insensitively; the last one wins.
        keys = {key.lower(): value for key, value in document.items()}
        width, height = keys.get("width", 0), keys.get("height", 0)
        for cells in (width, height):
            # Not isinstance: ``true`` is an int in Python.
            if type(cells) is not int or not 0 <= cells <= 0xFFFF:
                self._give_up()
                return None
        wish = _request(keys)
        if wish is not None:
            return wish
        return TerminalSize(width, height) if width and height else None

    def _give_up(self) -> None:
        self._broken, self._pending = True, b""


def _behind_space(text: str, start: int) -> int:
    match = _NO_SPACE.search(text, start)
    return match.start() if match else len(text)


def _request(keys: dict[str, Any]) -> Break | Role | Message | None:
    milliseconds, role, message = keys.get("break"), keys.get("role"), keys.get("message")
    if type(milliseconds) is int and 1 <= milliseconds <= MAX_BREAK_MILLISECONDS:
        return Break(milliseconds)
    if isinstance(role, str) and role in _ROLES:
        return _ROLES[role]
    return _message(message) if isinstance(message, str) else None


def _message(latin: str) -> Message | None:
    try:
        text = message_line(latin.encode("latin-1").decode("utf-8"))
    except UnicodeError:
        return None  # no UTF-8, or a character that was escaped
    return Message(text) if text else None


_ROLES = {role.value: role for role in Role}


def encode_notice(text: str) -> bytes:
    """Wrap a message of ours for the output of the machine."""
    return f"{_BEFORE}{printable_line(text)}{_BEHIND}".encode()


_BEFORE, _BEHIND = "\r\n[twisted-exec: ", "]\r\n"


NOTICE_COLUMNS = 78
_INDENT = "  "


def wrapped_notice(notice: bytes) -> bytes:
    """Break a message of :func:`encode_notice` at blanks, for a terminal that breaks words."""
    if len(notice) <= NOTICE_COLUMNS + 4:
        return notice
    rows = wrapped(notice.decode().strip("\r\n"), NOTICE_COLUMNS)
    return "\r\n".join(["", *rows, ""]).encode()


def wrapped(line: str, columns: int) -> list[str]:
    """Return the rows of a line that is broken at blanks."""
    if len(line) <= columns:
        return [line]
    import textwrap  # most processes wrap nothing

    indent = line[: len(line) - len(line.lstrip())] + _INDENT
    return textwrap.wrap(
        line,
        max(columns, len(indent) + 1),
        subsequent_indent=indent,
        replace_whitespace=False,
        break_on_hyphens=False,
        break_long_words=False,
    )


def wrapped_and_cut(line: str, columns: int) -> list[str]:
    """Return the rows of a line that is broken at blanks, and inside words that are longer than a row."""
    return [
        row[at : at + columns]
        for row in wrapped(line, columns)
        for at in range(0, max(1, len(row)), columns)
    ]


def decode_notice(notice: bytes) -> str:
    """Return the text of a message of :func:`encode_notice` or :func:`wrapped_notice`."""
    text = notice.decode("utf-8", "replace").replace(f"\r\n{_INDENT}", " ")
    if text.startswith(_BEFORE):
        text = text.removeprefix(_BEFORE).removesuffix(_BEHIND)
    return text


def printable_line(text: str) -> str:
    """Return the text of a message in one line that is safe for terminals."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))


def dropped_keys(dropped: int, unsent: int) -> str:
    """
    Return what users read of input that was dropped after a loss of the connection.

    :param dropped: keys, and requests such as a BREAK; at least 1.
    :param unsent: how many of these were never sent.
    """
    if dropped == unsent:
        return keys_discarded(unsent, "typed meanwhile")
    text = f"{keys_counted(dropped - unsent)} may not have reached the machine"
    if unsent:
        text += f"; {keys_discarded(unsent, 'typed after that')}"
    return text


def keys_discarded(count: int, when: str) -> str:
    """Return what users read of dropped keys; ``when`` is such as ``typed after that``."""
    return f"{keys_counted(count)} {when} {'was' if count == 1 else 'were'} discarded"


_KEY = re.compile(rb"\x1b[\[O][0-?]*[ -/]*[@-~]|[\x00-\x7f\xc0-\xff][\x80-\xbf]*|[\x80-\xbf]+")
"""The bytes of a key: a sequence such as that of an arrow, or a character in UTF-8."""


def keys_in(data: bytes) -> int:
    """Return the number of keys that made this input."""
    return len(_KEY.findall(data))


def keys_counted(count: int) -> str:
    """Return ``1 key`` or ``3 keys``."""
    return "1 key" if count == 1 else f"{count} keys"


def encode_gap(skipped_bytes: int | None) -> bytes:
    """Return the notice in place of missing output; ``skipped_bytes`` is ``None`` if unknown."""
    if skipped_bytes is None:
        return encode_notice(_GAP_OF_UNKNOWN_SIZE)
    return encode_notice(f"{skipped_bytes} bytes skipped")


_GAP_OF_UNKNOWN_SIZE = "output is missing here"
_GAP = re.compile(rf"\d+ bytes skipped|{_GAP_OF_UNKNOWN_SIZE}")


def is_gap(text: str) -> bool:
    """Return whether a notice is that of :func:`encode_gap`."""
    return _GAP.fullmatch(text) is not None
