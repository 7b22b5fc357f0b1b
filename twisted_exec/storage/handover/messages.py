"""
Messages between a server and the predecessor that goes on with its store, sans I/O.

A message is a head in JSON and a body, which may be empty, after their lengths (4 bytes each, in
network order).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from twisted_exec.api.encoded import Encoded, Object, json_bytes
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    Conflict,
    Expired,
    Forbidden,
    InsufficientStorage,
    NotFound,
    ServiceUnavailable,
    from_status,
)
from twisted_exec.wire.errors import RemoteProtocolError

PROTOCOL_VERSION = 1
MAX_HEAD_BYTES = 64 << 10
MAX_BODY_BYTES = 16 << 20
"""A request has 3 MiB at most, and its JSON in ASCII up to three times as many."""

_LENGTHS = struct.Struct("!II")
_ERRORS: Mapping[str, type[APIError]] = {
    each.reason: each
    for each in (
        AlreadyExists,
        Conflict,
        Expired,
        Forbidden,
        InsufficientStorage,
        NotFound,
        ServiceUnavailable,
    )
}


@dataclass(frozen=True)
class Hello:
    """The first message of the predecessor."""

    protocol: int
    since: int


@dataclass(frozen=True)
class Request:
    """A request of the predecessor, usually a write."""

    number: int
    change: str
    resource: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """
    The answer to a request, after the report of its change.

    :param version: of the change, or the present one after a wait for it, else 0.
    """

    number: int
    version: int = 0
    status: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Change:
    """A change of an object; the body is :attr:`Event.obj`."""

    table: str
    type: str
    version: int


@dataclass(frozen=True)
class ListBegin:
    """All objects follow, usually because changes after the version of the copy are forgotten."""


@dataclass(frozen=True)
class Item:
    """An object of the list; the body has it."""

    table: str


@dataclass(frozen=True)
class ListEnd:
    """The list is complete, and replaces the copy."""

    version: int


@dataclass(frozen=True)
class Current:
    """The copy is current, and requests are possible."""


Message = Hello | Request | Answer | Change | ListBegin | Item | ListEnd | Current

_TYPES: Mapping[str, type[Message]] = {
    each.__name__: each
    for each in (Hello, Request, Answer, Change, ListBegin, Item, ListEnd, Current)
}


def encode(message: Message, body: bytes = b"") -> bytes:
    """Encode one message."""
    head = json_bytes({"message": type(message).__name__, **asdict(message)})
    return b"".join((_LENGTHS.pack(len(head), len(body)), head, body))


class Decoder:
    """Decodes messages from bytes that are split anywhere."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[tuple[Message, bytes]]:
        """
        Return the messages that are complete now, with their bodies.

        :raises RemoteProtocolError: a message is too large, or not valid.
        """
        self._data += data
        messages, begin = [], 0
        while len(self._data) - begin >= _LENGTHS.size:
            head_length, body_length = _LENGTHS.unpack_from(self._data, begin)
            if head_length > MAX_HEAD_BYTES or body_length > MAX_BODY_BYTES:
                raise RemoteProtocolError(
                    f"a message of {head_length} and {body_length} bytes is too large"
                )
            body_at = begin + _LENGTHS.size + head_length
            if len(self._data) < body_at + body_length:
                break
            head = bytes(self._data[begin + _LENGTHS.size : body_at])
            body = bytes(self._data[body_at : body_at + body_length])
            messages.append((_message(head), body))
            begin = body_at + body_length
        del self._data[:begin]
        return messages


def _message(head: bytes) -> Message:
    try:
        values = json.loads(head)
        kind = _TYPES[values.pop("message")]
        message = kind(**values)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise RemoteProtocolError(f"not a message: {head[:100]!r}") from None
    for each in fields(message):
        value, is_number = getattr(message, each.name), each.type == "int"
        is_text = each.type == "str"
        # Not isinstance: ``true`` is an int in Python.
        if (is_number and type(value) is not int) or (is_text and not isinstance(value, str)):
            raise RemoteProtocolError(f"not a message: {head[:100]!r}")
    return message


def object_of(body: bytes) -> Encoded:
    """
    Decode the object of a body.

    :raises RemoteProtocolError: it is not an object with a name.
    """
    try:
        obj: Object = json.loads(body)
        if not isinstance(obj["metadata"]["name"], str):
            raise ValueError("the name is no text")
        return Encoded(obj, body.decode("ascii"))
    except (ValueError, LookupError, TypeError, RecursionError):
        raise RemoteProtocolError(f"not an object: {body[:100]!r}") from None


def resource_of(values: Mapping[str, Any]) -> Resource:
    """
    Decode the resource of a request.

    :raises RemoteProtocolError: it is not one.
    """
    try:
        return Resource(**values)
    except TypeError:
        raise RemoteProtocolError(f"not a resource: {values}") from None


def error_of(status: Mapping[str, Any]) -> APIError:
    """Return the error of a refusal."""
    error = from_status(status)
    return error.as_class(_ERRORS.get(error.reason, APIError))
