"""
OpenAPI version 2 as protobuf, which kubectl and client-go read.

The messages are those of ``openapiv2/OpenAPIv2.proto`` of github.com/google/gnostic-models.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from twisted_exec.api.kinds import Object
from twisted_exec.api.protobuf_wire import varint

CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

REQUESTED = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""The older name of the same type, which kubectl requests.  It is no valid ``Content-Type``."""

_VARINT, _FIXED64, _DELIMITED = 0, 1, 2

_EXTENSIONS = "x-"
"""Key of a table for all vendor extensions of a message."""

_Encoder = Callable[[int, Any], bytes]
"""Encodes a field of a number and a value, with its tag."""

_Fields = Mapping[str, tuple[int, _Encoder]]
"""Numbers and encoders of a message's fields, by their names in JSON."""


def to_protobuf(document: Object) -> bytes:
    """Encode a document (``openapi.v2.Document``)."""
    return _content(_DOCUMENT, document)


def _delimited(number: int, content: bytes) -> bytes:
    return varint(number << 3 | _DELIMITED) + varint(len(content)) + content


def _text(number: int, value: str) -> bytes:
    return _delimited(number, value.encode())


def _integer(number: int, value: int) -> bytes:
    return varint(number << 3 | _VARINT) + varint(value)


def _double(number: int, value: float) -> bytes:
    return varint(number << 3 | _FIXED64) + struct.pack("<d", value)


def _any(number: int, value: Any) -> bytes:
    """``Any`` contains YAML, and JSON is YAML."""
    return _delimited(number, _text(2, json.dumps(value, separators=(",", ":"))))


def _content(fields: _Fields, value: Mapping[str, Any]) -> bytes:
    parts = [encode(at, value[name]) for name, (at, encode) in fields.items() if name in value]
    if _EXTENSIONS in fields:
        at, encode = fields[_EXTENSIONS]
        parts.append(encode(at, {key: value[key] for key in value if key.startswith(_EXTENSIONS)}))
    return b"".join(parts)


def _message(fields: _Fields, number: int, value: Mapping[str, Any]) -> bytes:
    return _delimited(number, _content(fields, value))


def _repeated(encode: _Encoder, number: int, values: Iterable[Any]) -> bytes:
    return b"".join(encode(number, value) for value in values)


def _named(encode: _Encoder, number: int, values: Mapping[str, Any]) -> bytes:
    return b"".join(
        _delimited(number, _text(1, name) + encode(2, value)) for name, value in values.items()
    )


def _within(encode: _Encoder, *path: int) -> _Encoder:
    def nested(number: int, value: Any) -> bytes:
        content = encode(path[-1], value)
        for each in reversed(path[:-1]):
            content = _delimited(each, content)
        return _delimited(number, content)

    return nested


def _binary_schema(number: int, value: Mapping[str, Any]) -> bytes:
    return _message(_SCHEMA, number, value)


def _additional_properties(number: int, value: bool | Mapping[str, Any]) -> bytes:
    encode = _within(_integer, 2) if isinstance(value, bool) else _within(_binary_schema, 1)
    return encode(number, value)


def _binary_parameter(number: int, value: Mapping[str, Any]) -> bytes:
    return _PARAMETERS[value["in"]](number, value)


_texts = partial(_repeated, _text)

_extensions = partial(_named, _any)

_SCHEMA: _Fields = {
    "$ref": (1, _text),
    "format": (2, _text),
    "title": (3, _text),
    "description": (4, _text),
    "default": (5, _any),
    "multipleOf": (6, _double),
    "maximum": (7, _double),
    "exclusiveMaximum": (8, _integer),
    "minimum": (9, _double),
    "exclusiveMinimum": (10, _integer),
    "maxLength": (11, _integer),
    "minLength": (12, _integer),
    "pattern": (13, _text),
    "maxItems": (14, _integer),
    "minItems": (15, _integer),
    "uniqueItems": (16, _integer),
    "maxProperties": (17, _integer),
    "minProperties": (18, _integer),
    "required": (19, _texts),
    "enum": (20, partial(_repeated, _any)),
    "additionalProperties": (21, _additional_properties),
    "type": (22, _within(_text, 1)),
    "items": (23, _within(_binary_schema, 1)),
    "allOf": (24, partial(_repeated, _binary_schema)),
    "properties": (25, _within(partial(_named, _binary_schema), 1)),
    "readOnly": (27, _integer),
    "example": (30, _any),
    _EXTENSIONS: (31, _extensions),
}

_BODY_PARAMETER: _Fields = {
    "description": (1, _text),
    "name": (2, _text),
    "in": (3, _text),
    "required": (4, _integer),
    "schema": (5, _binary_schema),
}

_PATH_PARAMETER: _Fields = {
    "required": (1, _integer),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (5, _text),
    "uniqueItems": (19, _integer),
}

_QUERY_PARAMETER: _Fields = {**_PATH_PARAMETER, "type": (6, _text), "uniqueItems": (20, _integer)}

_PARAMETERS = {
    "body": _within(partial(_message, _BODY_PARAMETER), 1, 1),
    "query": _within(partial(_message, _QUERY_PARAMETER), 1, 2, 3),
    "path": _within(partial(_message, _PATH_PARAMETER), 1, 2, 4),
}

_RESPONSE: _Fields = {"description": (1, _text), "schema": (2, _within(_binary_schema, 1))}

_parameters = partial(_repeated, _binary_parameter)

_OPERATION: _Fields = {
    "tags": (1, _texts),
    "description": (3, _text),
    "operationId": (5, _text),
    "produces": (6, _texts),
    "consumes": (7, _texts),
    "parameters": (8, _parameters),
    "responses": (9, _within(partial(_named, _within(partial(_message, _RESPONSE), 1)), 1)),
    _EXTENSIONS: (13, _extensions),
}

_binary_operation = partial(_message, _OPERATION)

_PATH_ITEM: _Fields = {
    "get": (2, _binary_operation),
    "put": (3, _binary_operation),
    "post": (4, _binary_operation),
    "delete": (5, _binary_operation),
    "patch": (8, _binary_operation),
    "parameters": (9, _parameters),
}

_DOCUMENT: _Fields = {
    "swagger": (1, _text),
    "info": (2, partial(_message, {"title": (1, _text), "version": (2, _text)})),
    "paths": (8, _within(partial(_named, partial(_message, _PATH_ITEM)), 2)),
    "definitions": (9, _within(partial(_named, _binary_schema), 1)),
}
