"""
Encoding of responses: objects, lists in pieces, and Tables.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from json.encoder import encode_basestring_ascii as _quoted

from twisted_exec.api import table, times
from twisted_exec.api.encoded import Encoded, json_bytes, json_of, metadata_json_of
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.apiserver.serving.query import ResponseForm

PIECE_BYTES = 64 << 10
"""Approximate size of a list's pieces; a single larger object is one piece."""


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
