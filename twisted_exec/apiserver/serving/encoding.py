"""
In which bytes objects go out: whole, as rows of a Table, or their metadata alone.

Nothing that a store keeps is encoded here again: its bytes are put between
others (:mod:`twisted_exec.api.encoded`).  Long lists come in pieces, made when they
are asked for, so that neither making nor sending one takes the server's attention
for long, and a client that reads slowly has a piece made for it, not a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any

from twisted_exec.api import table
from twisted_exec.api.encoded import json_bytes, json_of, metadata_json_of
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.apiserver.serving.query import Form
from twisted_exec.storage.interfaces import Event

PIECE_BYTES = 64 << 10
"""About how large the pieces of a list are, unless one object is larger."""

_PARTIAL = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'


def partial_json(obj: Object) -> bytes:
    """The ``PartialObjectMetadata`` of an object."""
    return _PARTIAL + metadata_json_of(obj) + b"}"


def row_json(kind: Kind, obj: Object, now: float, include: str) -> bytes:
    """One object as a row of a Table; see :func:`twisted_exec.api.table.row`."""
    row = f'{{"cells":[{",".join(map(_quoted, table.cells(kind, obj, now)))}]'.encode("ascii")
    if include == "None":
        return row + b"}"
    told = json_of(obj) if include == "Object" else partial_json(obj)
    return row + b',"object":' + told + b"}"


def object_json(kind: Kind, obj: Object, form: Form, now: float, *, columns: bool = True) -> bytes:
    """
    One object in the form that was asked for.

    :param now: seconds since the epoch, for ages.
    :param columns: whether a Table names its columns.
    """
    if form.shape == "Partial":
        return partial_json(obj)
    if form.shape != "Table":
        return json_of(obj)
    metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
    before, after = _around(table.table(kind, [], now, metadata=metadata, columns=columns), "rows")
    return before + row_json(kind, obj, now, form.include) + after


def list_pieces(
    kind: Kind, items: Sequence[Object], metadata: Object, form: Form, now: float
) -> Iterator[bytes]:
    """
    A list of objects in the form that was asked for, of which each piece is made when
    it is its turn.

    :param metadata: of the list.
    """
    before, after = _around(empty_list(kind, metadata, form), _items_of(form))
    yield from _pieces(before, (_item(kind, obj, form, now) for obj in items), after)


def empty_list(kind: Kind, metadata: Object, form: Form) -> Object:
    """A list of none."""
    if form.shape == "Table":
        return table.table(kind, [], 0.0, metadata=metadata)
    partial = form.shape == "Partial"
    return {
        "kind": "PartialObjectMetadataList" if partial else kind.list_kind,
        "apiVersion": "meta.k8s.io/v1" if partial else kind.resource.api_version,
        "metadata": metadata,
        "items": [],
    }


def _items_of(form: Form) -> str:
    return "rows" if form.shape == "Table" else "items"


def _item(kind: Kind, obj: Object, form: Form, now: float) -> bytes:
    if form.shape == "Table":
        return row_json(kind, obj, now, form.include)
    return partial_json(obj) if form.shape == "Partial" else json_of(obj)


def _around(document: Object, key: str) -> tuple[bytes, bytes]:
    """What stands before and behind the elements of the document's last, empty list."""
    text = json_bytes(document)
    assert text.endswith(b'"%b":[]}' % key.encode()), f"{key} are not the last"
    return text[:-2], text[-2:]


def _pieces(before: bytes, elements: Iterable[bytes], after: bytes) -> Iterator[bytes]:
    def separated() -> Iterator[bytes]:
        comma = before
        for element in elements:
            yield comma
            yield element
            comma = b","
        yield after + b"\n" if comma == b"," else before + after + b"\n"

    return gathered(separated())


def gathered(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Parts joined to pieces of about :data:`PIECE_BYTES`; none when all of them are empty."""
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if size:
        yield b"".join(waiting)


def line(change: str, told: bytes) -> bytes:
    """One line of a watch."""
    return b'{"type":"%b","object":%b}\n' % (change.encode(), told)


class EventLines:
    """
    The lines that tell of changes, each made once, however many watches tell it.

    A store tells all watches of one change before it tells them of the next, so
    the lines of one change are kept.

    :param now: seconds since the epoch, for ages.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._event: Event | None = None
        self._made: dict[Any, Any] = {}

    def once(self, event: Event, key: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` returns, called once for each change and key."""
        if event is not self._event:
            self._event, self._made = event, {}
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = make()
        return found

    def told(
        self, event: Event, kind: Kind, change: str, obj: Object, form: Form, columns: bool
    ) -> bytes:
        """
        The line that tells watches of this form of this change.

        :param obj: of the event, or made by :meth:`once` for it.
        """

        def make() -> bytes:
            return line(change, object_json(kind, obj, form, self._now(), columns=columns))

        found: bytes = self.once(event, (kind.resource, change, form, columns), make)
        return found
