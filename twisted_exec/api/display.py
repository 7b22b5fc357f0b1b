"""
Text for people at terminals: short, printable, on few lines.
"""

from __future__ import annotations

from collections.abc import Iterable

_MOST_SHOWN = 64

BANNER = "console.twisted-exec.dev/banner"
"""Annotation of a machine: what its users should read before its console."""
_BANNER_LINES, _BANNER_COLUMNS = 4, 80


def banner_lines(text: str) -> list[str]:
    """Return the lines of a banner: at most four, of at most 80 printable characters each."""
    # The rest of the annotation may be long.
    lines = text[: 16 * _BANNER_LINES * _BANNER_COLUMNS].splitlines()
    plain = ["".join(char for char in line if char.isprintable()).strip() for line in lines]
    return [line[:_BANNER_COLUMNS] for line in plain if line][:_BANNER_LINES]


def listed(names: Iterable[str], most: int, separator: str = ", ") -> str:
    """Return the first names, and the number of the others: ``a, b and 2 more``."""
    every = list(names)
    if len(every) <= most + 1:
        return separator.join(every)
    return f"{separator.join(every[:most])} and {len(every) - most} more"


def reason_of(error: BaseException | None) -> str:
    """Return why something failed: in the words of the system, without number and path, if it is of the system."""
    return getattr(error, "strerror", None) or str(error)


def shortened(text: str, most: int) -> str:
    """Return a text of at most ``most`` characters: a longer one ends with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}\N{HORIZONTAL ELLIPSIS}"


def display_name(user: str) -> str:
    """Make the name of a user safe for a terminal: printable, at most 64 characters."""
    if not user:
        return "somebody"
    plain = "".join(char if char.isprintable() else "?" for char in user[: _MOST_SHOWN + 1])
    return shortened(plain, _MOST_SHOWN)
