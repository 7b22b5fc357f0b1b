"""
What is wrong with one field, as the causes of an ``Invalid`` Status.

Worded as ``k8s.io/apimachinery/pkg/util/validation/field`` words them, so
that users meet sentences they know.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Cause = dict[str, str]
"""Keys ``reason``, ``message`` and ``field``."""

_SHOWN_CHARACTERS = 256


def shown(value: Any) -> str:
    """A value as messages quote it, cut when long."""
    text = json.dumps(value, separators=(",", ":"))
    if len(text) > _SHOWN_CHARACTERS:
        return f"{text[:_SHOWN_CHARACTERS]}..."
    return text


def required(field: str, detail: str = "") -> Cause:
    """A field that must be there is not."""
    return _cause("FieldValueRequired", field, "Required value", detail)


def invalid(field: str, value: Any, detail: str) -> Cause:
    """A value is not acceptable."""
    return _cause("FieldValueInvalid", field, f"Invalid value: {shown(value)}", detail)


def not_supported(field: str, value: Any, allowed: Iterable[str]) -> Cause:
    """A value is none of those allowed."""
    told = ", ".join(shown(item) for item in sorted(allowed))
    return _cause(
        "FieldValueNotSupported",
        field,
        f"Unsupported value: {shown(value)}",
        f"supported values: {told}",
    )


def forbidden(field: str, detail: str) -> Cause:
    """A value may not be given, or not be changed."""
    return _cause("FieldValueForbidden", field, "Forbidden", detail)


def duplicate(field: str, value: Any) -> Cause:
    """A value that must be unique is there twice."""
    return _cause("FieldValueDuplicate", field, f"Duplicate value: {shown(value)}")


def too_long(field: str, limit_bytes: int) -> Cause:
    """A value has too many bytes."""
    return _cause(
        "FieldValueTooLong", field, "Too long", f"may not be more than {limit_bytes} bytes"
    )


def too_many(field: str, given: int, limit: int) -> Cause:
    """A list or an object has too many members."""
    told = f"{given}: must have at most {limit} items"
    return _cause("FieldValueTooMany", field, "Too many", told)


def wrong_type(field: str, value: Any, expected: str) -> Cause:
    """A value is of another JSON type than its schema says."""
    return _cause(
        "FieldValueTypeInvalid",
        field,
        f"Invalid value: {shown(json_type(value))}",
        f"{field} in body must be of type {expected}: {shown(json_type(value))}",
    )


def json_type(value: Any) -> str:
    """The JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _cause(reason: str, field: str, message: str, detail: str = "") -> Cause:
    told = f"{message}: {detail}" if detail else message
    return {"reason": reason, "message": told, "field": field}
