"""Tests for :mod:`twisted_exec.apiserver.serving.openapi.protobuf`."""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.apiserver.serving.openapi.protobuf import to_protobuf


def fields(message: bytes) -> dict[int, list[Any]]:
    """The fields of a message by their numbers: numbers, and the bytes of texts and messages."""
    found: dict[int, list[Any]] = defaultdict(list)
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            number |= (message[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if message[at - 1] < 0x80:
                return number

    while at < len(message):
        tag = varint()
        if tag & 7 == 0:
            found[tag >> 3].append(varint())
            continue
        size = 8 if tag & 7 == 1 else varint()
        content = message[at : at + size]
        at += size
        found[tag >> 3].append(struct.unpack("<d", content)[0] if tag & 7 == 1 else content)
    return found


def inside(message: bytes, *path: int) -> bytes:
    """The only field of each number, one inside the other."""
    for number in path:
        (message,) = fields(message)[number]
    return message


def named(message: bytes, number: int) -> dict[str, bytes]:
    """A map: names and the bytes of values."""
    return {inside(entry, 1).decode(): inside(entry, 2) for entry in fields(message)[number]}


def extensions(message: bytes, number: int) -> dict[str, Any]:
    """Vendor extensions: YAML, here as JSON."""
    return {name: json.loads(inside(each, 2)) for name, each in named(message, number).items()}


IDENTITY = {"group": "example.org", "version": "v1", "kind": "Note"}
OPERATION = {
    "tags": ["example_v1"],
    "operationId": "patchExampleV1Note",
    "x-kubernetes-group-version-kind": IDENTITY,
    "produces": ["application/json"],
    "consumes": ["application/json", "application/yaml"],
    "parameters": [
        {"name": "dryRun", "in": "query", "type": "string", "uniqueItems": True},
        {"name": "body", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Note"}},
    ],
    "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/Note"}}},
}
DOCUMENT = {
    "swagger": "2.0",
    "info": {"title": "notes", "version": "v1"},
    "paths": {
        "/notes/{name}": {
            "patch": OPERATION,
            "parameters": [{"name": "name", "in": "path", "required": True, "type": "string"}],
        }
    },
    "definitions": {
        "Note": {
            "type": "object",
            "description": "A note, 20 \u20ac.",
            "required": ["text", "size"],
            "properties": {
                "text": {"type": "string", "enum": ["a", "b"], "default": "a", "maxLength": 300},
                "size": {"type": "integer", "format": "int32", "minimum": -1, "maximum": 0.5},
                "tags": {"type": "array", "items": {"type": "string"}},
                "any": {"type": "object", "additionalProperties": True},
                "texts": {"type": "object", "additionalProperties": {"type": "string"}},
            },
            "x-kubernetes-group-version-kind": [IDENTITY],
            "oneOf": [{"required": ["text"]}],
        }
    },
}


class EncodedTests(SynchronousTestCase):
    """Tests for :func:`encoded`."""

    def setUp(self) -> None:
        self.document = to_protobuf(DOCUMENT)

    def test_document(self) -> None:
        """The version and the title; nothing else at the top."""
        self.assertEqual(set(fields(self.document)), {1, 2, 8, 9})
        self.assertEqual(inside(self.document, 1), b"2.0")
        self.assertEqual(inside(self.document, 2, 1), b"notes")

    def test_operation(self) -> None:
        """An operation has its kind, its media types, and its parameters by their places."""
        item = named(inside(self.document, 8), 2)["/notes/{name}"]
        patch = inside(item, 8)
        self.assertEqual(extensions(patch, 13), {"x-kubernetes-group-version-kind": IDENTITY})
        self.assertEqual(fields(patch)[1], [b"example_v1"])
        self.assertEqual(fields(patch)[5], [b"patchExampleV1Note"])
        self.assertEqual(fields(patch)[7], [b"application/json", b"application/yaml"])
        query, body = (inside(each, 1) for each in fields(patch)[8])
        self.assertEqual(inside(query, 2, 3, 4), b"dryRun")
        self.assertEqual(inside(query, 2, 3, 6), b"string")
        self.assertEqual(fields(inside(query, 2, 3))[20], [1])
        self.assertEqual(inside(body, 1, 5, 1), b"#/definitions/Note")
        self.assertEqual(fields(inside(body, 1))[4], [1])
        path = inside(item, 9, 1, 2, 4)
        self.assertEqual((inside(path, 4), inside(path, 5)), (b"name", b"string"))
        response = inside(named(inside(patch, 9), 1)["200"], 1)
        self.assertEqual(inside(response, 2, 1, 1), b"#/definitions/Note")

    def test_schema(self) -> None:
        """A schema has its text, its rules, its properties and its kind."""
        note = named(inside(self.document, 9), 1)["Note"]
        self.assertEqual(inside(note, 22, 1), b"object")
        self.assertEqual(inside(note, 4).decode(), "A note, 20 \u20ac.")
        self.assertEqual(fields(note)[19], [b"text", b"size"])
        self.assertEqual(extensions(note, 31), {"x-kubernetes-group-version-kind": [IDENTITY]})
        properties = named(inside(note, 25), 1)
        text = fields(properties["text"])
        self.assertEqual([json.loads(inside(each, 2)) for each in text[20]], ["a", "b"])
        self.assertEqual(json.loads(inside(text[5][0], 2)), "a")
        self.assertEqual(text[11], [300])
        size = fields(properties["size"])
        self.assertEqual((size[9], size[7]), ([-1.0], [0.5]))
        self.assertEqual(inside(properties["tags"], 23, 1, 22, 1), b"string")
        self.assertEqual(fields(inside(properties["any"], 21)), {2: [1]})
        self.assertEqual(inside(properties["texts"], 21, 1, 22, 1), b"string")
