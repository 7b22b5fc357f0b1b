"""Parts of objects from leaves, of which equal parts are stored once."""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from hashlib import blake2b
from sys import intern
from typing import Any

MAX_SHARED = 20_000
"""Limit of remembered parts; beyond it all are forgotten."""


class SharedParts:
    """Remembers parts by content."""

    def __init__(self, most: int = MAX_SHARED) -> None:
        self._most = most
        self._parts: dict[bytes, Any] = {}

    def of(self, part: Any) -> Any:
        """Return an equal part: that of an earlier call, if it is remembered."""
        # marshal version 2 does not encode object identity, so equal parts have equal bytes.
        key = blake2b(marshal.dumps(part, 2), digest_size=16).digest()
        shared = self._parts.get(key)
        if shared is None:
            if len(self._parts) >= self._most:
                self._parts.clear()
            shared = self._parts[key] = slim(part)
        return shared

    def values(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Return a new mapping with shared values, or shared items of lists."""
        return {
            intern(key): [self.of(each) for each in value]
            if isinstance(value, list)
            else self.of(value)
            for key, value in parts.items()
        }


def slim(value: Any) -> Any:
    """Return an equal value with interned field names."""
    if isinstance(value, dict):
        return {intern(key): slim(each) for key, each in value.items()}
    if isinstance(value, list):
        return [slim(each) for each in value]
    return value
