"""Tests for :mod:`twisted_exec.cli.mcp.messages`."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.mcp.messages import (
    INVALID_REQUEST,
    MESSAGE,
    PARSE_ERROR,
    Answer,
    Call,
    RPCError,
    decode,
    encode_result,
)


class DecodeTests(SynchronousTestCase):
    """Messages of clients."""

    def code(self, raw: bytes | str | dict[str, Any] | list[Any]) -> int:
        if not isinstance(raw, bytes | str):
            raw = json.dumps(raw)
        data = raw.encode() if isinstance(raw, str) else raw
        return self.assertRaises(RPCError, decode, data).code

    def test_request(self) -> None:
        """Ids are texts and integers, and come back as they are."""
        for id in (1, 0, -7, "a", "1", 2**62):
            message = decode(json.dumps({"jsonrpc": "2.0", "id": id, "method": "ping"}).encode())
            self.assertEqual(message, Call("ping", {}, id))
            self.assertEqual(
                json.loads(encode_result(id, {})), {"jsonrpc": "2.0", "id": id, "result": {}}
            )

    def test_notification(self) -> None:
        """A message without an id is a notification, and one with a result an answer."""
        self.assertEqual(decode(b'{"jsonrpc":"2.0","method":"x"}'), Call("x", {}, None))
        self.assertEqual(decode(b'{"jsonrpc":"2.0","id":1,"result":{}}'), Answer())

    def test_malformed(self) -> None:
        """What is no JSON, too deep, too large or has too many values is a parse error, before it costs much."""
        for raw in (
            b"",
            b"{",
            b"\xff",
            b"[" * 100_000,
            b'{"a":' * 100 + b"1" + b"}" * 100,
            b'"' + b"x" * MESSAGE.size_bytes + b'"',
            b"[" + b"1," * (MESSAGE.values + 1) + b"1]",
            b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
            b"1" * 5000,
        ):
            self.assertEqual(self.code(raw), PARSE_ERROR, raw[:40])

    def test_invalid(self) -> None:
        """JSON that is no single message is refused, a batch too."""
        request = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        for raw in (
            [request],
            [],
            "x",
            {**request, "jsonrpc": "1.0"},
            {"id": 1, "method": "ping"},
            {**request, "id": None},
            {**request, "id": True},
            {**request, "id": 1.5},
            {**request, "id": {}},
            {**request, "id": "x" * 257},
            {**request, "id": 2**63},
            {**request, "method": 1},
            {**request, "method": ""},
            {**request, "method": "m" * 129},
            {**request, "params": []},
            {"jsonrpc": "2.0", "id": 1},
        ):
            code = self.code(json.dumps(raw))
            self.assertIn(code, (INVALID_REQUEST, PARSE_ERROR), raw)

    def test_one_line(self) -> None:
        """A message on a pipe is one line, whatever is in it."""
        line = encode_result(1, {"text": "a\nb\r\u2028\x85\U0001f600"})
        self.assertEqual(len(line.decode().splitlines()), 1)
        self.assertTrue(line.isascii())
