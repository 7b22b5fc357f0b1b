"""
Programs with an escape character: typing for them, without I/O.

ssh(1) and ipmitool(1) look for it at the beginning of a line alone, which is after a carriage return, a newline, or
nothing yet.  There it is a command: ``~.`` hangs up, ``~B`` sends BREAK, ``~~`` is the character itself.  What users
type is for the machine; so whoever types for them doubles it in that place.
"""

from __future__ import annotations

_LINE_ENDS = b"\r\n"


class Escaper:
    """
    What one program has been typed.

    :param character: its escape character, one byte.
    """

    def __init__(self, character: bytes = b"~") -> None:
        self._character = character
        self._at_start = True

    def encode(self, data: bytes) -> bytes:
        """
        What is to be typed so that ``data`` arrives.

        :param data: 1 byte or more.
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
        What is to be typed for a command.

        In the middle of a line that begins with a carriage return, which the machine gets.
        """
        lead = b"" if self._at_start else b"\r"
        self._at_start = True
        return lead + self._character + letter
