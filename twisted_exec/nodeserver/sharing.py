"""
Equal parts of many objects, kept once.

Pods come by the thousand from a few templates: their containers, volumes and tolerations are equal,
and so are the names of all their fields, of which the JSON of each brings copies of its own.  Objects
that are not to be changed can share them.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from hashlib import blake2b
from sys import intern
from typing import Any

MOST_KEPT = 20_000
"""So many parts are remembered; then all are forgotten.  What is shared stays so."""


class Shared:
    """Remembers parts by what they hold."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._known: dict[bytes, Any] = {}

    def of(self, part: Any) -> Any:
        """
        A part as JSON gives it, or an equal one that others have.

        Two mappings whose keys are in another order are not taken for equal.
        """
        # Version 2 tells nothing of which strings are the same object, so equal parts look equal.
        key = blake2b(marshal.dumps(part, 2), digest_size=16).digest()
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= self._most:
                self._known.clear()
            known = self._known[key] = slim(part)
        return known

    def values(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """A mapping of its own whose values, and the items of those that are lists, are shared."""
        return {
            intern(key): [self.of(each) for each in value]
            if isinstance(value, list)
            else self.of(value)
            for key, value in parts.items()
        }


def slim(value: Any) -> Any:
    """An equal value whose fields' names are nobody's own."""
    if isinstance(value, dict):
        return {intern(key): slim(each) for key, each in value.items()}
    if isinstance(value, list):
        return [slim(each) for each in value]
    return value
