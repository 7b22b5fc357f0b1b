"""
Who is told of changes, in order; what one of them raises is logged and is no other's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger


class Followers:
    """
    :param what: what is followed, for the log.
    """

    _log = Logger()

    def __init__(self, what: str) -> None:
        self._what = what
        self._each: dict[object, Callable[..., None]] = {}

    def __len__(self) -> int:
        return len(self._each)

    def add(self, changed: Callable[..., None]) -> Callable[[], None]:
        """Tell this one, too; what is answered ends that, and may be called more than once."""
        token = object()
        self._each[token] = changed

        def end() -> None:
            self._each.pop(token, None)

        return end

    def clear(self) -> None:
        """Tell nobody any more."""
        self._each.clear()

    def tell(self, *arguments: Any) -> None:
        """Tell everybody who is still there."""
        for token, changed in list(self._each.items()):
            if token not in self._each:
                continue
            try:
                changed(*arguments)
            except Exception:
                self._log.failure("who follows {what} failed", what=self._what)
