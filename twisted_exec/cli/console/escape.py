"""
Escape keys: how a user in raw mode leaves a console, and gives other commands to this program.

One control key, by default ``Ctrl-]``, leaves wherever it is typed; it cannot be sent. One
character, by default ``~``, is special at the start of a line, as in ssh: the next key is a command
(:data:`HELP`). For an observer, whose text is not sent, every key is at the start of a line.

A guest may switch the terminal to a keyboard protocol that reports control keys as escape
sequences.  These forms of the key leave too; otherwise a guest could trap its user.  Sources:
xterm's ``ctlseqs`` (``modifyOtherKeys``), https://sw.kovidgoyal.net/kitty/keyboard-protocol/.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

DEFAULT = "^],~"

_PREFIX = re.compile(r"(?:\^|ctrl[-+]|c-)(.)", re.IGNORECASE | re.DOTALL)

# Modifiers are sent as a bit field plus one.
_CTRL, _LOCKS = 4, 64 | 128

_REPORTS = re.compile(
    rb"(?:\x1b\[(?:[?>=][0-9;]*(?:[cnu]|\$y)|[0-9]+;[0-9]+R|0n|[IO])|\x1b[\]P][^\x07\x1b]*(?:\x07|\x1b\\))+"
)
"""
Answers of a terminal that a program asks for its kind, colours or cursor, and that its window has the focus: nobody
types them.
"""

# The longest sequence below is 18 bytes; the tail has the part of it that came earlier.
_TAIL_BYTES = 20


class EscapeCommand(Enum):
    """A command to this program; the value is the key after the menu's."""

    LEAVE = b"."
    HELP = b"?"
    BREAK = b"B"
    TAKE_OVER = b"f"
    RELEASE = b"r"
    STATUS = b"s"
    HISTORY = b"H"
    SEARCH = b"G"
    SAVE = b"W"
    MACHINES = b"L"
    POWER = b"P"
    MESSAGE = b"M"
    RECORD = b"R"
    SUSPEND = b"\x1a"


@dataclass(frozen=True)
class SysRq:
    """
    Magic SysRq: BREAK, then a key.

    :param key: one byte, such as ``h`` for the kernel's help; empty until it is typed.
    """

    key: bytes


Typed = bytes | EscapeCommand | SysRq
"""Bytes for the machine, or a command."""

HELP = (
    (".", "leave"),
    ("B", "send BREAK"),
    ("S", "send SysRq: BREAK, then the key that is typed next"),
    ("f", "take over the console, after a question; its writer becomes an observer"),
    ("r", "release the console and become an observer"),
    ("s", "show the status of the session"),
    ("H", "scroll back through the output of this session"),
    ("G", "search it for a text"),
    ("W", "write it into a file"),
    ("L", "list the machines, and switch to another one"),
    ("P", "power: power the machine on or off, or reset it"),
    (
        "R",
        "record the console, after a question, or end a recording",
    ),
    ("M", "send a message to all viewers of this console"),
    ("^Z", "suspend"),
    ("?", "this help"),
)
"""
Keys after the menu's, and their commands.  Later ones are capital letters: ``~/`` and ``~name``
begin paths in a shell.
"""

DIALOGS = frozenset(
    {
        EscapeCommand.HISTORY,
        EscapeCommand.SEARCH,
        EscapeCommand.SAVE,
        EscapeCommand.MACHINES,
        EscapeCommand.POWER,
        EscapeCommand.RECORD,
        EscapeCommand.MESSAGE,
    }
)
"""Commands that ask the user, or show a view."""


def parse_escape(text: str) -> Escapes | None:
    """
    Read the value of ``--escape``.

    :param text: ``none``; or a control key as ``^]``, ``ctrl-]`` or ``C-]`` or the character
        itself, which leaves; or a mark such as ``~``, which opens the menu; or one of each, with a
        comma between.
    :return: ``None`` for ``none``.
    :raises ValueError: anything else; the message is for the user.
    """
    if text.lower() == "none":
        return None
    leave: EscapeKey | None = None
    menu: Menu | None = None
    for part in text.split(",") if len(text) > 1 else [text]:
        code = _control_code(part)
        if code is not None and leave is None:
            leave = EscapeKey(code)
        elif len(part) == 1 and part in _MARKS and menu is None:
            menu = Menu(part)
        else:
            raise ValueError(
                f'"{text}" is no escape key: give a control key such as ^], ctrl-a or C-a, '
                "a mark such as ~, both as ^],~ or none"
            )
    return Escapes(leave, menu)


_MARKS = frozenset("!#$%&*+-./:;<=>?@\\_`|~")


def _control_code(text: str) -> int | None:
    named = _PREFIX.fullmatch(text)
    if named is not None and "@" <= named[1].upper() <= "_":
        return ord(named[1].upper()) - 0x40
    return ord(text) if len(text) == 1 and ord(text) < 0x20 else None


class Escapes:
    """
    The escape keys of a session, however the bytes are split.

    :param leave: the key that leaves anywhere.
    :param menu: the character that is special at the start of a line.
    """

    def __init__(self, leave: EscapeKey | None, menu: Menu | None) -> None:
        self.leave, self.menu = leave, menu

    def __str__(self) -> str:
        return self.how_to_leave + (f", {self.menu}? helps" if self.menu is not None else "")

    @property
    def how_to_leave(self) -> str:
        """Text for messages: the key that leaves anywhere, else the keys of the menu."""
        keys = str(self.leave) if self.leave is not None else f"{self.menu}."
        return f"{keys} leaves"

    def feed(self, data: bytes, *, is_sent: bool = True) -> list[Typed]:
        """
        Handle input.

        :param is_sent: as of :meth:`Menu.feed`.
        :return: bytes and commands, in order; nothing follows :attr:`EscapeCommand.LEAVE`.
        """
        pressed = False
        if self.leave is not None:
            data, pressed = self.leave.feed(data)
        typed: list[Typed] = [data] if data else []
        if self.menu is not None:
            typed = self.menu.feed(data, is_sent=is_sent)
        if pressed and EscapeCommand.LEAVE not in typed:
            typed.append(EscapeCommand.LEAVE)
        return typed

    def keys_of(self, typed: Typed) -> bytes:
        """Return the keys of a command, which is none in the answer to a question."""
        if isinstance(typed, bytes):
            return typed
        mark = self.menu.mark if self.menu is not None else b""
        if isinstance(typed, SysRq):
            return typed.key or mark + b"S"
        return mark + typed.value

    def begin_line(self) -> None:
        """Take the next key for the first one of a line."""
        if self.menu is not None:
            self.menu.begin_line()

    def help(self) -> list[str]:
        if self.menu is None:
            return []
        mark = str(self.menu)
        lines = [f"  {mark + key:<4} {text}" for key, text in HELP]
        if self.leave is not None:
            lines[0] += f" ({self.leave} does so anywhere)"
        return [
            "At the start of a line, right after Enter:",
            *lines,
            f"  {mark * 2:<4} a {mark}",
        ]


class _State(Enum):
    LINE = "inside a line"
    START = "at the start of one"
    KEY = "behind the mark"
    SYSRQ = "waiting for the key of a SysRq"


class Menu:
    """
    Looks for the menu's mark at the start of lines.

    :param mark: one character.
    """

    def __init__(self, mark: str) -> None:
        self.mark = mark.encode()
        self._state = _State.START
        self._anywhere = re.compile(re.escape(self.mark))
        self._behind_line = re.compile(rb"(?<=[\r\n])" + re.escape(self.mark))

    def __str__(self) -> str:
        return self.mark.decode()

    def feed(self, data: bytes, *, is_sent: bool = True) -> list[Typed]:
        """
        Handle input; nothing follows :attr:`EscapeCommand.LEAVE`.

        :param is_sent: the machine receives what is typed.  Otherwise its line stays empty.
        """
        typed: list[Typed] = []
        while data and EscapeCommand.LEAVE not in typed:
            if not is_sent and self._state is _State.LINE:
                self.begin_line()
            if self._state is _State.KEY:
                self._key(data[:1], typed)
            elif self._state is _State.SYSRQ:
                self._sysrq(data[:1], typed)
            elif self._state is _State.START and data.startswith(self.mark):
                self._state = _State.KEY
            elif self._state is _State.START and (reports := _REPORTS.match(data)):
                typed.append(reports[0])
                data = data[reports.end() :]
                continue
            else:
                data = self._plain(data, typed, is_sent)
                continue
            data = data[1:]
        return typed

    def begin_line(self) -> None:
        self._state = _State.START

    def _plain(self, data: bytes, typed: list[Typed], is_sent: bool) -> bytes:
        begin = self._behind_line if is_sent else self._anywhere
        match = begin.search(data, 1)
        end = match.start() if match else len(data)
        typed.append(data[:end])
        self._state = _State.START if data[end - 1 : end] in b"\r\n" else _State.LINE
        return data[end:]

    def _key(self, key: bytes, typed: list[Typed]) -> None:
        self._state = _State.START
        if key in _COMMANDS:
            typed.append(_COMMANDS[key])
        elif key == b"S":
            self._state = _State.SYSRQ
            typed.append(SysRq(b""))
        else:
            typed.append(self.mark if key == self.mark else self.mark + key)
            self._state = _State.START if key in b"\r\n" else _State.LINE

    def _sysrq(self, key: bytes, typed: list[Typed]) -> None:
        self._state = _State.START
        if key.isalnum():  # other keys, such as Escape, cancel the menu
            typed.append(SysRq(key))


_COMMANDS = {command.value: command for command in EscapeCommand}


class EscapeKey:
    """
    Looks for the escape key in the input, however the bytes are split.

    Input is not held back, because a lone Escape must reach the machine; so the machine may receive
    the beginning of a split sequence.

    :param code: the control character, 0 to 31.
    """

    def __init__(self, code: int) -> None:
        self.code = code
        # Keyboard protocols name a key by its unshifted character.
        plain = ord(chr(code + 0x40).lower())
        self._pattern = re.compile(
            rb"(?P<key>%s)|\x1b\[%d;(?P<kitty>\d{1,3})(?::[12])?u|\x1b\[27;(?P<xterm>\d{1,3});%d~"
            % (re.escape(bytes([code])), plain, plain)
        )
        self._tail = b""

    def __str__(self) -> str:
        return "Ctrl-" + chr(self.code + 0x40)

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """
        Handle input.

        :return: the part of ``data`` before the key, and whether the key was pressed.
        """
        window = self._tail + data
        size = len(self._tail)
        for match in self._pattern.finditer(window):
            if match["key"] is not None or _only_ctrl(int(match["kitty"] or match["xterm"])):
                return window[size : max(size, match.start())], True
        self._tail = window[-_TAIL_BYTES:]
        return data, False


def _only_ctrl(modifiers: int) -> bool:
    return (modifiers - 1) & ~_LOCKS == _CTRL
