"""
Patches: merge patch (RFC 7386), JSON patch (RFC 6902), and parts of strategic merge patch.

The functions leave objects and patches unchanged.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import jsonpatch
import jsonpointer

from twisted_exec.api import bodies, fields
from twisted_exec.api.encoded import json_bytes
from twisted_exec.api.schema import Schema
from twisted_exec.api.status import APIError, BadRequest, RequestEntityTooLarge

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

TYPES = (JSON, MERGE, STRATEGIC, APPLY)
"""Media types of patches, in the order of error messages."""

_LIMIT_OPERATIONS = 10_000
_LIMIT_COPIED_BYTES = 3 << 20
# Objects are not nested deeper, and each step of a path takes time.
_LIMIT_STEPS = bodies.LIMIT_DEPTH

_Object = dict[str, Any]


def reader(
    media_type: str,
    raw: bytes,
    duplicates: list[str] | None = None,
    schema: Schema | None = None,
) -> Callable[[_Object], _Object]:
    """
    Decode a patch, and return the function that applies it.

    :param media_type: :data:`MERGE`, :data:`JSON` or :data:`STRATEGIC`.
    :param duplicates: as for :func:`twisted_exec.api.bodies.decode`.
    :param schema: schema of the objects, for lists with keys.
    :return: a function from an object to a new object; it raises :class:`APIError`.
    :raises APIError: the patch cannot be decoded.
    """

    limit = bodies.JSON_PATCH if media_type == JSON else bodies.OBJECT
    content = _read(media_type, raw, "patch", [] if duplicates is None else duplicates, limit)

    def patched(old: _Object) -> _Object:
        if media_type == JSON:
            return _whole(json_patch(old, content), old)
        if not isinstance(content, dict):
            raise BadRequest("error decoding patch: it is not an object")
        if media_type == STRATEGIC:
            return _whole(strategic(old, content, schema), old)
        return _whole(merge(old, content), old)

    return patched


def _read(
    media_type: str,
    raw: bytes,
    what: str,
    duplicates: list[str],
    limit: bodies.Limit = bodies.OBJECT,
) -> Any:
    try:
        return bodies.decode_any(media_type, raw, duplicates, limit)
    except BadRequest as error:
        raise BadRequest(f"error decoding {what}: {error.message}") from None


def _whole(obj: Any, old: _Object) -> _Object:
    if not isinstance(obj, dict):
        raise _refused("the result of the patch is not an object")
    if not isinstance(obj.get("metadata"), dict):
        raise BadRequest(
            f"the name of the object ({old['metadata']['name']} based on URL) was "
            "undeterminable: name must be provided"
        )
    return obj


def configuration(raw: bytes, duplicates: list[str] | None = None) -> _Object:
    """
    Decode the body of a server-side apply: YAML or JSON. ``null`` and an empty body mean ``{}``.

    :param duplicates: as for :func:`twisted_exec.api.bodies.decode`.
    :raises BadRequest: the body is malformed or not an object.
    :raises RequestEntityTooLarge: the body exceeds the limit.
    """
    duplicates = [] if duplicates is None else duplicates
    config: Any = None
    is_json = raw.lstrip().startswith(b"{")
    if is_json:
        try:
            config = _read("application/json", raw, "YAML", duplicates)
        except BadRequest:
            is_json = False  # YAML in flow style begins with a brace, too
    if not is_json:
        config = _read(APPLY, raw, "YAML", duplicates)
    if config is not None and not isinstance(config, dict):
        raise BadRequest("error decoding YAML: it is not an object")
    return config or {}


def merge(target: Any, patch: Any) -> Any:
    """
    Apply a merge patch (RFC 7386): objects merge, ``null`` removes, everything else replaces.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(target: Any, patch: Any, schema: Schema | None = None) -> Any:
    """
    Apply a strategic merge patch as a merge patch.

    Lists whose items have a key are merged item by item, and so are ``finalizers``.
    ``$setElementOrder`` and ``$retainKeys`` are ignored.

    :param schema: schema of the target, as far as it is known.
    :raises BadRequest: the patch has a directive that is not supported, or an item without its key.
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
            result[key] = before + _less(value, before)
        else:
            inner = _inner(schema, key)
            if isinstance(value, list) and (name := _key_of(inner)):
                result[key] = _merged(_list(result.get(key)), value, name, inner, key)
            else:
                result[key] = strategic(result.get(key), value, inner)
    return result


def _inner(schema: Schema | None, key: str) -> Schema | None:
    if schema is None:
        return None
    declared: Schema | None = schema.get("properties", {}).get(key)
    return schema.get("additionalProperties") if declared is None else declared


def _key_of(schema: Schema | None) -> str:
    keys = (schema or {}).get("x-kubernetes-list-map-keys", ())
    return str(keys[0]) if len(keys) == 1 else ""


def _merged(
    before: list[Any], items: list[Any], name: str, schema: Schema | None, where: str
) -> list[Any]:
    changes = [_item(each, name, where) for each in items if each != {"$patch": "replace"}]
    merged = {} if len(changes) < len(items) else {each.get(name): each for each in before}
    for each in changes:
        if each.get("$patch") == "delete":
            merged.pop(each[name], None)
        else:
            of_one = (schema or {}).get("items")
            merged[each[name]] = strategic(merged.get(each[name]), each, of_one)
    return list(merged.values())


def _item(item: Any, name: str, where: str) -> _Object:
    key = item.get(name) if isinstance(item, dict) else None
    if not isinstance(item, dict) or isinstance(key, dict | list) or key is None:
        raise BadRequest(
            f"strategic merge patch: an item of {where} does not contain its merge key: {name}"
        )
    return item


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else []


def _less(items: list[Any], unwanted: list[Any]) -> list[Any]:
    # One set lookup per item: both lists may have hundreds of thousands.
    scalars = {item for item in unwanted if not isinstance(item, dict | list)}
    return [item for item in items if isinstance(item, dict | list) or item not in scalars]


def _replaces(patch: Mapping[str, Any]) -> bool:
    directive = patch.get("$patch")
    if directive not in (None, "merge", "replace"):
        raise BadRequest(f"strategic merge directive $patch: {directive} is not supported here")
    return directive == "replace"


def _apply_directive(result: dict[str, Any], key: str, value: Any) -> None:
    directive, _, field = key.partition("/")
    if directive == "$deleteFromPrimitiveList":
        result[field] = _less(_list(result.get(field)), _list(value))
    elif directive not in ("$setElementOrder", "$retainKeys", "$patch"):
        raise BadRequest(f"strategic merge directive {directive} is not supported here")


def json_patch(target: Any, operations: Any) -> Any:
    """
    Apply a JSON patch (RFC 6902).

    As in kube-apiserver, ``replace`` sets a missing member, and a missing ``value`` is null.

    :raises APIError: the patch does not apply (422).
    :raises BadRequest: the value is not a patch, or the result is nested too deep.
    :raises RequestEntityTooLarge: there are too many operations, they copy too much, or the result
        is too large.
    """
    if not isinstance(operations, list):
        raise BadRequest("error decoding patch: a JSON patch is a list of operations")
    if not all(isinstance(operation, dict) for operation in operations):
        raise BadRequest("error decoding patch: an operation of a JSON patch is an object")
    if len(operations) > _LIMIT_OPERATIONS:
        raise RequestEntityTooLarge(
            "Request entity too large: The allowed maximum operations in a JSON patch is "
            f"{_LIMIT_OPERATIONS}, got {len(operations)}"
        )
    result, copied_bytes, copied_values = copy.deepcopy(target), 0, 0
    for number, operation in enumerate(operations):
        if any(str(operation.get(key)).count("/") > _LIMIT_STEPS for key in ("path", "from")):
            raise _refused(f"operation {number} of the JSON patch: the path is too long")
        # Copying a document into itself doubles it each time, so what is copied is limited.
        copied = _copied(result, operation)
        copied_bytes += len(copied)
        copied_values += bodies.count_values(copied) if copied else 0
        if copied_bytes > _LIMIT_COPIED_BYTES:
            raise RequestEntityTooLarge("the JSON patch copies more than 3 MiB")
        if copied_values > bodies.OBJECT.values:
            raise RequestEntityTooLarge(
                f"the JSON patch copies more than {bodies.OBJECT.values} values"
            )
        result = _apply(result, _completed(operation, result), number)
    # The limit of an object is checked later, on the complete object, without managedFields if need be.
    bodies.check(result, bodies.JSON_PATCH.values)
    return result


def _completed(operation: Mapping[str, Any], target: Any) -> Mapping[str, Any]:
    """Adapt an operation to the library, which is stricter than Kubernetes."""
    # The library stores the value itself, and the operations that follow would change it.
    completed = dict(operation)
    if "value" in operation:
        completed["value"] = copy.deepcopy(operation["value"])
    if operation.get("op") in ("add", "replace", "test"):
        completed.setdefault("value", None)
    if operation.get("op") == "replace" and _is_member(target, operation.get("path")):
        completed["op"] = "add"  # it sets a member whether it exists or not
    return completed


def _is_member(target: Any, path: Any) -> bool:
    if not isinstance(path, str) or not path:
        return False
    try:
        return isinstance(jsonpointer.resolve_pointer(target, path.rpartition("/")[0]), dict)
    except (jsonpointer.JsonPointerException, TypeError, AttributeError):
        return False  # applying the patch reports the error


def _apply(target: Any, operation: Mapping[str, Any], number: int) -> Any:
    try:
        return jsonpatch.JsonPatch([operation]).apply(target, in_place=True)
    except jsonpatch.InvalidJsonPatch as error:
        problem = f"invalid operation: {error}"
    except jsonpatch.JsonPatchTestFailed:
        problem = "the value differs from the tested one"
    except (
        jsonpatch.JsonPatchException,
        jsonpointer.JsonPointerException,
        # The library indexes the value at the path without checking its type.
        TypeError,
        AttributeError,
        KeyError,
        IndexError,
        ValueError,
    ):
        problem = "there is no such path"
    except RecursionError:
        problem = "the value is nested too deep"
    kind, path = fields.shown(operation.get("op")), fields.shown(operation.get("path"))
    raise _refused(f"operation {number} of the JSON patch ({kind} {path}): {problem}")


def _refused(problem: str) -> APIError:
    return APIError(
        f"the server rejected our request due to an error in our request: {problem}",
        code=422,
        reason="Invalid",
    )


def _copied(target: Any, operation: Mapping[str, Any]) -> bytes:
    if operation.get("op") != "copy":
        return b""
    try:
        value = jsonpointer.resolve_pointer(target, str(operation.get("from")))
    except (jsonpointer.JsonPointerException, TypeError, AttributeError):
        return b""  # applying the patch reports the error
    if isinstance(value, jsonpointer.EndOfList):
        return b""  # likewise
    try:
        return json_bytes(value)
    except RecursionError:
        return b""  # likewise
