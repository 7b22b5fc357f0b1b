"""Callbacks for changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger


class Listeners:
    """Callbacks for changes of one thing."""

    _log = Logger()

    def __init__(self, what: str) -> None:
        self._what = what
        self._each: dict[object, Callable[..., None]] = {}

    def __len__(self) -> int:
        return len(self._each)

    def add(self, changed: Callable[..., None]) -> Callable[[], None]:
        """Add a callback; return a function that removes it."""
        token = object()
        self._each[token] = changed

        def end() -> None:
            self._each.pop(token, None)

        return end

    def clear(self) -> None:
        self._each.clear()

    def tell(self, *arguments: Any) -> None:
        """Call the callbacks, except those that an earlier one removed."""
        for token, changed in list(self._each.items()):
            if token not in self._each:
                continue
            try:
                changed(*arguments)
            except Exception:
                self._log.failure("who follows {what} failed", what=self._what)
