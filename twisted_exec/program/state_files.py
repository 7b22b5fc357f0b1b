"""
Dataclasses in state files, which another release may have written.

A release ignores fields that it does not know, and drops them when it writes the file: a new field needs a default,
and must not change what the others mean.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

_Record = TypeVar("_Record")


def from_document(kind: type[_Record], document: Any) -> _Record:
    """
    Return an instance of a dataclass from its JSON object; other keys are ignored.

    :raises TypeError: the document is not an object, or lacks a field without a default.
    """
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in {**document}.items() if key in known})
