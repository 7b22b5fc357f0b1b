"""
The form of notices, which are printable lines of ours in the output of a machine, and their rows.

The text may come from anybody, such as a user who chooses a name.
"""

from __future__ import annotations

import re

NOTICE_COLUMNS = 78
TELL_AGAIN_SECONDS = 10.0
"""A user who goes on so long after a notice gets it again."""

_LINE_END = "\r\n"
_BEFORE, _BEHIND = f"{_LINE_END}[twisted-exec: ", f"]{_LINE_END}"
_INDENT = "  "

_GAP_OF_UNKNOWN_SIZE = "output is missing here"
_GAP = re.compile(rf"\d+ bytes skipped|{_GAP_OF_UNKNOWN_SIZE}")


def encode_notice(text: str) -> bytes:
    """Wrap a message of ours for the output of the machine."""
    return f"{_BEFORE}{printable_line(text)}{_BEHIND}".encode()


def wrapped_notice(notice: bytes) -> bytes:
    """Break a message of :func:`encode_notice` at blanks, for a terminal that breaks words."""
    if len(notice) <= NOTICE_COLUMNS + 2 * len(_LINE_END):
        return notice
    rows = wrapped(notice.decode().strip(_LINE_END), NOTICE_COLUMNS)
    return _LINE_END.join(["", *rows, ""]).encode()


def wrapped(line: str, columns: int) -> list[str]:
    """Return the rows of a line that is broken at blanks."""
    if len(line) <= columns:
        return [line]
    import textwrap  # most processes wrap nothing

    indent = line[: len(line) - len(line.lstrip())] + _INDENT
    return textwrap.wrap(
        line,
        max(columns, len(indent) + 1),
        subsequent_indent=indent,
        replace_whitespace=False,
        break_on_hyphens=False,
        break_long_words=False,
    )


def wrapped_and_cut(line: str, columns: int) -> list[str]:
    """Return the rows of a line that is broken at blanks, and inside words that are longer than a row."""
    return [
        row[at : at + columns]
        for row in wrapped(line, columns)
        for at in range(0, max(1, len(row)), columns)
    ]


def decode_notice(notice: bytes) -> str:
    """Return the text of a message of :func:`encode_notice` or :func:`wrapped_notice`."""
    text = notice.decode("utf-8", "replace").replace(f"{_LINE_END}{_INDENT}", " ")
    if text.startswith(_BEFORE):
        text = text.removeprefix(_BEFORE).removesuffix(_BEHIND)
    return text


def printable_line(text: str) -> str:
    """Return the text of a message in one line that is safe for terminals."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))


def encode_gap(skipped_bytes: int | None) -> bytes:
    """Return the notice in place of missing output; ``skipped_bytes`` is ``None`` if unknown."""
    if skipped_bytes is None:
        return encode_notice(_GAP_OF_UNKNOWN_SIZE)
    return encode_notice(f"{skipped_bytes} bytes skipped")


def is_gap(text: str) -> bool:
    """
    Return whether a notice in output is that of :func:`encode_gap`.

    For sessions without marks, where only the text tells it; in other sessions a mark says where output is missing.
    """
    return _GAP.fullmatch(text) is not None
