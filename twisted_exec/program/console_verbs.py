"""
The option ``--console-verbs`` of programs that authorize consoles.
"""

from __future__ import annotations

COMPATIBLE, STRICT = "compatible", "strict"


def console_verbs(text: str) -> str:
    """
    Check the value.

    :raises ValueError: it is neither.
    """
    if text not in (COMPATIBLE, STRICT):
        raise ValueError(f"{text!r} is neither {COMPATIBLE} nor {STRICT}")
    return text


CONSOLE_VERBS = [
    "console-verbs",
    None,
    COMPATIBLE,
    "Whether create on machines/exec includes the verbs of machines/console (compatible) or not "
    "(strict).",
    console_verbs,
]
