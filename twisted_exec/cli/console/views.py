"""
Keys and rows of a fixed width, for views that fill the user's terminal.

Source of the keys: xterm's ``ctlseqs``.
"""

from __future__ import annotations

import re
import unicodedata
from enum import Enum

_WIDE = ("W", "F")
_INVISIBLE = ("Mn", "Me", "Cf")
_REPLACED = ("Cc", "Cs", "Co", "Cn", "Zl", "Zp")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def fitted(text: str, width: int, skip: int = 0) -> str:
    """
    Return text that takes this many columns, without control characters.

    :param skip: columns that are left out at the beginning.
    """
    if text.isascii() and text.isprintable():
        return text[skip : skip + width].ljust(width)
    characters, used = [], -skip
    for character in text:
        category = unicodedata.category(character)
        if category in _INVISIBLE:
            continue
        if category in _REPLACED or unicodedata.bidirectional(character) in ("R", "AL", "AN"):
            # A right-to-left letter would reorder what is beside the tile in some terminals.
            character = _REPLACEMENT
        columns = 2 if unicodedata.east_asian_width(character) in _WIDE else 1
        if used + columns > width:
            break
        used += columns
        if used > 0:
            # Half of a wide character is blank.
            characters.append(character if used >= columns else " " * used)
    used = max(used, 0)
    return "".join(characters) + " " * (width - used)


class Key(Enum):
    """Keys with a name; all others are their characters."""

    UP = b"A"
    DOWN = b"B"
    RIGHT = b"C"
    LEFT = b"D"
    HOME = b"H"
    END = b"F"
    PAGE_UP = b"5"
    PAGE_DOWN = b"6"
    ENTER = b"\r"
    LEAVE = b"\x1d"


_SEQUENCE = re.compile(rb"\x1b[\[O](?:([ABCDHF])|([0-9;]*)([@-~]))")


_BYTES = {b"\r": Key.ENTER, b"\n": Key.ENTER, b"\x1d": Key.LEAVE}
_NUMBERS = {
    b"1": Key.HOME,
    b"4": Key.END,
    b"5": Key.PAGE_UP,
    b"6": Key.PAGE_DOWN,
    b"7": Key.HOME,
    b"8": Key.END,
}


def first_key(data: bytes) -> tuple[Key | str | None, int]:
    """
    Return the first key of some input, and its number of bytes.

    A sequence that is split between two reads is not recognised.

    :return: the key is ``None`` if :class:`Key` does not name it, or it is not ASCII.
    """
    match = _SEQUENCE.match(data)
    if match is None:
        byte = data[:1]
        return _BYTES.get(byte, byte.decode("ascii") if byte.isascii() else None), 1
    key = None
    if match[1] is not None:
        key = Key(match[1])
    elif match[3] == b"~":
        key = _NUMBERS.get(match[2])
    return key, match.end()
