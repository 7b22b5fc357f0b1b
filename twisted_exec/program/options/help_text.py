"""The layout of the help, and its output."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from typing import NoReturn

NO_DEFAULT = re.compile(r"\s*\[default:\s*\]")
_OPTION_LINE = re.compile(r"(.{6}--\S+) +(\S.*)")
OPTION_NAME = re.compile(r"\s+(?:-\w, )?--([\w-]+)")
LEAST_COLUMNS = 50
ENDLESS_COLUMNS = 100_000


def print_and_exit(text: str) -> NoReturn:
    """Print a text and exit with 0, also if its reader has ended, as with ``| head``."""
    try:
        print(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes again at the exit, and would report the error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def terminal_columns() -> int:
    """Return ``$COLUMNS``, or 80 if that is no usable width."""
    columns = os.environ.get("COLUMNS", "")
    return (
        int(columns)
        if columns.isdecimal() and columns.isascii() and 20 <= int(columns) <= 500
        else 80
    )


def description_below(line: str, width: int) -> str:
    """Return an option's line in several: its name, and the description below it."""
    option = _OPTION_LINE.fullmatch(line)
    if option is None:
        return textwrap.fill(line, width)
    indent = " " * 10
    help_text = textwrap.fill(
        option[2],
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"{option[1]}\n{help_text}"
