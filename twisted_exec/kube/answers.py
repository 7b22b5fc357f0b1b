"""Objects and events in answers of servers that we may not trust, with limits of size and nesting."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadGateway,
    Conflict,
    Expired,
    NotFound,
    from_code,
    from_status,
)
from twisted_exec.kube.interfaces import Object

MAX_DEPTH = 100
MAX_VALUES = 2 << 20
"""Limit for a document without a limit of its own."""

# An unterminated string matches up to the end, so that the search stays linear.
_MARK = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)

_SEPARATORS = (b",", b"[", b"{")
MAX_EVENT_BYTES = 8 << 20

_TYPES: Mapping[int, type[APIError]] = {each.code: each for each in (NotFound, Conflict, Expired)}
"""
Errors about an object, which callers catch by class.

401 and 403 are missing on purpose: they are about our own identity.
"""


class TooManyValues(ValueError):
    """A document has more values than its limit, the argument."""


def loads(content: bytes, most_values: int = MAX_VALUES) -> Any:
    """
    Parse a JSON document.

    :raises ValueError: it cannot be parsed.
    :raises TooManyValues: it may have more values than ``most_values``.
    """
    # Counted before parsing: an empty object takes three bytes here and about seventy of memory.
    if len(content) > most_values and sum(map(content.count, _SEPARATORS)) > most_values:
        raise TooManyValues(most_values)
    try:
        return json.loads(content)
    except RecursionError:
        pass
    # An API server stores thousands of levels in a field without a schema.  One such object must
    # not make every list with it unreadable.
    try:
        return json.loads(cut(content))
    except RecursionError:  # the caller's own stack is deep already
        raise ValueError("it is nested too deep") from None


def cut(content: bytes) -> bytes:
    """Replace lists and objects below :data:`MAX_DEPTH` levels by ``null``."""
    parts: list[bytes] = []
    depth = begin = 0
    for mark in _MARK.finditer(content):
        kind = mark[0]
        if kind in (b"[", b"{"):
            depth += 1
            if depth == MAX_DEPTH + 1:
                parts += [content[begin : mark.start()], b"null"]
                begin = len(content)
        elif kind in (b"]", b"}"):
            if depth == MAX_DEPTH + 1:
                begin = mark.end()
            depth -= 1
    return b"".join([*parts, content[begin:]])


def object_of(
    code: int,
    headers: Mapping[str, str],
    body: bytes,
    most_values: int = MAX_VALUES,
) -> Object:
    """
    Return the object of a 2xx answer.

    :raises APIError: the answer is an error, or no object, or has too many values.
    """
    try:
        document = loads(body, most_values)
    except TooManyValues:
        raise BadGateway(f"the API server's answer has more than {most_values} values") from None
    except ValueError:
        document = None
    if 200 <= code < 300:
        if not isinstance(document, dict):
            raise BadGateway(f"the API server answered {code} with something other than an object")
        return document
    if 300 <= code < 400:
        raise BadGateway(f"the API server answered {code}; redirects are not followed")
    if isinstance(document, dict) and document.get("kind") == "Status":
        error = from_status(document, code)
    else:
        text = body[:200].decode("utf-8", "replace").strip() or f"the server answered {code}"
        error = from_code(code, " ".join(text.split()))
    error = typed(error)
    # The other form of Retry-After, a date (RFC 9110 10.2.3), counts as none.
    if error.retry_after_seconds is None and headers.get("retry-after", "").isdecimal():
        error.retry_after_seconds = min(int(headers["retry-after"][:6]), 3600)
    raise error


def is_object(obj: Any) -> bool:
    """Return whether a value has the metadata of a stored object."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    return (
        isinstance(metadata, dict)
        and all(isinstance(metadata.get(key, ""), str) for key in ("namespace", "uid"))
        and isinstance(metadata.get("name"), str)
    )


def typed(error: APIError) -> APIError:
    """Return an error as an instance of the class by which callers may catch it."""
    exists = error.reason == AlreadyExists.reason
    kind = AlreadyExists if exists else _TYPES.get(error.code, APIError)
    return error.as_class(kind)


class WatchEvents:
    """Splits a watch's body into events."""

    def __init__(self, on_event: Callable[[str, Object], None]) -> None:
        self._on_event = on_event
        self._partial = bytearray()

    def receive(self, data: bytes) -> None:
        """
        Handle bytes of the body, split anywhere.

        :raises APIError: an event is too large, malformed, or an ``ERROR``.
        """
        first, *lines = data.split(b"\n")
        self._hold(first)
        for line in lines:
            whole, self._partial = bytes(self._partial), bytearray()
            if whole.strip():
                self._deliver(whole)
            self._hold(line)

    def _hold(self, part: bytes) -> None:
        if len(self._partial) + len(part) > MAX_EVENT_BYTES:
            raise BadGateway(f"an event of a watch is larger than {MAX_EVENT_BYTES} bytes")
        self._partial += part

    def _deliver(self, line: bytes) -> None:
        try:
            event = loads(line)
            kind, obj = event["type"], event["object"]
            if kind == "ERROR":
                raise typed(from_status(obj))
            if kind != "BOOKMARK" and not is_object(obj):
                raise ValueError("an event without an object")
            # Only to fail here: a BOOKMARK has no name, but needs metadata as well.
            obj["metadata"].get("resourceVersion")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadGateway("the API server sent a watch event that is not one") from None
        self._on_event(kind, obj)
