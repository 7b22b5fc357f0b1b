"""Parts of objects from other servers; a part of another shape than expected is dropped."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def mapping(value: object) -> Object:
    """Return ``value`` if it is an object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def texts(obj: object) -> dict[str, str]:
    """Return the entries of an object whose values are strings."""
    return {key: value for key, value in mapping(obj).items() if isinstance(value, str)}


def mappings(value: object) -> list[Object]:
    """Return the objects in a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def named(value: object, key: str = "name") -> list[Object]:
    """Return the objects in a list that have a non-empty string as ``key``."""
    return [item for item in mappings(value) if item.get(key) and isinstance(item[key], str)]
