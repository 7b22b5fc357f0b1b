"""
How messages reach the user's terminal: one line each, without control characters, in colours.

:mod:`twisted_exec.cli.explanations` words those about failures.

Sources: https://no-color.org/ for ``NO_COLOR``, and ECMA-48 for the sequences.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from typing import TextIO

_COMMAND = re.compile(
    r"(?:(?<=^  )|(?<=: )|(?<=: use )|(?<= with )|(?<= run )|(?<=, or ))"
    r"(?:kubectl|twisted-exec) (?:'[^']*'|[^';,]|[;,](?! ))*"
)
"""A command to copy, behind what says what it is for."""
_POLICY = re.compile(r"; (?=ConsolePolicy \")")
"""
Where a refusal names the next policy.  This is for the layout alone: a message arrives here as one line, without
its causes, and a server's message without this break is wrapped like other texts.
"""

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

FAILED_CODE = 125
"""Exit code of a script whose session failed: 1 could be a code of the script's command."""


def one_line(text: str) -> str:
    """Return a server's text for the terminal: one line without control characters."""
    words = " ".join(text.split())
    return "".join(char if char.isprintable() else "?" for char in words)


def duration(seconds: float) -> str:
    """Return a length of time for people: ``3.2 s``, ``2 min 5 s`` or ``1 h 12 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def age(seconds: float) -> str:
    """Return a length of time in whole seconds: ``3 s``, ``2 min 5 s`` or ``1 h 12 min``."""
    return duration(int(seconds)).replace(".0", "")


def rows(line: str, columns: int) -> list[str]:
    """
    Return the rows of a message for a terminal of so many columns, broken at blanks.

    Each policy that refuses begins a row. Each command gets a row of its own, which is not broken,
    so that it can be copied.
    """
    if len(line) <= columns:
        return [line]
    return [row for part in _POLICY.split(line) for row in _rows_of_part(part, columns)]


def _rows_of_part(line: str, columns: int) -> list[str]:
    from twisted_exec.wire.notices import wrapped

    broken: list[str] = []
    end = 0
    for command in _COMMAND.finditer(line):
        broken += _text_rows(line[end : command.start()], columns, wrapped, is_first=not end)
        broken.append(f"  {command[0].rstrip()}")
        end = command.end()
    return broken + _text_rows(line[end:], columns, wrapped, is_first=not end)


def _text_rows(
    text: str, columns: int, wrapped: Callable[[str, int], list[str]], *, is_first: bool
) -> list[str]:
    text = text.rstrip() if is_first else text.strip(" ,;")
    return wrapped(text if is_first else f"  {text}", columns) if text else []


def for_stderr(text: str) -> str:
    """
    Return a message for standard error, without control characters; a terminal gets it broken at
    blanks.
    """
    return _for_stream(text, sys.stderr)


def for_stdout(text: str) -> str:
    """Return a sentence for standard output; as :func:`for_stderr`."""
    return _for_stream(text, sys.stdout)


def _for_stream(text: str, stream: TextIO | None) -> str:
    line, columns = one_line(text), columns_of(stream)
    return "\n".join(rows(line, columns)) if columns else line


def columns_of(stream: TextIO | None) -> int:
    """Return the columns of a stream's terminal; 0 if it is no terminal."""
    if stream is None or not stream.isatty():
        return 0
    return os.get_terminal_size(stream.fileno()).columns or 80


def say(line: str) -> None:
    """Print a message on standard error; see :func:`for_stderr`."""
    if sys.stderr is not None:  # print would take standard output instead
        try:
            print(for_stderr(line), file=sys.stderr, flush=True)
        except OSError:  # it is closed, or full
            _discard(2)


def output_failure(error: BaseException) -> str:
    """
    Return the message if an output cannot be written, as on a full disk; empty for other errors.

    The rest of standard output's buffer is then lost.
    """
    if (
        not isinstance(error, OSError)
        or error.filename is not None
        or error.errno not in _UNWRITABLE
    ):
        return ""
    _discard(1)
    return f"cannot write output: {error.strerror}"


def _discard(descriptor: int) -> None:
    """Drop the buffer of a standard descriptor, which cannot be written at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


class Colour(Enum):
    """Parameter of the sequence that selects a colour."""

    NONE = ""
    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    BOLD_RED = "1;31"
    DIM = "2"


Paint = Callable[[str, Colour], str]


def plain(text: str, colour: Colour) -> str:
    return text


def painted(text: str, colour: Colour) -> str:
    """Return a text in a colour, followed by the reset to the default."""
    return f"\x1b[{colour.value}m{text}\x1b[m" if colour.value else text


def painter(stream: TextIO, environ: Mapping[str, str] = os.environ) -> Paint:
    """
    Return the function that colours texts for a stream; texts stay plain without a capable
    terminal, or if ``NO_COLOR`` is not empty.
    """
    wants_colours = not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"
    return painted if wants_colours and stream.isatty() else plain
