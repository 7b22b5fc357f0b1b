"""
Messages of JSON-RPC 2.0 as MCP uses them, sans I/O.

Source: https://modelcontextprotocol.io/specification/2025-11-25/basic.  A batch is an error since revision 2025-06-18.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted_exec.api.bodies import Limit, decode_any
from twisted_exec.api.status import APIError

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = (
    -32700,
    -32600,
    -32601,
    -32602,
    -32603,
)
MESSAGE = Limit(64 << 10, 1 << 10)
"""Largest message of a client."""

_LONGEST_ID = 256
_LONGEST_METHOD = 128
_LARGEST_ID = 2**63
_NO_VERSION = 'the message is not of JSON-RPC 2.0: "jsonrpc" must be "2.0"'

RequestId = str | int


class RPCError(Exception):
    """
    An error response.

    :param id: of the request; ``None`` if it is not known.
    """

    def __init__(self, code: int, message: str, id: RequestId | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.id = code, message, id

    def encode(self) -> bytes:
        """Return the response."""
        return _encode({"id": self.id, "error": {"code": self.code, "message": self.message}})


@dataclass(frozen=True)
class Call:
    """
    A request, or a notification if ``id`` is ``None``.

    :param params: of the method; empty without any.
    """

    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    id: RequestId | None = None


@dataclass(frozen=True)
class Answer:
    """A client's response to a request; this server sends none."""


def decode(raw: bytes) -> Call | Answer:
    """
    Decode a message of a client.

    :raises RPCError: it is no single message of JSON-RPC 2.0, or larger than :data:`MESSAGE`.
    """
    try:
        value = decode_any("application/json", raw, limit=MESSAGE)
    except APIError as problem:
        raise RPCError(PARSE_ERROR, problem.message) from None
    if isinstance(value, list):
        raise RPCError(INVALID_REQUEST, "batches are not supported: send one message at a time")
    if not isinstance(value, dict):
        raise RPCError(INVALID_REQUEST, "the message is not a JSON object")
    id = _id(value)
    if value.get("jsonrpc") != "2.0":
        raise RPCError(INVALID_REQUEST, _NO_VERSION, id)
    if "method" not in value and ("result" in value or "error" in value):
        return Answer()
    method, params = value.get("method"), value.get("params", {})
    if not isinstance(method, str) or not 0 < len(method) <= _LONGEST_METHOD:
        raise RPCError(INVALID_REQUEST, "the message has no valid method", id)
    if not isinstance(params, dict):
        raise RPCError(INVALID_REQUEST, "the params of the message are not an object", id)
    return Call(method, params, id)


def _id(value: Mapping[str, Any]) -> RequestId | None:
    if "id" not in value:
        return None
    id = value["id"]
    is_text = isinstance(id, str) and len(id) <= _LONGEST_ID
    is_number = isinstance(id, int) and not isinstance(id, bool) and abs(id) < _LARGEST_ID
    if not (is_text or is_number):
        raise RPCError(INVALID_REQUEST, "the id of a request is a short string or an integer")
    return id  # type: ignore[no-any-return]


def encode_result(id: RequestId, result: Mapping[str, Any]) -> bytes:
    """Return a response, on one line."""
    return _encode({"id": id, "result": result})


def _encode(message: Mapping[str, Any]) -> bytes:
    # ASCII alone: a line separator of Unicode is no newline for the reader of a line.
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode("ascii")
