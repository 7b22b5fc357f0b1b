"""
Answers of an API server: objects, errors and watch events.
"""

from __future__ import annotations

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
from twisted_exec.kube.transport import limits

MAX_EVENT_BYTES = 8 << 20

_TYPES: Mapping[int, type[APIError]] = {each.code: each for each in (NotFound, Conflict, Expired)}
"""
Errors about an object, which callers catch by class.

401 and 403 are missing on purpose: they are about our own identity.  A caller that asks about
another user (an access review, say) must not mistake them for the answer.
"""


def object_of(
    code: int,
    headers: Mapping[str, str],
    body: bytes,
    most_values: int = limits.MAX_VALUES,
) -> Object:
    """
    Return the object of a 2xx answer.

    :param most_values: as of :func:`.limits.loads`.
    :raises APIError: any other code, made of the Status in the body when there is one.
    """
    try:
        document = limits.loads(body, most_values)
    except limits.TooManyValues:
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
    if error.retry_after_seconds is None and headers.get("retry-after", "").isdigit():
        error.retry_after_seconds = min(int(headers["retry-after"][:6]), 3600)
    raise error


def is_object(obj: Any) -> bool:
    """Return whether a value has the metadata that every stored object has."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    return (
        isinstance(metadata, dict)
        and all(isinstance(metadata.get(key, ""), str) for key in ("namespace", "uid"))
        and isinstance(metadata.get("name"), str)
    )


def typed(error: APIError) -> APIError:
    """Return an error as an instance of the class by which callers of a client may catch it."""
    exists = error.reason == AlreadyExists.reason
    kind = AlreadyExists if exists else _TYPES.get(error.code, APIError)
    return error.as_class(kind)


class WatchEvents:
    """Splits a watch's body into events; each line is one JSON object."""

    def __init__(self, on_event: Callable[[str, Object], None]) -> None:
        self._on_event = on_event
        self._partial: list[bytes] = []
        self._size = 0

    def receive(self, data: bytes) -> None:
        """
        Handle bytes of the body, split anywhere.

        :raises APIError: an event is too large, malformed, or an ``ERROR``.
        """
        first, *lines = data.split(b"\n")
        self._hold(first)
        for line in lines:
            whole = b"".join(self._partial)
            self._partial, self._size = [], 0
            if whole.strip():
                self._deliver(whole)
            self._hold(line)

    def _hold(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > MAX_EVENT_BYTES:
            raise BadGateway(f"an event of a watch is larger than {MAX_EVENT_BYTES} bytes")
        if part:
            self._partial.append(part)

    def _deliver(self, line: bytes) -> None:
        try:
            event = limits.loads(line)
            kind, obj = event["type"], event["object"]
            if kind == "ERROR":
                raise typed(from_status(obj))
            if kind != "BOOKMARK" and not is_object(obj):
                raise ValueError("an event without an object")
            obj["metadata"].get("resourceVersion")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadGateway("the API server sent a watch event that is not one") from None
        self._on_event(kind, obj)
