"""
Bodies of requests: JSON, YAML and, where kubectl insists, protobuf.

What comes out is plain JSON data, bounded in depth, whatever went in.
"""

from __future__ import annotations

import json
import math
from typing import Any

import yaml

from twisted_exec.api import protobuf
from twisted_exec.api.status import BadRequest, RequestEntityTooLarge, UnsupportedMediaType

_LIMIT_DEPTH = 64
# A YAML parser does far more work for a byte than a JSON parser.
_LIMIT_YAML_BYTES = 512 << 10

_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BaseLoader):  # type: ignore[misc]
    """YAML as JSON sees it: a date stays a string."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in _BaseLoader.yaml_implicit_resolvers.items()
}


def decode(content_type: str, raw: bytes) -> dict[str, Any]:
    """
    Read an object.

    :param content_type: the header; empty is taken as JSON.
    :raises BadRequest: it cannot be read, or is no object.
    :raises UnsupportedMediaType: of a type nobody reads here.
    """
    value = decode_any(content_type, raw)
    if not isinstance(value, dict):
        raise BadRequest("the body of the request is not an object")
    return value


def decode_any(content_type: str, raw: bytes) -> Any:
    """As :func:`decode`, for bodies that may be lists, as JSON patches are."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == protobuf.MEDIA_TYPE:
        return protobuf.decode(raw)
    if not media_type or media_type == "application/json" or media_type.endswith("+json"):
        value = _json(raw)
    elif media_type in ("application/yaml", "text/yaml") or media_type.endswith("+yaml"):
        value = _yaml(raw)
    else:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json, application/yaml"
        )
    _check(value)
    return value


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body of the request is not valid JSON: {error}") from None


def _yaml(raw: bytes) -> Any:
    if len(raw) > _LIMIT_YAML_BYTES:
        raise RequestEntityTooLarge(f"a YAML body may have up to {_LIMIT_YAML_BYTES} bytes")
    try:
        text = raw.decode("utf-8")
        for event in yaml.parse(text, Loader=_Loader):
            # A few hundred bytes of aliases can stand for gigabytes.
            if isinstance(event, yaml.AliasEvent):
                raise BadRequest("YAML aliases are not accepted")
        return yaml.load(text, Loader=_Loader)
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        told = " ".join(str(error).split())
        raise BadRequest(f"the body of the request is not valid YAML: {told}") from None


def _check(value: Any) -> None:
    level = [value]
    for _ in range(_LIMIT_DEPTH):
        level = [inner for item in level for inner in _children(item)]
        if not level:
            return
    raise BadRequest(f"the body of the request is nested more than {_LIMIT_DEPTH} levels deep")


def _check_text(text: str) -> None:
    if not text.isascii() and any("\ud800" <= mark <= "\udfff" for mark in text):
        raise BadRequest("the body of the request holds half of a character (a lone surrogate)")


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise BadRequest("the body of the request has a key that is not a string")
            _check_text(key)
        return list(value.values())
    if isinstance(value, list):
        return value
    if isinstance(value, str):
        _check_text(value)
        return []
    if isinstance(value, float) and not math.isfinite(value):
        # Python would store it as a word that no other JSON parser reads: one
        # such object, and nobody could list its kind any more.
        raise BadRequest("the body of the request holds a number that is too large, or none")
    if value is None or isinstance(value, bool | int | float):
        return []
    raise BadRequest(f"the body of the request holds a {type(value).__name__}, which is not JSON")
