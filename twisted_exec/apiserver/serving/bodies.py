"""
The bodies of requests and responses.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any
from weakref import WeakValueDictionary

from twisted_exec.api import bodies, fields, patch, table, times
from twisted_exec.api.encoded import Encoded, json_bytes, json_of, metadata_json_of
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.status import BadRequest, Invalid, UnsupportedMediaType, one_line
from twisted_exec.apiserver.serving.fairness import FairQueue, Work, cost_of_body
from twisted_exec.apiserver.serving.filters import APIRequest
from twisted_exec.apiserver.serving.query import ResponseForm, WriteOptions
from twisted_exec.storage.interfaces import Event
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.site import Request

_SHOWN_BYTES = 30
_POLICIES = ("Background", "Foreground", "Orphan")
_DELETE_TYPES = {
    "gracePeriodSeconds": "integer",
    "orphanDependents": "boolean",
    "preconditions": "object",
    "propagationPolicy": "string",
    "dryRun": "array",
}


def content_type(request: Request) -> str:
    """The media type of the request's body, as sent."""
    return request.requestHeaders.getRawHeaders(b"content-type", [b""])[0].decode("latin-1")


def work_of(context: RequestContext, queue: FairQueue) -> Work:
    """Return the work of a request, which costs what its body costs."""
    request = context.request
    cost = cost_of_body(content_type(request), request.content.getvalue())
    return Work(queue, context.user, cost)


async def read_body(
    request: Request,
    kind: Kind,
    options: WriteOptions,
    work: Work,
    limit: bodies.Limit = bodies.REVIEW,
) -> Object:
    """
    Decode the object in a request's body.

    :param options: receives the duplicate keys.
    :param limit: by default that of requests that store nothing.
    :raises BadRequest: it cannot be decoded.
    :raises RequestEntityTooLarge: it exceeds the limit.
    :raises TooManyRequests: too many large bodies wait.
    :raises UnsupportedMediaType: its media type is not supported.
    """
    raw = request.content.getvalue()
    return await work.run(_decode_object, content_type(request), raw, kind, options, limit)


def _decode_object(
    media_type: str, raw: bytes, kind: Kind, options: WriteOptions, limit: bodies.Limit
) -> Object:
    try:
        return bodies.decode(media_type, raw, options.duplicates, limit)
    except bodies.BodyError as error:
        raise BadRequest(
            f"the object provided is unrecognized (must be of type {kind.resource.kind}): "
            f"{error.message} ({_summary(raw)})"
        ) from None


def _summary(raw: bytes) -> str:
    start = raw[:_SHOWN_BYTES]
    text = start.decode("utf-8", "replace") if raw.startswith(b"{") else start.hex()
    return one_line(text) + (" ..." if len(raw) > _SHOWN_BYTES else "") if raw else "<empty>"


def patch_type(request: Request) -> str:
    """
    Return the media type of a patch.

    :raises UnsupportedMediaType: it is not that of a patch.
    """
    media_type = content_type(request).partition(";")[0].strip().lower()
    if media_type not in patch.TYPES:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: "
            f"{', '.join(patch.TYPES)}"
        )
    return media_type


async def delete_options(request: APIRequest, work: Work) -> Object:
    """
    Return the options of a delete, from the request's body or its query.

    :raises BadRequest: they are no ``DeleteOptions``.
    :raises Invalid: the propagation policy is not valid.
    """
    raw = request.content.getvalue()
    # The query counts only without a body.  Go writes null for options that are not set.
    kind, is_empty = content_type(request), raw.strip() in (b"", b"null")
    if is_empty:
        submitted = _from_query(request)
    else:
        submitted = await work.run(bodies.decode, kind, raw, None, bodies.REVIEW)
    if submitted.get("kind", "DeleteOptions") != "DeleteOptions":
        raise BadRequest(
            f"the body of a delete is no {fields.shown(submitted['kind'])}: DeleteOptions"
        )
    _check_types(submitted)
    if causes := _propagation_causes(submitted):
        raise Invalid("DeleteOptions", "", causes, "meta.k8s.io")
    return submitted


def _check_types(submitted: Object) -> None:
    values = [(key, submitted.get(key), kind) for key, kind in _DELETE_TYPES.items()]
    preconditions = submitted.get("preconditions")
    if isinstance(preconditions, dict):
        values += [
            (f"preconditions.{key}", value, "string") for key, value in preconditions.items()
        ]
    for key, value, kind in values:
        if value is not None and fields.json_type(value) != kind:
            raise BadRequest(
                'DeleteOptions in version "v1" cannot be handled as a DeleteOptions: '
                f"{key} in body must be of type {kind}: {fields.shown(fields.json_type(value))}"
            )


def _from_query(request: APIRequest) -> Object:
    query = request.query
    submitted: Object = {}
    if query.text("gracePeriodSeconds"):
        submitted["gracePeriodSeconds"] = query.number("gracePeriodSeconds")
    if query.text("propagationPolicy"):
        submitted["propagationPolicy"] = query.text("propagationPolicy")
    if query.text("orphanDependents"):
        submitted["orphanDependents"] = query.flag("orphanDependents")
    return submitted


def _propagation_causes(submitted: Object) -> list[Cause]:
    policy = submitted.get("propagationPolicy")
    if policy is None:
        return []
    if submitted.get("orphanDependents") is not None:
        both = "orphanDependents and deletionPropagation cannot be both set"
        return [fields.invalid("propagationPolicy", policy, both)]
    if policy not in _POLICIES:
        return [fields.not_supported("propagationPolicy", policy, [*_POLICIES, "nil"])]
    return []


PIECE_BYTES = 64 << 10
"""Approximate size of a list's pieces; a single larger object is one piece."""

_LATEST_CHANGES = 4

PIECE_ROWS = 25
"""Largest number of a Table's rows in a piece."""

_PARTIAL = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'


def partial_json(obj: Object) -> bytes:
    """Encode an object's ``PartialObjectMetadata``."""
    return _PARTIAL + metadata_json_of(obj) + b"}"


def row_json(kind: Kind, obj: Object, now: float, include: str) -> bytes:
    """Encode one object as a row of a Table; see :func:`twisted_exec.api.table.row`."""
    row = b'{"cells":[%b]' % _cells_json(kind, obj, now)
    if include == "None":
        return row + b"}"
    encoded = json_of(obj) if include == "Object" else partial_json(obj)
    return row + b',"object":' + encoded + b"}"


def _cells_json(kind: Kind, obj: Object, now: float) -> bytes:
    kept = obj.row if isinstance(obj, Encoded) else None
    # Versions of a group are kinds that share a table and may have different columns.
    if kept is None or kept[0] is not kind:
        cells = table.lasting_cells(kind, obj)
        quoted = ",".join('"\0"' if isinstance(cell, float) else _quoted(cell) for cell in cells)
        kept = kind, quoted.encode("ascii"), *(cell for cell in cells if isinstance(cell, float))
        if isinstance(obj, Encoded):
            obj.row = kept
    _, text, *moments = kept
    for moment in moments:  # quoted cells have no control characters
        text = text.replace(b"\0", times.human(now - moment).encode("ascii"), 1)
    return text  # type: ignore[no-any-return]


def object_json(
    kind: Kind, obj: Object, form: ResponseForm, now: float, *, columns: bool = True
) -> bytes:
    """
    Encode one object in the requested form.

    :param now: seconds since the epoch, for ages.
    :param columns: a Table includes its column definitions.
    """
    if form.shape == "Partial":
        return partial_json(obj)
    if form.shape != "Table":
        return json_of(obj)
    metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
    before, after = _around(table.table(kind, [], now, metadata=metadata, columns=columns), "rows")
    return before + row_json(kind, obj, now, form.include) + after


def list_pieces(
    kind: Kind, items: Sequence[Object], metadata: Object, form: ResponseForm, now: float
) -> Iterator[bytes]:
    """Encode a list of objects in the requested form, each piece on demand."""
    before, after = _around(empty_list(kind, metadata, form), _items_of(form))
    parts = 2 * PIECE_ROWS if form.shape == "Table" else sys.maxsize  # a comma is a part, too
    yield from _pieces(before, (_item(kind, obj, form, now) for obj in items), after, parts)


def empty_list(kind: Kind, metadata: Object, form: ResponseForm) -> Object:
    """Return a list without items."""
    if form.shape == "Table":
        return table.table(kind, [], 0.0, metadata=metadata)
    partial = form.shape == "Partial"
    return {
        "kind": "PartialObjectMetadataList" if partial else kind.list_kind,
        "apiVersion": "meta.k8s.io/v1" if partial else kind.resource.api_version,
        "metadata": metadata,
        "items": [],
    }


def _items_of(form: ResponseForm) -> str:
    return "rows" if form.shape == "Table" else "items"


def _item(kind: Kind, obj: Object, form: ResponseForm, now: float) -> bytes:
    if form.shape == "Table":
        return row_json(kind, obj, now, form.include)
    return partial_json(obj) if form.shape == "Partial" else json_of(obj)


def _around(document: Object, key: str) -> tuple[bytes, bytes]:
    text = json_bytes(document)
    assert text.endswith(b'"%b":[]}' % key.encode()), f"{key} are not the last"
    return text[:-2], text[-2:]


def _pieces(before: bytes, elements: Iterable[bytes], after: bytes, most: int) -> Iterator[bytes]:
    def separated() -> Iterator[bytes]:
        comma = before
        for element in elements:
            yield comma
            yield element
            comma = b","
        yield after + b"\n" if comma == b"," else before + after + b"\n"

    return gathered(separated(), most)


def gathered(parts: Iterable[bytes], most: int = sys.maxsize) -> Iterator[bytes]:
    """Join parts into pieces of about :data:`PIECE_BYTES`, or of ``most`` parts."""
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= PIECE_BYTES or len(waiting) >= most:
            yield b"".join(waiting)
            waiting, size = [], 0
    if size:
        yield b"".join(waiting)


def line(change: str, encoded: bytes) -> bytes:
    """Encode one line of a watch."""
    return b'{"type":"%b","object":%b}\n' % (change.encode(), encoded)


class SharedEvent:
    """A change, with what all watches share: lines, and results of selectors."""

    __slots__ = ("__weakref__", "_is_counted", "_results", "event")

    def __init__(self, event: Event) -> None:
        self.event = event
        self._results: dict[Any, Any] = {}
        self._is_counted = False

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the result of ``make``, called once per key."""
        result = self._results.get(key)
        if result is None:
            result = self._results[key] = make()
        return result

    def uncounted_bytes(self) -> int:
        """Return the memory of the object and its line, but 0 if they are counted already."""
        is_counted, self._is_counted = self._is_counted, True
        return 0 if is_counted else 2 * len(json_of(self.event.obj))


class SharedEvents:
    """The changes that watches are sending, each once."""

    def __init__(self) -> None:
        self._events: WeakValueDictionary[int, SharedEvent] = WeakValueDictionary()
        """By the id of the change, which is kept with it."""
        self._latest: deque[SharedEvent] = deque(maxlen=_LATEST_CHANGES)

    def of(self, event: Event) -> SharedEvent:
        """Return the shared body for a change."""
        if self._latest and self._latest[-1].event is event:
            return self._latest[-1]
        shared = self._events.get(id(event))
        if shared is None:
            shared = self._events[id(event)] = SharedEvent(event)
            self._latest.append(shared)
        return shared
