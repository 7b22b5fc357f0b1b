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
        # Parts of the object, but never all of it, which is this one's own.
        self._share_parts(obj, obj.items(), used, _DEEPEST)

    def _share_parts(
        self,
        value: dict[str, Any] | list[Any],
        places: Iterable[tuple[Any, Any]],
        used: dict[tuple[Any, ...], int],
        depth: int,
    ) -> bool:
        """
        Replace the parts of a dictionary or a list, which takes most of the start of a large store.

        :param places: keys or positions, with the parts.
        :return: whether an earlier object may have all of them, too.
        """
        strings, is_known = self._strings, True
        for place, part in places:
            kind = type(part)
            if kind is str:
                shared = strings.get(part)
                if shared is None:
                    is_known = False
                    if len(part) <= _LONGEST_STRING:
                        strings[part] = part
                elif shared is not part:
                    value[place] = shared
            elif kind is dict or kind is list:
                parts = part.items() if kind is dict else enumerate(part)
                if not depth or not self._share_parts(part, parts, used, depth - 1):
                    is_known = False
                    continue
                if kind is dict:
                    identity = (*part, *map(id, part.values()))
                else:
                    identity = (list, *map(id, part))
                number = used[identity] = used.get(identity, -1) + 1
                shared = self._containers.setdefault((number, *identity), part)
                if shared is not part:
                    value[place] = shared
        return is_known
