"""
Objects that nobody changes any more, with their JSON.

What a store gives out goes to many: lists, watches, the disk.  Encoding costs far
more than sending, so it is done once and the bytes are kept beside the object.
Whoever wants another object makes a copy, and the copy is a plain ``dict``: it
has no bytes that could contradict it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]

# json.dumps would make a new one for each call that wants no spaces.
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def json_text(document: Any) -> str:
    """A document as JSON, without spaces, in ASCII."""
    return _ENCODER.encode(document)


def json_bytes(document: Any) -> bytes:
    """As :func:`json_text`, ready to be sent."""
    return json_text(document).encode("ascii")


class Encoded(Object):
    """
    An object and its JSON.  Not to be changed, and neither is anything in it.

    :param text: its JSON when it is known already; made when first asked for otherwise.
    """

    __slots__ = ("_json", "_metadata")

    def __init__(self, obj: Mapping[str, Any], text: str | None = None) -> None:
        super().__init__(obj)
        self._json = None if text is None else text.encode("ascii")
        self._metadata: bytes | None = None

    @property
    def json(self) -> bytes:
        """The object's JSON."""
        if self._json is None:
            self._json = json_bytes(self)
        return self._json

    @property
    def metadata_json(self) -> bytes:
        """The JSON of its ``metadata``, of which tables are made."""
        if self._metadata is None:
            self._metadata = json_bytes(self["metadata"])
        return self._metadata

    def __copy__(self) -> Object:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Object:
        return copy.deepcopy(dict(self), memo)


def json_of(obj: Object) -> bytes:
    """An object's JSON, kept or made."""
    return obj.json if isinstance(obj, Encoded) else json_bytes(obj)


def metadata_json_of(obj: Object) -> bytes:
    """The JSON of an object's ``metadata``, kept or made."""
    return obj.metadata_json if isinstance(obj, Encoded) else json_bytes(obj["metadata"])
