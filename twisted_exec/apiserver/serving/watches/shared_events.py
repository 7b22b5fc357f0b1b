"""
Changes of objects, shared by all watches of a server: each is converted once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from twisted_exec.api.encoded import json_of
from twisted_exec.storage.interfaces import Event

_LATEST_CHANGES = 4


class SharedEvent:
    """A change, with what all watches share: lines, and results of selectors."""

    __slots__ = ("__weakref__", "_is_counted", "_results", "event")

    def __init__(self, event: Event) -> None:
        self.event = event
        self._results: dict[Any, Any] = {}
        self._is_counted = False

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the result of ``make``, called once per key."""
        result = self._results.get(key)
        if result is None:
            result = self._results[key] = make()
        return result

    def uncounted_bytes(self) -> int:
        """Return the memory of the object and its line, but 0 if they are counted already."""
        is_counted, self._is_counted = self._is_counted, True
        return 0 if is_counted else 2 * len(json_of(self.event.obj))


class SharedEvents:
    """The changes that watches are sending, each once."""

    def __init__(self) -> None:
        self._events: WeakValueDictionary[int, SharedEvent] = WeakValueDictionary()
        """By the id of the change, which is kept with it."""
        self._latest: deque[SharedEvent] = deque(maxlen=_LATEST_CHANGES)

    def of(self, event: Event) -> SharedEvent:
        """Return the shared body for a change."""
        if self._latest and self._latest[-1].event is event:
            return self._latest[-1]
        shared = self._events.get(id(event))
        if shared is None:
            shared = self._events[id(event)] = SharedEvent(event)
            self._latest.append(shared)
        return shared
