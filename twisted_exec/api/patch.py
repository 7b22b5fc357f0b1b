"""
Patches: merge (RFC 7386), JSON patch (RFC 6902), and strategic merge as far as it is a merge.

None of these functions changes its arguments.  A strategic merge patch is
taken as a merge patch: lists are replaced, except ``metadata.finalizers``,
which kubectl patches element by element.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import jsonpatch
import jsonpointer

from twisted_exec.api.status import APIError, BadRequest, RequestEntityTooLarge

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

_LIMIT_OPERATIONS = 10_000
_LIMIT_COPIED_BYTES = 3 << 20


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: objects merge, ``null`` removes, everything else replaces."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(target: Any, patch: Any) -> Any:
    """
    A strategic merge patch as a merge patch.

    ``$setElementOrder`` and ``$retainKeys`` only order and tidy and are left
    out; ``$patch: replace`` and ``$deleteFromPrimitiveList`` are obeyed.

    :raises BadRequest: another directive.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    base = dict(target) if isinstance(target, dict) else {}
    result = {} if _replaces(patch) else base
    for key, value in patch.items():
        if key.startswith("$"):
            _apply_directive(result, key, value)
        elif value is None:
            result.pop(key, None)
        elif key == "finalizers" and isinstance(value, list):
            before = _list(result.get(key))
            result[key] = before + [item for item in value if item not in before]
        else:
            result[key] = strategic(result.get(key), value)
    return result


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else []


def _replaces(patch: Mapping[str, Any]) -> bool:
    directive = patch.get("$patch")
    if directive not in (None, "merge", "replace"):
        raise BadRequest(f"strategic merge directive $patch: {directive} is not supported here")
    return directive == "replace"


def _apply_directive(result: dict[str, Any], key: str, value: Any) -> None:
    directive, _, field = key.partition("/")
    if directive == "$deleteFromPrimitiveList":
        unwanted = _list(value)
        result[field] = [item for item in _list(result.get(field)) if item not in unwanted]
    elif directive not in ("$setElementOrder", "$retainKeys", "$patch"):
        raise BadRequest(f"strategic merge directive {directive} is not supported here")


def json_patch(target: Any, operations: Any) -> Any:
    """
    RFC 6902.

    :raises BadRequest: it is not a patch.
    :raises APIError: 422, an operation cannot be carried out, or a test failed.
    """
    if not isinstance(operations, list):
        raise BadRequest("a JSON patch is a list of operations")
    if len(operations) > _LIMIT_OPERATIONS:
        raise RequestEntityTooLarge(
            f"The allowed maximum operations in a JSON patch is {_LIMIT_OPERATIONS}, "
            f"got {len(operations)}"
        )
    result, copied_bytes = copy.deepcopy(target), 0
    for operation in operations:
        # Copying a document into itself doubles it each time: count what is copied.
        copied_bytes += _copied_bytes(result, operation)
        if copied_bytes > _LIMIT_COPIED_BYTES:
            raise RequestEntityTooLarge("the JSON patch copies more than 3 MiB")
        result = _apply(result, operation)
    return result


def _apply(target: Any, operation: Any) -> Any:
    try:
        return jsonpatch.JsonPatch([operation]).apply(target, in_place=True)
    except jsonpatch.InvalidJsonPatch as error:
        raise BadRequest(f"the JSON patch cannot be read: {error}") from None
    except (
        jsonpatch.JsonPatchException,
        jsonpointer.JsonPointerException,
        # The library indexes what the path names without asking what it is.
        TypeError,
        AttributeError,
        KeyError,
        IndexError,
        ValueError,
    ) as error:
        raise APIError(
            "the server rejected our request due to an error in our request: "
            f"the JSON patch cannot be applied: {error}",
            code=422,
            reason="Invalid",
        ) from None


def _copied_bytes(target: Any, operation: Any) -> int:
    if not isinstance(operation, dict) or operation.get("op") != "copy":
        return 0
    try:
        value = jsonpointer.resolve_pointer(target, str(operation.get("from")))
    except (jsonpointer.JsonPointerException, TypeError, AttributeError):
        return 0  # applying it says what is wrong
    return len(json.dumps(value))
