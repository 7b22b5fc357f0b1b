"""
Equal parts of stored objects, once in memory.

Thousands of objects differ in little more than their names.  Strings and whole dictionaries and lists
of one object are replaced by equal ones of earlier objects, which is not seen: stored objects are never
changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted_exec.storage.interfaces import Object

_MOST_STRINGS = 20_000
"""Strings that are remembered; after as many the memory starts empty again."""
_LONGEST_STRING = 256
_DEEPEST = 32
"""Levels of an object; what is below them stays as it is."""


class SharedParts:
    """The parts of recent objects, by content."""

    def __init__(self) -> None:
        self._strings: dict[str, str] = {}
        # By the identities of their parts, which they keep alive, and by keys of dictionaries.
        self._containers: dict[tuple[Any, ...], Any] = {}

    def share(self, obj: Object) -> None:
        """Replace parts of an object by equal parts of earlier objects."""
        if len(self._strings) > _MOST_STRINGS:
            self._strings.clear()
            self._containers.clear()
        # A deep copy keeps the identities within an object, so nothing is shared within it: a change of
        # one part of the copy would change the other.  The second of equal parts is shared with the second
        # of another object.
        used: dict[tuple[Any, ...], int] = {}
        for key, value in obj.items():
            obj[key], _ = self._shared(value, used, _DEEPEST)

    def _shared(self, value: Any, used: dict[tuple[Any, ...], int], depth: int) -> tuple[Any, bool]:
        """Return the part to use, and whether an earlier object may have it, too."""
        kind = type(value)
        if kind is str:
            return self._string(value)
        if kind is not dict and kind is not list:
            return value, True
        if not depth:
            return value, False
        places: Iterable[Any] = tuple(value) if kind is dict else range(len(value))
        is_known = True
        for place in places:
            part = value[place]
            shared, is_part_known = self._shared(part, used, depth - 1)
            if shared is not part:
                value[place] = shared
            is_known = is_known and is_part_known
        if not is_known:
            return value, False
        if kind is dict:
            identity = (*value, *map(id, value.values()))
        else:
            identity = (list, *map(id, value))
        number = used[identity] = used.get(identity, -1) + 1
        return self._containers.setdefault((number, *identity), value), True

    def _string(self, text: str) -> tuple[str, bool]:
        if len(text) > _LONGEST_STRING:
            return text, False
        known = self._strings.get(text)
        if known is None:
            self._strings[text] = text
            return text, False
        return known, True
