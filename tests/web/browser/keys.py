"""
Keys of a keyboard, as ``Input.dispatchKeyEvent`` describes them.
"""

from __future__ import annotations

from typing import Any

_MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
# The virtual key code and the text of keys with a name.
_NAMED = {
    "Backspace": (8, ""),
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "Space": (32, " "),
    "PageUp": (33, ""),
    "PageDown": (34, ""),
    "End": (35, ""),
    "Home": (36, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
    "Delete": (46, ""),
    **{f"F{number}": (111 + number, "") for number in range(1, 13)},
}
# Editing commands do not follow from the key events alone: the window system sends them.
_COMMANDS = {"Control+v": "paste", "Control+c": "copy", "Control+a": "selectAll"}


def key_event(key: str) -> dict[str, Any]:
    """
    Return the parameters of a key that is pressed.

    :param key: a character or a name, after modifiers: ``a``, ``Enter``, ``Control+Shift+C``.
    """
    *held, name = key.split("+") if len(key) > 1 else [key]
    modifiers = sum(_MODIFIERS[each] for each in held)
    if name in _NAMED:
        code, text = _NAMED[name]
        event: dict[str, Any] = {"code": name, "windowsVirtualKeyCode": code}
        event["key"] = " " if name == "Space" else name
    else:
        text = name
        event = {"key": name, "windowsVirtualKeyCode": ord(name.upper()) if name.isalnum() else 0}
        if name.isalpha() and name.isascii():
            event["code"] = f"Key{name.upper()}"
    if text and not modifiers & ~_MODIFIERS["Shift"]:
        event["text"] = text
    if modifiers:
        event["modifiers"] = modifiers
    if key in _COMMANDS:
        event["commands"] = [_COMMANDS[key]]
    return event
