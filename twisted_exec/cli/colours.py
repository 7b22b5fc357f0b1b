"""
Colours for a terminal whose user wants them.

Sources: https://no-color.org/ for ``NO_COLOR``, and ECMA-48 for the sequences.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TextIO


class Colour(Enum):
    """Parameter of the sequence that selects a colour."""

    NONE = ""
    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    BOLD_RED = "1;31"
    DIM = "2"


Paint = Callable[[str, Colour], str]
"""Colours a text."""


def plain(text: str, colour: Colour) -> str:
    """Return a text without colour."""
    return text


def painted(text: str, colour: Colour) -> str:
    """Return a text in a colour, followed by the reset to the default."""
    return f"\x1b[{colour.value}m{text}\x1b[m" if colour.value else text


def painter(stream: TextIO, environ: Mapping[str, str] = os.environ) -> Paint:
    """
    Return the function that colours texts for a stream.

    There are no colours if the stream is not a terminal, if ``NO_COLOR`` is not empty, or if ``TERM``
    is ``dumb``.
    """
    wants_colours = not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"
    return painted if wants_colours and stream.isatty() else plain
