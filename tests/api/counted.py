"""Strings that count their comparisons, to test complexity without measuring time."""

from __future__ import annotations


class Counted(str):
    """
    A string like any other.

    :cvar compared: how often any of them was compared with another string.
    """

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def counted(prefix: str, count: int) -> list[str]:
    """Return different strings with a common prefix, and reset the count."""
    Counted.compared = 0
    return [Counted(f"{prefix}{number}") for number in range(count)]
