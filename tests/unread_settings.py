"""
Which of its settings a program looks at: one that it never reads has no effect.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

_Settings = TypeVar("_Settings")


def recorded(settings: _Settings) -> _Settings:
    """The same settings, which remember what is read of them from now on."""
    made: Any = object.__new__(_recording(type(settings)))
    for name in names(settings):
        object.__setattr__(made, name, getattr(settings, name))
    object.__setattr__(made, "_read", set())
    copy: _Settings = made
    return copy


def names(settings: Any) -> set[str]:
    """The names of a dataclass's fields."""
    return {each.name for each in fields(settings)}


def unread(settings: Any) -> set[str]:
    """What nobody has asked :func:`recorded` settings for."""
    return names(settings) - object.__getattribute__(settings, "_read")


def _recording(kind: type) -> type:
    def ask(self: Any, name: str) -> Any:
        if not name.startswith("_"):
            object.__getattribute__(self, "_read").add(name)
        return object.__getattribute__(self, name)

    return type(f"Recorded{kind.__name__}", (kind,), {"__getattribute__": ask})
