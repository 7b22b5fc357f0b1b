"""
Immutable objects with their JSON.

A copy is a plain ``dict`` without bytes, so that changing it cannot contradict them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]

# json.dumps() would create an encoder per call, because of the separators.
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def json_text(document: Any) -> str:
    """Encode a document as JSON in ASCII, without spaces."""
    return _ENCODER.encode(document)


def json_bytes(document: Any) -> bytes:
    """Encode as :func:`json_text`, in bytes."""
    return json_text(document).encode("ascii")


class Encoded(Object):
    """
    An object with its JSON. The object and everything in it must not be changed.

    :ivar row: whatever rows of Tables keep between lists.
    """

    __slots__ = ("_json", "_key", "_metadata", "row")

    def __init__(self, obj: Mapping[str, Any], text: str | None = None) -> None:
        super().__init__(obj)
        self._json = None if text is None else text.encode("ascii")
        self._metadata: slice | None = None
        self._key: tuple[str, str] | None = None
        self.row: Any = None

    @property
    def json(self) -> bytes:
        """JSON of the object."""
        if self._json is None:
            self._json = json_bytes(self)
        return self._json

    @property
    def metadata_json(self) -> bytes:
        """JSON of ``metadata``, which tables contain: a part of :attr:`json`, not kept twice."""
        if self._metadata is None:
            text = json_bytes(self["metadata"])
            start = self.json.find(text)
            if start < 0:  # another program has written the object, with spaces for example
                return text
            self._metadata = slice(start, start + len(text))
        return self.json[self._metadata]

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name: one tuple for all collections that have this object."""
        if self._key is None:
            metadata = self["metadata"]
            self._key = metadata.get("namespace", ""), metadata["name"]
        return self._key

    def __copy__(self) -> Object:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Object:
        # Objects of a store share parts; their copies must not.
        return copy.deepcopy(dict(self))


def encoded(obj: Object) -> Encoded:
    """Return an object with its JSON, encoded now."""
    return Encoded(obj, json_text(obj))


def json_of(obj: Object) -> bytes:
    """Return the JSON of an object."""
    return obj.json if isinstance(obj, Encoded) else json_bytes(obj)


def metadata_json_of(obj: Object) -> bytes:
    """Return the JSON of an object's ``metadata``."""
    return obj.metadata_json if isinstance(obj, Encoded) else json_bytes(obj["metadata"])
