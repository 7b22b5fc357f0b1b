"""
Input for a program in a terminal that reads escapes, such as ssh: escapes of users reach the machine as text.
"""

from __future__ import annotations

_LINE_ENDS = b"\r\n"


class Escaper:
    """Encodes the input of one program with an escape character."""

    def __init__(self, character: bytes = b"~") -> None:
        self._character = character
        self._at_start = True

    def encode(self, data: bytes) -> bytes:
        """Encode input so that exactly ``data`` reaches the machine."""
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
        lead = b"" if self._at_start else b"\r"
        self._at_start = True
        return lead + self._character + letter


class Typing:
    """
    Encodes input for a program without escape character; BREAK is a sequence of keys, or not
    available.
    """

    def __init__(self, break_keys: bytes = b"") -> None:
        self._break_keys = break_keys

    def encode(self, data: bytes) -> bytes:
        return data

    def break_input(self) -> bytes:
        """Return the input that makes the program send BREAK; empty if it cannot."""
        return self._break_keys


class EscapedInput(Typing):
    """
    Encodes input for a program with an escape character and the command ``B`` for BREAK.

    ssh(1) and ipmitool(1) interpret an escape character at the start of a line. Users' input is for
    the machine, so :class:`Escaper` doubles each ``~`` there.
    """

    def __init__(self) -> None:
        super().__init__()
        self._escaper = Escaper()

    def encode(self, data: bytes) -> bytes:
        return self._escaper.encode(data)

    def break_input(self) -> bytes:
        return self._escaper.command(b"B")
