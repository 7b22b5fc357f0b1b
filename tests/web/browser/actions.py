"""
Keys and clicks as W3C WebDriver and WebDriver BiDi describe them, and pages that take them so.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from .abstract_page import AbstractPage

Actions = list[dict[str, Any]]

# https://www.w3.org/TR/webdriver2/#keyboard-actions
_KEYS = {
    "Backspace": "\ue003",
    "Tab": "\ue004",
    "Enter": "\ue007",
    "Shift": "\ue008",
    "Control": "\ue009",
    "Alt": "\ue00a",
    "Escape": "\ue00c",
    "Space": " ",
    "PageUp": "\ue00e",
    "PageDown": "\ue00f",
    "End": "\ue010",
    "Home": "\ue011",
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
    "Delete": "\ue017",
    "Meta": "\ue03d",
}


def key_actions(*keys: str) -> Actions:
    """Return the actions that press keys one after another, such as ``a`` or ``Control+Shift+C``."""
    steps = []
    for key in keys:
        values = [_KEYS.get(each, each) for each in (key.split("+") if len(key) > 1 else [key])]
        steps += [{"type": "keyDown", "value": each} for each in values]
        steps += [{"type": "keyUp", "value": each} for each in reversed(values)]
    return [{"type": "key", "id": "keyboard", "actions": steps}]


def click_actions(x: float, y: float) -> Actions:
    """Return the actions that click at a point of the window."""
    move = {"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0}
    steps = [move, {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
    return [{"type": "pointer", "id": "mouse", "actions": steps}]


class ActionsPage(AbstractPage):
    """A page in a browser that a WebDriver protocol drives."""

    @abstractmethod
    async def _perform(self, actions: Actions) -> None:
        """Carry out actions; fires when they are done."""

    async def type(self, text: str) -> None:
        await self._perform(key_actions(*text.replace("\n", _KEYS["Enter"])))

    async def press(self, key: str) -> None:
        await self._perform(key_actions(key))

    async def click_at(self, x: float, y: float) -> None:
        await self._perform(click_actions(x, y))
