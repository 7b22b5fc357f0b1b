"""
Patches: merge (RFC 7386), JSON patch (RFC 6902), and strategic merge as far as it is a merge.

None of these functions changes its arguments.  A strategic merge patch is
taken as a merge patch, but that lists whose items have a key are merged item by item, and so is
``metadata.finalizers``, which kubectl patches element by element; other lists are replaced.  What a server-side apply comes to is
said in :mod:`twisted_exec.api.managedfields.updates`; here its body is read.

Which refusal is 400 and which 422 is as kube-apiserver has it
(``k8s.io/apiserver/pkg/endpoints/handlers/patch.go``): a body that is no patch
is a bad request, a patch that cannot be carried out on this object is invalid.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

import jsonpatch
import jsonpointer

from twisted_exec.api import body, fields
from twisted_exec.api.schema import Schema
from twisted_exec.api.status import APIError, BadRequest, RequestEntityTooLarge

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

TYPES = (JSON, MERGE, STRATEGIC, APPLY)
"""The media types of patches, as a refusal lists them."""

_LIMIT_OPERATIONS = 10_000
_LIMIT_COPIED_BYTES = 3 << 20
# No object is nested deeper; and each step of a path takes its time.
_LIMIT_STEPS = body.LIMIT_DEPTH

_Object = dict[str, Any]


def reader(
    media_type: str,
    raw: bytes,
    duplicates: list[str] | None = None,
    schema: Schema | None = None,
) -> Callable[[_Object], _Object]:
    """
    What carries out a patch.

    :param media_type: :data:`MERGE`, :data:`JSON` or :data:`STRATEGIC`.
    :param raw: the request's body; what is wrong with it is said when it is
        carried out, since whether there is an object at all comes first.
    :param duplicates: as for :func:`twisted_exec.api.body.decode`, then.
    :param schema: of the objects, which says what lists have keys; ``None``: none have.
    :return: from an object, which stays as it is, to the new one.  It raises
        :class:`BadRequest` for what is no patch or leaves no object, and
        :class:`APIError` with code 422 for what cannot be carried out.
    """

    def patched(old: _Object) -> _Object:
        found: list[str] = []
        wanted = _read(media_type, raw, "patch", found)
        if duplicates is not None:
            duplicates[:] = found
        if media_type == JSON:
            return _whole(json_patch(old, wanted), old)
        if not isinstance(wanted, dict):
            raise BadRequest("error decoding patch: it is not an object")
        if media_type == STRATEGIC:
            return _whole(strategic(old, wanted, schema), old)
        return _whole(merge(old, wanted), old)

    return patched


def _read(media_type: str, raw: bytes, what: str, duplicates: list[str]) -> Any:
    try:
        return body.decode_any(media_type, raw, duplicates)
    except BadRequest as error:
        raise BadRequest(f"error decoding {what}: {error.message}") from None


def _whole(obj: Any, old: _Object) -> _Object:
    if not isinstance(obj, dict):
        raise _refused("the patch leaves no object")
    if not isinstance(obj.get("metadata"), dict):
        raise BadRequest(
            f"the name of the object ({old['metadata']['name']} based on URL) was "
            "undeterminable: name must be provided"
        )
    return obj


def configuration(raw: bytes, duplicates: list[str] | None = None) -> _Object:
    """
    The body of a server-side apply: YAML or JSON.  ``null`` and nothing are an empty one.

    Most clients send JSON, which is read as such: that takes a fraction of the time, and it
    may be as large as any object.

    :param duplicates: as for :func:`twisted_exec.api.body.decode`.
    :raises BadRequest: it cannot be read, or is no object.
    """
    duplicates = [] if duplicates is None else duplicates
    try:
        wanted = body.decode_any("application/json", raw, duplicates)
    except body.BodyError:
        wanted = _read(APPLY, raw, "YAML", duplicates)
    if wanted is not None and not isinstance(wanted, dict):
        raise BadRequest("error decoding YAML: it is not an object")
    return wanted or {}


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


def strategic(target: Any, patch: Any, schema: Schema | None = None) -> Any:
    """
    A strategic merge patch as a merge patch.

    ``$setElementOrder`` and ``$retainKeys`` only order and tidy and are left
    out; ``$patch: replace``, ``$patch: delete`` of an item and ``$deleteFromPrimitiveList`` are
    obeyed.

    :param schema: of the target, as far as it is known.
    :raises BadRequest: another directive, or an item without its key.
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
    found: Schema | None = schema.get("properties", {}).get(key)
    return schema.get("additionalProperties") if found is None else found


def _key_of(schema: Schema | None) -> str:
    """By which field a list's items are told apart; empty when that is not one field."""
    keys = (schema or {}).get("x-kubernetes-list-map-keys", ())
    return str(keys[0]) if len(keys) == 1 else ""


def _merged(
    before: list[Any], items: list[Any], name: str, schema: Schema | None, where: str
) -> list[Any]:
    """A list into whose items others are merged; new ones are at its end."""
    told = [_item(each, name, where) for each in items if each != {"$patch": "replace"}]
    kept = {} if len(told) < len(items) else {each.get(name): each for each in before}
    for each in told:
        if each.get("$patch") == "delete":
            kept.pop(each[name], None)
        else:
            of_one = (schema or {}).get("items")
            kept[each[name]] = strategic(kept.get(each[name]), each, of_one)
    return list(kept.values())


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
    """Without the scalars in ``unwanted``.  What is none has no place in such lists anyway."""
    # One comparison for each: both may have hundreds of thousands.
    known = {item for item in unwanted if not isinstance(item, dict | list)}
    return [item for item in items if isinstance(item, dict | list) or item not in known]


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
    RFC 6902.

    As in kube-apiserver, ``replace`` sets a member that is not there, and a
    missing ``value`` is null.

    :raises BadRequest: it is not a patch.
    :raises APIError: 422, an operation cannot be carried out, or a test failed.
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
    result, copied_bytes = copy.deepcopy(target), 0
    for number, operation in enumerate(operations):
        if any(str(operation.get(key)).count("/") > _LIMIT_STEPS for key in ("path", "from")):
            raise _refused(f"operation {number} of the JSON patch: there is no path so long")
        # Copying a document into itself duplicates it each time: count what is copied.
        copied_bytes += _copied_bytes(result, operation)
        if copied_bytes > _LIMIT_COPIED_BYTES:
            raise RequestEntityTooLarge("the JSON patch copies more than 3 MiB")
        result = _apply(result, _completed(operation, result), number)
    body.check(result)
    return result


def _completed(operation: Mapping[str, Any], target: Any) -> Mapping[str, Any]:
    """An operation for the library, which is stricter than Kubernetes is."""
    completed = dict(operation)
    if operation.get("op") in ("add", "replace", "test"):
        completed.setdefault("value", None)
    if operation.get("op") == "replace" and _is_member(target, operation.get("path")):
        completed["op"] = "add"  # which sets it, there or not
    return completed


def _is_member(target: Any, path: Any) -> bool:
    if not isinstance(path, str) or not path:
        return False
    try:
        return isinstance(jsonpointer.resolve_pointer(target, path.rpartition("/")[0]), dict)
    except (jsonpointer.JsonPointerException, TypeError, AttributeError):
        return False  # applying it says what is wrong


def _apply(target: Any, operation: Mapping[str, Any], number: int) -> Any:
    try:
        return jsonpatch.JsonPatch([operation]).apply(target, in_place=True)
    except jsonpatch.InvalidJsonPatch as error:
        told = f"it is none: {error}"
    except jsonpatch.JsonPatchTestFailed:
        told = "the value there is not the one that is tested for"
    except (
        jsonpatch.JsonPatchException,
        jsonpointer.JsonPointerException,
        # The library indexes what the path names without asking what it is.
        TypeError,
        AttributeError,
        KeyError,
        IndexError,
        ValueError,
    ):
        told = "there is no such path"
    except RecursionError:
        told = "what is there is nested too deep"
    kind, path = fields.shown(operation.get("op")), fields.shown(operation.get("path"))
    raise _refused(f"operation {number} of the JSON patch ({kind} {path}): {told}")


def _refused(told: str) -> APIError:
    return APIError(
        f"the server rejected our request due to an error in our request: {told}",
        code=422,
        reason="Invalid",
    )


def _copied_bytes(target: Any, operation: Mapping[str, Any]) -> int:
    if operation.get("op") != "copy":
        return 0
    try:
        value = jsonpointer.resolve_pointer(target, str(operation.get("from")))
    except (jsonpointer.JsonPointerException, TypeError, AttributeError):
        return 0  # applying it says what is wrong
    if isinstance(value, jsonpointer.EndOfList):
        return 0  # likewise: there is nothing
    try:
        return len(json.dumps(value))
    except RecursionError:
        return 0  # likewise
