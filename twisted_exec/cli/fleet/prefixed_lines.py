"""
The output of one machine as lines that begin with the machine's name.

Nothing that a machine prints reaches other lines or the terminal's state: escape sequences and most
control characters are removed; colours may stay, and end with their line.  Characters that change
the direction of text are replaced, because they would reorder the name, too.
"""

from __future__ import annotations

import re

from twisted_exec.wire.escape_sequences import PlainLines

WHOLE, REST = b" | ", b" + "
"""Between the name and a line; and between the name and the rest of a line that was printed in part."""

LONGEST_LINE_BYTES = 8 << 10
"""A longer line is printed in parts."""

_COLOUR = re.compile(rb"(\x1b\[[0-9;:]{0,40}m)")
_RESET = b"\x1b[m"
_LATER_BYTES = re.compile(rb"[\x80-\xbf]{1,3}\Z")

_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SEPARATORS = (0x2028, 0x2029)
_REPLACED = dict.fromkeys((*_DIRECTIONS, *_SEPARATORS), "\N{REPLACEMENT CHARACTER}")


class PrefixedLines:
    """
    The lines of one machine.

    :param name: at the beginning of each line.
    :param keeps_colours: colours stay.
    :param for_terminal: bytes that are not UTF-8 are replaced; otherwise they stay.
    :param inside_line: the output continues a line that was printed in part.
    """

    def __init__(
        self,
        name: str,
        *,
        keeps_colours: bool = False,
        for_terminal: bool = False,
        inside_line: bool = False,
    ) -> None:
        self._name = name.encode()
        self._keeps_colours = keeps_colours
        self._errors = "replace" if for_terminal else "surrogateescape"
        self._plain = PlainLines(mid_line=inside_line)
        self.inside_line = inside_line

    @property
    def undecided(self) -> int:
        """
        Return the number of bytes at the end of the output that may become a part of something
        longer.
        """
        return self._plain.undecided + self._plain.returned

    def feed(self, data: bytes) -> bytes:
        """
        Return the lines of some output, also of a last one without an end.

        :param data: ends with a line, or where no more output is expected soon.
        """
        if self._keeps_colours and b"\x1b[" in data:
            parts = _COLOUR.split(data)
            parts[::2] = map(self._plain.feed, parts[::2])
            text = b"".join(parts)
        else:
            text = self._plain.feed(data)
        return self._prefixed(text)

    def rename(self, name: str) -> None:
        """Print another name from the next line on."""
        self._name = name.encode()

    def remark(self, text: str) -> bytes:
        """Return a line about the machine, which it did not print."""
        # The line before stays as it is; its rest, if it comes, is marked as such.
        return self._name + WHOLE + f"[kubectl console: {text}]\n".encode()

    def _prefixed(self, text: bytes) -> bytes:
        if not text:
            return b""
        if not text.isascii():
            characters = text.decode("utf-8", self._errors).translate(_REPLACED)
            text = characters.encode("utf-8", self._errors)
        start = REST if self.inside_line else WHOLE
        if self.inside_line and text.startswith(b"\n"):  # the end of a line that is printed already
            text, start = text[1:], WHOLE
            self.inside_line = False
            if not text:
                return b""
        self.inside_line = not text.endswith(b"\n")
        body = text if self.inside_line else text[:-1]
        if self._keeps_colours and b"\x1b" in body:
            lines = body.split(b"\n")
            body = b"\n".join(line + _RESET if b"\x1b" in line else line for line in lines)
        return self._name + start + body.replace(b"\n", b"\n" + self._name + WHOLE) + b"\n"


def cut(data: bytes | bytearray, limit: int) -> int:
    """
    Return where to cut output, at the end of a line if possible.

    :return: 0 if a line is not complete yet, and not too long.
    """
    end = data.rfind(b"\n", 0, limit) + 1
    if end or len(data) < min(limit, LONGEST_LINE_BYTES):
        return end
    end = min(len(data), limit)
    # Not within a character.
    later = _LATER_BYTES.search(bytes(data[end - 4 : end]))
    first = end - len(later[0] if later is not None else b"") - 1
    return first if first > 0 and data[first] >= 0xC0 else end
