"""
Equal parts of many objects, kept once.

Pods come by the thousand from a few templates: their containers, volumes and tolerations are equal,
and so are the names of all their fields, of which the JSON of each brings copies of its own.  Objects
that are not to be changed can share them.

What a leaf says, in the form that it should have.

A leaf may be anyone's, and its JSON may be anything.  Whoever reads it would have to ask of each part
whether it is what it should be; so that is done once, where it arrives.  What is not in its form is
left out: nothing is guessed.  Pure.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from hashlib import blake2b
from sys import intern
from typing import Any

from twisted_exec.kube.interfaces import Object


def mapping(value: object) -> Object:
    """An object; empty where it is none."""
    return value if isinstance(value, dict) else {}


def texts(told: object) -> dict[str, str]:
    """The strings of an object."""
    return {key: value for key, value in mapping(told).items() if isinstance(value, str)}


def mappings(value: object) -> list[Object]:
    """The objects of a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def named(value: object, key: str = "name") -> list[Object]:
    """Those of them that say what they are, by a string that is not empty."""
    return [each for each in mappings(value) if each.get(key) and isinstance(each[key], str)]


MAX_SHARED = 20_000
"""So many parts are remembered; then all are forgotten.  What is shared stays so."""


class Shared:
    """Remembers parts by what they hold."""

    def __init__(self, most: int = MAX_SHARED) -> None:
        self._most = most
        self._parts: dict[bytes, Any] = {}

    def of(self, part: Any) -> Any:
        """
        A part as JSON gives it, or an equal one that others have.

        Two mappings whose keys are in another order are not taken for equal.
        """
        # Version 2 tells nothing of which strings are the same object, so equal parts look equal.
        key = blake2b(marshal.dumps(part, 2), digest_size=16).digest()
        shared = self._parts.get(key)
        if shared is None:
            if len(self._parts) >= self._most:
                self._parts.clear()
            shared = self._parts[key] = slim(part)
        return shared

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
