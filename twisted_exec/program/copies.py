"""
Changed copies of dataclasses: an opening makes dozens of them.

:func:`dataclasses.replace` reads each field with ``getattr``, and costs five times as much.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, Any

__all__ = ["replace"]

if TYPE_CHECKING:  # so that mypy checks the names and types of the fields
    from dataclasses import replace
else:

    def replace(obj: Any, /, **changes: Any) -> Any:
        """As :func:`dataclasses.replace`."""
        cls = obj.__class__
        if _has_only_plain_fields(cls):
            copy = object.__new__(cls)
            values = copy.__dict__
            values.update(obj.__dict__, **changes)
            if len(values) == len(cls.__dataclass_fields__):
                return copy
        # A cached property is not for a copy.  A name that is no field is an error.
        return dataclasses.replace(obj, **changes)


@cache
def _has_only_plain_fields(cls: Any) -> bool:
    """Return whether a copy of an instance's attributes is what its class would make."""
    fields = dataclasses.fields(cls)
    is_whole = len(fields) == len(cls.__dataclass_fields__)  # no InitVar, no ClassVar
    has_own_set_up = hasattr(cls, "__post_init__") or not all(field.init for field in fields)
    return is_whole and not has_own_set_up and bool(cls.__dictoffset__)
