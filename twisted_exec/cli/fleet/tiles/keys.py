"""
Keys of a terminal, sans I/O.  Source: xterm's ``ctlseqs``.
"""

from __future__ import annotations

import re
from enum import Enum


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

    A sequence that is split between two reads is not recognised, as in most programs.

    :param data: at least 1 byte.
    :return: ``None`` for a key that :class:`Key` does not name.
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
