"""
Console output as plain text: without escape sequences and control characters.

A sequence is one of ECMA-48 (control sequences, control strings) or ECMA-35 (all others that begin
with ESC).  A newline ends every sequence, although terminals go on: a machine that is reset in the
middle of a control string must not hide the lines that follow.  So lines are independent.  The
length of a sequence is limited for the same reason; the rest of a longer one is text.

Of the control characters TAB and LF remain.  Bytes that are not UTF-8 are passed on.
"""

from __future__ import annotations

import re

_ESCAPE = b"\x1b"
_STRING_BYTES = 4096
_HELD_BYTES = _STRING_BYTES + 3

# Terminals also take the characters U+0080 to U+009F for control characters.
_SEQUENCE = re.compile(
    rb"\x1b(?:"
    rb"\[[0-?]{0,256}[ -/]{0,16}[@-~]?"  # control sequence
    rb"|[\]PX^_][^\x07\n\x18\x1a\x1b]{0,%d}(?:\x07|\x1b\\)?"  # control string
    rb"|[ -/]{0,16}[0-~]?)"
    rb"|\xc2[\x80-\x9f]" % _STRING_BYTES
)
_UNFINISHED = re.compile(
    rb"(?:\x1b(?:"
    rb"\[[0-?]{0,256}[ -/]{0,16}"
    rb"|[\]PX^_][^\x07\n\x18\x1a\x1b]{0,%d}\x1b?"
    rb"|[ -/]{0,16})"
    rb"|\xc2)\Z" % _STRING_BYTES
)
_CONTROLS = bytes(each for each in (*range(0x20), 0x7F) if each not in b"\t\n")


def plain(text: bytes) -> bytes:
    """
    Return text without escape sequences and control characters.

    :param text: one or more lines, or the start of one.
    """
    if _ESCAPE in text or b"\xc2" in text:
        text = _SEQUENCE.sub(b"", text)
    return text.translate(None, _CONTROLS)


class PlainText:
    """:func:`plain` for a stream, whose pieces may end anywhere."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return the text of the next piece, without a sequence that the piece leaves unfinished."""
        data = self._held + data
        unfinished = _UNFINISHED.search(data, max(0, len(data) - _HELD_BYTES))
        end = unfinished.start() if unfinished else len(data)
        self._held = data[end:]
        return plain(data[:end])
