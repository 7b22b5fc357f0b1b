"""
Text without terminal escape sequences, sans I/O.

Programs search the result for words, so colours between the letters of a word must not hide it.
All control characters are removed, except tab, carriage return and newline.  A newline ends every
sequence, also an operating system command (OSC) that lacks its end: text after it stays visible.
The cost is linear, and the state between two calls is bounded, whatever the input.

Sources: ECMA-48, 5th edition, 5.3 to 5.6; xterm's ``ctlseqs``.
"""

from __future__ import annotations

import re

_SEQUENCE = re.compile(
    rb"\x1b(?:"
    rb"\[[0-?]*[ -/]*(?P<csi>[@-~])?"  # a control sequence
    rb"|[\]PX^_][^\x07\x1b\n]*(?P<string>\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC
    rb"|[ -/]*(?P<escape>[0-~])?"  # a character set, or one character
    rb")"
    rb"|(?P<control>[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f])"
)
_MOST_HELD_BYTES = 256


def strip(text: bytes) -> bytes:
    """Return complete text without its sequences; one that is cut off at the end is removed, too."""
    return _SEQUENCE.sub(b"", text)


class Stripper:
    """Removes the sequences of a stream that is split anywhere."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return the text of ``data``.  An incomplete sequence at its end waits for the next call."""
        window = self._held + data
        self._held = b""
        end = len(window)

        def removed(match: re.Match[bytes]) -> bytes:
            if match.end() == end and match.lastgroup is None:
                self._held = match[0]
            return b""

        text = _SEQUENCE.sub(removed, window)
        if len(self._held) > _MOST_HELD_BYTES:
            # Only the kind of sequence matters, not its content.
            self._held = self._held[:2]
        return text
