"""
Names of keys, and what a terminal sends for them.

Source: xterm's ``ctlseqs``, keys in normal mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

KEYS: Mapping[str, bytes] = {
    "enter": b"\r",
    "tab": b"\t",
    "escape": b"\x1b",
    "backspace": b"\x7f",
    "space": b" ",
    "up": b"\x1b[A",
    "down": b"\x1b[B",
    "right": b"\x1b[C",
    "left": b"\x1b[D",
    "home": b"\x1b[H",
    "end": b"\x1b[F",
    "insert": b"\x1b[2~",
    "delete": b"\x1b[3~",
    "page-up": b"\x1b[5~",
    "page-down": b"\x1b[6~",
    **{f"f{at}": b"\x1bO" + b"PQRS"[at - 1 : at] for at in range(1, 5)},
    **{
        f"f{at}": b"\x1b[%d~" % number
        for at, number in enumerate((15, 17, 18, 19, 20, 21, 23, 24), start=5)
    },
    **{f"ctrl-{chr(code + 0x60)}": bytes([code]) for code in range(1, 27)},
    "ctrl-\\": b"\x1c",
    "ctrl-]": b"\x1d",
}


def typed(text: str, keys: Iterable[str]) -> bytes:
    """
    Return what a terminal sends for a text, and for keys behind it.

    :raises ValueError: the text has a control character, or there is nothing to type; the message is for the agent.
    """
    text = text.replace("\r\n", "\n")
    for each in text:
        if not each.isprintable() and each not in "\n\t" and not each.isspace():
            raise ValueError(
                f"the text has a control or invisible character (U+{ord(each):04X}): name keys in keys"
            )
    data = text.replace("\n", "\r").encode() + b"".join(KEYS[each] for each in keys)
    if not data:
        raise ValueError("there is nothing to type: give text, keys or both")
    return data
