"""
Request bodies: JSON, YAML and, where kubectl requires it, protobuf.

The result is always plain JSON data of bounded depth.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import yaml

from twisted_exec.api import protobuf
from twisted_exec.api.status import BadRequest, RequestEntityTooLarge, UnsupportedMediaType

LIMIT_DEPTH = 64
"""Limit for the nesting depth of a body."""

_LIMIT_DIGITS = 20
_MAX_DUPLICATES = 32
_LARGEST = 2**63 - 1
# A YAML parser does far more work per byte than a JSON parser.
_LIMIT_YAML_BYTES = 512 << 10
# The work grows with the number of values, and a value takes only a byte or two.
_LIMIT_YAML_VALUES = 1 << 16

_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BaseLoader):  # type: ignore[misc]
    """
    YAML 1.1 as Go's parser reads it: a date is a string, and so is 12:30 (not a base 60 number).
    """


_OTHERS = ("timestamp", "int", "float")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(_OTHERS)]
    for first, resolvers in _BaseLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)\Z"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan)\Z", re.I),
    list("-+0123456789."),
)


class BodyError(BadRequest):
    """A body that does not match its media type."""


def decode(content_type: str, raw: bytes, duplicates: list[str] | None = None) -> dict[str, Any]:
    """
    Decode an object.

    :param content_type: the header; empty means JSON.
    :param duplicates: receives the paths of repeated keys, of which the last one counts.
    :raises BadRequest: the body is malformed or not an object.
    :raises UnsupportedMediaType: the media type is not supported.
    """
    value = decode_any(content_type, raw, duplicates)
    if not isinstance(value, dict):
        raise BodyError("the body of the request is not an object")
    return value


def decode_any(content_type: str, raw: bytes, duplicates: list[str] | None = None) -> Any:
    """Decode a body that may also be a list, such as a JSON patch; see :func:`decode`."""
    media_type = content_type.partition(";")[0].strip().lower()
    repeated: list[str] = []
    if media_type == protobuf.MEDIA_TYPE:
        return protobuf.decode(raw)
    if not media_type or media_type == "application/json" or media_type.endswith("+json"):
        value = _json(raw, repeated)
    elif media_type in ("application/yaml", "text/yaml") or media_type.endswith("+yaml"):
        value = _yaml(raw, repeated)
    else:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: "
            f"application/json, application/yaml, {protobuf.MEDIA_TYPE}"
        )
    check(value)
    if duplicates is not None:
        duplicates += repeated
    return value


class _Objects:
    """Builds JSON objects and remembers those with repeated keys."""

    def __init__(self) -> None:
        self._doubled: dict[int, tuple[dict[str, Any], list[str]]] = {}

    def make(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Hook for :func:`json.loads`."""
        obj = dict(pairs)
        if len(obj) != len(pairs) and len(self._doubled) < _MAX_DUPLICATES:
            keys = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]
            # Keep a reference to the object: otherwise another object could get its id.
            self._doubled[id(obj)] = obj, keys
        return obj

    def paths(self, value: Any, path: str = "") -> Iterator[str]:
        """Yield the paths of repeated keys in ``value``."""
        if not self._doubled:
            return
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from self.paths(item, f"{path}[{index}]")
        elif isinstance(value, dict):
            here = f"{path}." if path else ""
            _, keys = self._doubled.get(id(value), (value, []))
            yield from (f"{here}{key}" for key in keys)
            for key, item in value.items():
                yield from self.paths(item, f"{here}{key}")


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _integer(text: str) -> int:
    # Longer numbers are not converted: that takes quadratic time.
    number = int(text) if len(text) <= _LIMIT_DIGITS else _LARGEST + 1
    if not -_LARGEST - 1 <= number <= _LARGEST:
        raise ValueError(f"number {text[:_LIMIT_DIGITS]} is out of the range of int64")
    return number


def _json(raw: bytes, duplicates: list[str]) -> Any:
    objects = _Objects()
    try:
        value = json.loads(
            raw.decode("utf-8"),
            parse_constant=_constant,
            parse_int=_integer,
            object_pairs_hook=objects.make,
        )
        duplicates += islice(objects.paths(value), _MAX_DUPLICATES)
    except (ValueError, RecursionError) as error:
        raise BodyError(f"the body of the request is not valid JSON: {error}") from None
    return value


def _yaml(raw: bytes, duplicates: list[str]) -> Any:
    if len(raw) > _LIMIT_YAML_BYTES:
        raise RequestEntityTooLarge(f"a YAML body may have up to {_LIMIT_YAML_BYTES} bytes")
    try:
        text = raw.decode("utf-8")
        _check_events(yaml.parse(text, Loader=_Loader))
        loader = _Loader(text)
        root = loader.get_single_node()
        duplicates += islice(_doubled_in(root), _MAX_DUPLICATES)
        return loader.construct_document(root) if root is not None else None
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
        raise BodyError(f"the body of the request is not valid YAML: {problem}") from None


def _doubled_in(node: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of repeated keys."""
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _doubled_in(item, f"{path}[{index}]")
    elif isinstance(node, yaml.MappingNode):
        keys = set()
        for key, value in node.value:
            here = f"{path}.{key.value}" if path else str(key.value)
            if isinstance(key.value, str) and key.value in keys:
                yield here
            keys.add(str(key.value))
            yield from _doubled_in(value, here)


def _check_events(events: Iterable[Any]) -> None:
    """Check the parser's events before any object is built."""
    depth = values = 0
    for event in events:
        values += isinstance(event, yaml.NodeEvent)
        if values > _LIMIT_YAML_VALUES:
            raise RequestEntityTooLarge(
                f"a YAML body may have up to {_LIMIT_YAML_VALUES} keys and values; "
                "a JSON body may have more"
            )
        # A few hundred bytes of aliases can expand to gigabytes.
        if isinstance(event, yaml.AliasEvent):
            raise BodyError("YAML aliases are not accepted")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > LIMIT_DEPTH:
            raise _too_deep()


def _too_deep() -> BodyError:
    return BodyError(f"the body of the request is nested more than {LIMIT_DEPTH} levels deep")


def check(value: Any) -> None:
    """
    Check that a computed object, such as the result of a patch, is within the limits of a body.

    :raises BadRequest: the object is nested deeper than :data:`LIMIT_DEPTH`, or is not plain JSON.
    """
    level = [value]
    for _ in range(LIMIT_DEPTH):
        level = [inner for item in level for inner in _children(item)]
        if not level:
            return
    raise _too_deep()


def _check_text(text: str) -> None:
    if not text.isascii() and any("\ud800" <= mark <= "\udfff" for mark in text):
        raise BodyError("the body of the request holds a lone surrogate")


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise BodyError("the body of the request has a key that is not a string")
            _check_text(key)
        return list(value.values())
    if isinstance(value, list):
        return value
    if isinstance(value, str):
        _check_text(value)
        return []
    if isinstance(value, float) and not math.isfinite(value):
        # Python would store infinity as a word that no other JSON parser accepts: a single such
        # object would make every list of its kind unreadable.
        raise BodyError("the body of the request holds a number that is too large, or not a number")
    if isinstance(value, int) and not -_LARGEST - 1 <= value <= _LARGEST:
        raise BodyError("the body of the request holds a number out of the range of int64")
    if value is None or isinstance(value, bool | int | float):
        return []
    raise BodyError(f"the body of the request holds a {type(value).__name__}, which is not JSON")
