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


def keys(data: bytes) -> list[Key | str]:
    """
    Return the keys of some input, without those that :class:`Key` does not name.

    A sequence that is split between two reads is not recognised, as in most programs.
    """
    pressed: list[Key | str] = []
    at = 0
    while at < len(data):
        match = _SEQUENCE.match(data, at)
        if match is None:
            byte = data[at : at + 1]
            at += 1
            if byte in (b"\r", b"\n"):
                pressed.append(Key.ENTER)
            elif byte == b"\x1d":
                pressed.append(Key.LEAVE)
            elif byte.isascii():
                pressed.append(byte.decode("ascii"))
            continue
        at = match.end()
        if match[1] is not None:
            pressed.append(Key(match[1]))
        elif match[3] == b"~" and match[2] in (b"5", b"6"):
            pressed.append(Key(match[2]))
        elif match[3] == b"~" and match[2] in (b"1", b"7"):
            pressed.append(Key.HOME)
        elif match[3] == b"~" and match[2] in (b"4", b"8"):
            pressed.append(Key.END)
    return pressed
