"""
Text without terminal escape sequences, sans I/O.

Programs search the result for words, so colours between the letters of a word must not hide it.
All control characters are removed, except tab, carriage return and newline; for terminals U+0080 to
U+009F are control characters, too.  A newline ends every sequence, also an operating system command
(OSC) that lacks its end: text after it stays visible.  The cost is linear, and the state between two
calls is bounded, whatever the input.

Sources: ECMA-48, 5th edition, 5.3 to 5.6; xterm's ``ctlseqs``.
"""

from __future__ import annotations

import re

_SEQUENCE = re.compile(
    rb"\x1b(?:"
    rb"\[[0-?]*[ -/]*(?P<csi>[@-~])?"  # a control sequence
    rb"|[\]PX^_][^\x07\x18\x1a\x1b\n]*(?P<string>\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC
    rb"|[ -/]*(?P<escape>[0-~])?"  # a character set, or one character
    rb")"
    rb"|(?P<control>[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]|\xc2[\x80-\x9f])"
    # A lone C2 as well: when a sequence behind it is removed, it must not meet the next byte.
    rb"|\xc2(?![\xa0-\xbf])"
)
_MOST_HELD_BYTES = 256
_STARTS = bytes(each for each in (*range(0x20), 0x7F, 0xC2) if each not in b"\t\r\n")
"""The bytes with which a match of the expression begins."""


def strip(text: bytes) -> bytes:
    """Return complete text without its sequences; one that is cut off at the end is removed, too."""
    return text if _is_plain(text) else _SEQUENCE.sub(b"", text)


def _is_plain(text: bytes) -> bool:
    """Return whether there is nothing to remove; much faster than the expression."""
    return len(text.translate(None, _STARTS)) == len(text)


_RETURNS = re.compile(rb"\r{2,}")


class Stripper:
    """
    Removes the sequences of a stream that is split anywhere.

    :ivar undecided: number of bytes at the end of the stream that begin a sequence.
    """

    def __init__(self) -> None:
        self._held = b""
        self.undecided = 0

    def feed(self, data: bytes) -> bytes:
        """Return the text of ``data``.  An incomplete sequence at its end waits for the next call."""
        if not self._held and _is_plain(data):
            return data
        window = self._held + data
        not_held = self.undecided - len(self._held)
        self._held, self.undecided = b"", 0
        end = len(window)

        def removed(match: re.Match[bytes]) -> bytes:
            if match.end() == end and match.lastgroup is None:
                self._held = match[0]
                self.undecided = len(match[0]) + (not_held if match.start() == 0 else 0)
            return b""

        text = _SEQUENCE.sub(removed, window)
        if len(self._held) > _MOST_HELD_BYTES:
            # Only the kind of sequence matters, not its content.
            self._held = self._held[:2]
        return text


class PlainLines(Stripper):
    """
    Plain text of a console as lines, each of which ends with a newline alone.

    A carriage return before a newline is dropped.  Any other carriage return, by which programs
    redraw a line, becomes a newline if there is text on both sides: a line that was overwritten on
    the screen stays visible.

    :param mid_line: the text so far ends within a line.
    :param returned: the last piece ended with a carriage return.
    """

    def __init__(self, mid_line: bool = False, returned: bool = False) -> None:
        super().__init__()
        self.mid_line, self.returned = mid_line, returned

    def feed(self, data: bytes) -> bytes:
        text = super().feed(data)
        if self.returned:
            text = b"\r" + text
        if b"\r" in text:
            if b"\r\r" in text:
                text = _RETURNS.sub(b"\r", text)
            self.returned = text.endswith(b"\r")
            text = text.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\n\r", b"\n")
            if not self.mid_line:
                text = text.removeprefix(b"\r")
            text = text.replace(b"\r", b"\n")
        if text:
            self.mid_line = not text.endswith(b"\n")
        return text
