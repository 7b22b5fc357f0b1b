"""
Escape characters of ssh(1) and ipmitool(1), sans I/O.

These programs interpret the character only at the start of a line: at the very beginning, and after a carriage
return or newline.  There ``~.`` hangs up, ``~B`` sends BREAK and ``~~`` sends one ``~``.  Users' input is for the
machine, so each ``~`` of theirs at the start of a line must be doubled.
"""

from __future__ import annotations

_LINE_ENDS = b"\r\n"


class Escaper:
    """
    Encodes the input of one program.

    :param character: the program's escape character, one byte.
    """

    def __init__(self, character: bytes = b"~") -> None:
        self._character = character
        self._at_start = True

    def encode(self, data: bytes) -> bytes:
        """
        Encode input so that exactly ``data`` reaches the machine.

        :param data: at least 1 byte.
        """
        out = bytearray()
        start = 0
        while (at := data.find(self._character, start)) >= 0:
            before = data[at - 1] in _LINE_ENDS if at else self._at_start
            out += data[start : at + 1]
            if before:
                out += self._character
            start = at + 1
        out += data[start:]
        self._at_start = data[-1] in _LINE_ENDS
        return bytes(out)

    def command(self, letter: bytes) -> bytes:
        """
        Encode a command of the program.

        In the middle of a line it starts with a carriage return, which also reaches the machine.
        """
        lead = b"" if self._at_start else b"\r"
        self._at_start = True
        return lead + self._character + letter
