"""
Field errors, in the form of the causes of an ``Invalid`` Status.

The wording is that of ``k8s.io/apimachinery/pkg/util/validation/field``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Cause = dict[str, str]
"""Keys ``reason``, ``message`` and ``field``."""

_SHOWN_CHARACTERS = 256


def shown(value: Any) -> str:
    """Quote a value for a message, cut if it is long."""
    text = json.dumps(value, separators=(",", ":"))
    if len(text) > _SHOWN_CHARACTERS:
        return f"{text[:_SHOWN_CHARACTERS]}..."
    return text


def required(field: str, detail: str = "") -> Cause:
    """Report a missing required field."""
    return _cause("FieldValueRequired", field, "Required value", detail)


def invalid(field: str, value: Any, detail: str) -> Cause:
    """Report an invalid value."""
    return _cause("FieldValueInvalid", field, f"Invalid value: {shown(value)}", detail)


def not_supported(field: str, value: Any, allowed: Iterable[str]) -> Cause:
    """Report a value outside its enumeration."""
    values = ", ".join(shown(item) for item in sorted(allowed))
    return _cause(
        "FieldValueNotSupported",
        field,
        f"Unsupported value: {shown(value)}",
        f"supported values: {values}",
    )


def forbidden(field: str, detail: str) -> Cause:
    """Report a value that must not be set or changed."""
    return _cause("FieldValueForbidden", field, "Forbidden", detail)


def duplicate(field: str, value: Any) -> Cause:
    """Report a repeated value that must be unique."""
    return _cause("FieldValueDuplicate", field, f"Duplicate value: {shown(value)}")


def too_long(field: str, limit: int, unit: str = "bytes") -> Cause:
    """Report a value with too many bytes or characters."""
    return _cause("FieldValueTooLong", field, "Too long", f"may not be more than {limit} {unit}")


def too_many(field: str, count: int, limit: int) -> Cause:
    """Report a list or object with too many members."""
    detail = f"{count}: must have at most {limit} items"
    return _cause("FieldValueTooMany", field, "Too many", detail)


def wrong_type(field: str, value: Any, expected: str) -> Cause:
    """Report a value whose JSON type differs from its schema."""
    return _cause(
        "FieldValueTypeInvalid",
        field,
        f"Invalid value: {shown(json_type(value))}",
        f"{field} in body must be of type {expected}: {shown(json_type(value))}",
    )


def json_type(value: Any) -> str:
    """Return the JSON type of a value."""
    return next((name for kind, name in _JSON_TYPES if isinstance(value, kind)), "object")


_JSON_TYPES = (
    (type(None), "null"),
    (bool, "boolean"),  # before int, of which it is a subclass
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
)


def _cause(reason: str, field: str, message: str, detail: str = "") -> Cause:
    text = f"{message}: {detail}" if detail else message
    return {"reason": reason, "message": text, "field": field}
