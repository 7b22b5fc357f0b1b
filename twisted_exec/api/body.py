"""
Bodies of requests: JSON, YAML and, where kubectl insists, protobuf.

What comes out is plain JSON data, bounded in depth, whatever went in.
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
"""How deep what is read is nested at most."""

_LIMIT_DIGITS = 20
_LIMIT_TOLD = 32
_LARGEST = 2**63 - 1
# A YAML parser does far more work for a byte than a JSON parser.
_LIMIT_YAML_BYTES = 512 << 10
# ... and that by the value: a byte or two are enough for one.
_LIMIT_YAML_VALUES = 1 << 16

_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BaseLoader):  # type: ignore[misc]
    """YAML as Go's parser sees it: a date is a string, 12:30 is none to the base of sixty."""


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
    """A body that is not what its media type says."""


def decode(content_type: str, raw: bytes, duplicates: list[str] | None = None) -> dict[str, Any]:
    """
    Read an object.

    :param content_type: the header; empty is taken as JSON.
    :param duplicates: gets the paths of keys that are there more than once, of which the
        last one counts.
    :raises BadRequest: it cannot be read, or is no object.
    :raises UnsupportedMediaType: of a type nobody reads here.
    """
    value = decode_any(content_type, raw, duplicates)
    if not isinstance(value, dict):
        raise BodyError("the body of the request is not an object")
    return value


def decode_any(content_type: str, raw: bytes, duplicates: list[str] | None = None) -> Any:
    """As :func:`decode`, for bodies that may be lists, as JSON patches are."""
    media_type = content_type.partition(";")[0].strip().lower()
    found: list[str] = []
    if media_type == protobuf.MEDIA_TYPE:
        return protobuf.decode(raw)
    if not media_type or media_type == "application/json" or media_type.endswith("+json"):
        value = _json(raw, found)
    elif media_type in ("application/yaml", "text/yaml") or media_type.endswith("+yaml"):
        value = _yaml(raw, found)
    else:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: "
            f"application/json, application/yaml, {protobuf.MEDIA_TYPE}"
        )
    check(value)
    if duplicates is not None:
        duplicates += found
    return value


class _Objects:
    """Makes JSON's objects, and remembers those that have a key more than once."""

    def __init__(self) -> None:
        self._doubled: dict[int, tuple[dict[str, Any], list[str]]] = {}

    def make(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """For :func:`json.loads`."""
        made = dict(pairs)
        if len(made) != len(pairs) and len(self._doubled) < _LIMIT_TOLD:
            keys = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]
            # With the object itself: its identity must not become another's.
            self._doubled[id(made)] = made, keys
        return made

    def paths(self, value: Any, path: str = "") -> Iterator[str]:
        """Where in ``value`` keys are doubled."""
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
    # Longer ones are not even made: that alone takes quadratic time.
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
        duplicates += islice(objects.paths(value), _LIMIT_TOLD)
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
        duplicates += islice(_doubled_in(root), _LIMIT_TOLD)
        return loader.construct_document(root) if root is not None else None
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        told = " ".join(str(error).split())
        raise BodyError(f"the body of the request is not valid YAML: {told}") from None


def _doubled_in(node: Any, path: str = "") -> Iterator[str]:
    """The paths of keys that a mapping has more than once."""
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _doubled_in(item, f"{path}[{index}]")
    elif isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            here = f"{path}.{key.value}" if path else str(key.value)
            if isinstance(key.value, str) and key.value in seen:
                yield here
            seen.add(str(key.value))
            yield from _doubled_in(value, here)


def _check_events(events: Iterable[Any]) -> None:
    """What the parser tells, before anything is made of it."""
    depth = values = 0
    for event in events:
        values += isinstance(event, yaml.NodeEvent)
        if values > _LIMIT_YAML_VALUES:
            raise RequestEntityTooLarge(
                f"a YAML body may have up to {_LIMIT_YAML_VALUES} keys and values; "
                "a JSON body may have more"
            )
        # A few hundred bytes of aliases can stand for gigabytes.
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
    What is made of a body, as a patch makes it, is bounded as what is read.

    :raises BadRequest: it is nested deeper than :data:`LIMIT_DEPTH`, or is not plain JSON.
    """
    level = [value]
    for _ in range(LIMIT_DEPTH):
        level = [inner for item in level for inner in _children(item)]
        if not level:
            return
    raise _too_deep()


def _check_text(text: str) -> None:
    if not text.isascii() and any("\ud800" <= mark <= "\udfff" for mark in text):
        raise BodyError("the body of the request holds half of a character (a lone surrogate)")


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
        # Python would store it as a word that no other JSON parser reads: one
        # such object, and nobody could list its kind any more.
        raise BodyError("the body of the request holds a number that is too large, or none")
    if isinstance(value, int) and not -_LARGEST - 1 <= value <= _LARGEST:
        raise BodyError("the body of the request holds a number out of the range of int64")
    if value is None or isinstance(value, bool | int | float):
        return []
    raise BodyError(f"the body of the request holds a {type(value).__name__}, which is not JSON")
