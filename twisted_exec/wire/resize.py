"""
The resize channel: terminal sizes, and our BREAK, roles and messages to other users among them.

The channel carries JSON objects, each with a size.  Ours have one more member, which other
servers ignore.

Sources: ``k8s.io/kubelet/pkg/cri/streaming/remotecommand`` (what servers read),
``k8s.io/client-go/tools/remotecommand/resize.go`` (what clients write).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from twisted_exec.wire.errors import LocalProtocolError
from twisted_exec.wire.notices import printable_line

MAX_BREAK_MILLISECONDS = 5000

MESSAGE_CHARACTERS = 200
"""The longest message: an object with it fits into the limit of :class:`SizeDecoder`."""

_NO_SPACE = re.compile(r"[^ \t\r\n]")
_JSON = json.JSONDecoder()


@dataclass(frozen=True)
class TerminalSize:
    """A terminal's size in character cells, each 1 to 65535."""

    columns: int
    rows: int

    def __post_init__(self) -> None:
        if not (1 <= self.columns <= 0xFFFF and 1 <= self.rows <= 0xFFFF):
            raise LocalProtocolError(f"no terminal has {self.columns} by {self.rows} cells")


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
    """The role of one user at a console; the values are those on the wire."""

    WRITER = "drive"
    """The user's input goes to the machine."""
    OBSERVER = "watch"
    """The user sees the output; input is discarded."""


_ROLES = {role.value: role for role in Role}


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
