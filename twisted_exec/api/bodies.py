"""
Request bodies: JSON, YAML and, where kubectl requires it, protobuf.

The result is plain JSON data of bounded depth and size.  Values are counted before they are
decoded, because decoding many small values is expensive.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from twisted_exec.api import protobuf
from twisted_exec.api.status import BadRequest, RequestEntityTooLarge, UnsupportedMediaType
from twisted_exec.api.yaml_reader import Rules, TooDeep, TooMany, parse_yaml

LIMIT_DEPTH = 64
"""Limit for the nesting depth of a body."""

_LIMIT_DIGITS = 20
_MAX_DUPLICATES = 32
_MAX_STEP = 256
_LARGEST = 2**63 - 1
# A YAML parser does far more work per byte than a JSON parser.
_LIMIT_YAML_BYTES = 512 << 10
_WHITE_SPACE = b" \t\r\n"
_WINDOW_BYTES = 64 << 10
_BACKSLASHES = re.compile(rb"\\*")


@dataclass(frozen=True)
class Limit:
    """
    Largest acceptable body.

    :param values: objects, lists and scalars together; in YAML keys as well; fields in protobuf.
    """

    size_bytes: int
    values: int


OBJECT = Limit(4 << 20, 1 << 14)
"""Limit for objects and patches."""

JSON_PATCH = Limit(4 << 20, 1 << 16)
"""Limit for JSON patches."""

REVIEW = Limit(64 << 10, 1 << 11)
"""Limit for small requests, such as reviews, tokens, bindings and options of a delete."""


class BodyError(BadRequest):
    """A body that does not match its media type."""


def decode(
    content_type: str,
    raw: bytes,
    duplicates: list[str] | None = None,
    limit: Limit = OBJECT,
) -> dict[str, Any]:
    """
    Decode an object.

    :param content_type: the header; empty means JSON.
    :param duplicates: receives paths of repeated keys.
    :raises BadRequest: the body is malformed or not an object.
    :raises RequestEntityTooLarge: the body exceeds the limit.
    :raises UnsupportedMediaType: the media type is not supported.
    """
    value = decode_any(content_type, raw, duplicates, limit)
    if not isinstance(value, dict):
        raise BodyError("the body of the request is not an object")
    return value


def decode_any(
    content_type: str,
    raw: bytes,
    duplicates: list[str] | None = None,
    limit: Limit = OBJECT,
) -> Any:
    """Decode a body that may also be a list, such as a JSON patch; see :func:`decode`."""
    if len(raw) > limit.size_bytes:
        raise RequestEntityTooLarge(
            f"the body of the request has {len(raw)} bytes; a request of this kind may have up to "
            f"{limit.size_bytes}: send less in one request"
        )
    media_type = content_type.partition(";")[0].strip().lower()
    repeated: list[str] = []
    if media_type == protobuf.MEDIA_TYPE:
        return protobuf.decode(raw, limit.values)
    if not media_type or media_type == "application/json" or media_type.endswith("+json"):
        check_values(raw, limit.values)
        value = _json(raw, repeated)
    elif media_type in ("application/yaml", "text/yaml") or media_type.endswith("+yaml"):
        value = _yaml(raw, repeated, limit.values)
    else:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: "
            f"application/json, application/yaml, {protobuf.MEDIA_TYPE}"
        )
    check(value, limit.values)
    if duplicates is not None:
        duplicates += repeated
    return value


def most_values(text: bytes) -> int:
    """Return an upper bound for the number of values in JSON."""
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")


def check_values(text: bytes, limit: int = OBJECT.values) -> None:
    """
    Check the number of values in JSON before it is decoded.

    Text that is not JSON may pass.

    :raises RequestEntityTooLarge: there are more.
    """
    if len(text) <= _WINDOW_BYTES and most_values(text) <= limit:
        return
    if count_values(text, limit) > limit:
        raise _too_many(limit)


def _too_many(limit: int) -> RequestEntityTooLarge:
    return RequestEntityTooLarge(
        f"the object or the body of the request has more than {limit} values, which is the limit "
        "for requests of this kind: send less in one request"
    )


def count_values(text: bytes, limit: int = OBJECT.values, window_bytes: int = _WINDOW_BYTES) -> int:
    """Count the values in JSON; a number above ``limit`` may be inexact."""
    values, last, quote = 1, b"", b""
    for window in _windows(text, window_bytes):
        # Without escapes each quote begins or ends a string.  Pairs of backslashes go first,
        # because the quote after a pair is not escaped.
        window = window.replace(b"\\\\", b"").replace(b'\\"', b"")
        pieces = (quote + window).split(b'"')
        quote = b"" if len(pieces) % 2 else b'"'  # the next window begins within a string
        # Quotes in the place of strings: a list with a single string is not empty.
        bare = b'"'.join(pieces[::2]).translate(None, _WHITE_SPACE)
        # In a container the commas are one fewer than the values, unless it is empty.
        values += most_values(bare) - 1
        bare = last + bare
        values -= bare.count(b"[]") + bare.count(b"{}")
        last = bare[-1:]
        if values > limit + 1:  # by one: an empty container may cross the end of a window
            break
    return values


def _windows(text: bytes, window_bytes: int) -> Iterator[bytes]:
    """
    Yield a text in pieces, so that no call into C takes long.

    No piece ends between a backslash and the character behind it.
    """
    start = 0
    while start < len(text):
        end = start + window_bytes
        if text[end - 1 : end] == b"\\":
            end += len(_BACKSLASHES.match(text, end)[0]) + 1  # type: ignore[index]
        yield text[start:end]
        start = end


class _Objects:
    def __init__(self) -> None:
        self._doubled: dict[int, tuple[dict[str, Any], list[str]]] = {}

    def make(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        obj = dict(pairs)
        if len(obj) != len(pairs) and len(self._doubled) < _MAX_DUPLICATES:
            keys = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]
            # Keep a reference to the object: otherwise another object could get its id.
            self._doubled[id(obj)] = obj, keys
        return obj

    def paths(self, value: Any) -> Iterator[str]:
        """Yield the paths of repeated keys."""
        return self._paths(value, []) if self._doubled else iter(())

    def _paths(self, value: Any, path: list[str | int]) -> Iterator[str]:
        items: Iterable[tuple[str | int, Any]] = ()
        if isinstance(value, list):
            items = enumerate(value)
        elif isinstance(value, dict):
            _, keys = self._doubled.get(id(value), (value, []))
            yield from (_shown_path([*path, key]) for key in keys)
            items = value.items()
        for step, item in items:
            if isinstance(item, dict | list):
                path.append(step)
                yield from self._paths(item, path)
                path.pop()


def _shown_path(path: Sequence[str | int]) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else f".{step[:_MAX_STEP]}" for step in path]
    return "".join(steps).removeprefix(".")


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


def _yaml(raw: bytes, duplicates: list[str], limit: int) -> Any:
    if len(raw) > _LIMIT_YAML_BYTES:
        raise RequestEntityTooLarge(f"a YAML body may have up to {_LIMIT_YAML_BYTES} bytes")

    def repeated(path: list[str | int]) -> None:
        if len(duplicates) < _MAX_DUPLICATES:
            duplicates.append(_shown_path(path))

    try:
        return parse_yaml(raw.decode("utf-8"), Rules(limit, LIMIT_DEPTH, repeated=repeated))
    except TooDeep:
        raise _too_deep() from None
    except TooMany:
        raise RequestEntityTooLarge(
            f"a YAML body may have up to {limit} keys and values; a JSON body may have more"
        ) from None
    except ValueError as error:
        problem = str(error).removeprefix("not YAML: ")
        raise BodyError(f"the body of the request is not valid YAML: {problem}") from None


def _too_deep() -> BodyError:
    return BodyError(f"the body of the request is nested more than {LIMIT_DEPTH} levels deep")


def check(value: Any, limit: int = OBJECT.values) -> None:
    """
    Check that a computed object is within the limits of a body.

    :raises BadRequest: the object is nested deeper than :data:`LIMIT_DEPTH`, or is not plain JSON.
    :raises RequestEntityTooLarge: the object has more values.
    """
    level, values = [value], 0
    for _ in range(LIMIT_DEPTH):
        values += len(level)
        if values > limit:
            raise _too_many(limit)
        level = [inner for item in level for inner in _children(item)]
        if not level:
            return
    raise _too_deep()


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise BodyError("the body of the request holds a lone surrogate") from None


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
