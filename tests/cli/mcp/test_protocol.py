"""Tests for :mod:`twisted_exec.cli.mcp.protocol`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.mcp.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
)
from twisted_exec.cli.mcp.protocol import MOST_CALLS, VERSIONS, ServerSession, text_block


class SmallTools:
    """
    Tools for tests: ``echo`` answers at once, ``wait`` when the test says so, ``break`` fails.

    :ivar waiting: calls of ``wait``.
    """

    def __init__(self) -> None:
        self.waiting: list[Deferred[Any]] = []
        self.is_closed = False
        self.cancelled = 0

    def list(self) -> Sequence[Mapping[str, Any]]:
        return [{"name": "echo", "inputSchema": {"type": "object"}}]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if name == "wait":
            waiting: Deferred[Any] = Deferred(lambda _: self.cancel())
            self.waiting.append(waiting)
            await waiting
        elif name == "break":
            raise RuntimeError("secret")
        elif name != "echo":
            raise LookupError(name)
        return {"content": [text_block(json.dumps(arguments))], "isError": False}

    def cancel(self) -> None:
        self.cancelled += 1

    def close(self) -> None:
        self.is_closed = True


def request(method: str, id: int | str = 1, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


def notification(method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


class SessionTests(SynchronousTestCase):
    """One session."""

    def setUp(self) -> None:
        self.tools = SmallTools()
        self.session = ServerSession(self.tools)

    def send(self, raw: bytes) -> Any:
        """Return the response; ``None`` for none."""
        response = self.successResultOf(self.session.received(raw))
        return json.loads(response) if response else None

    def begin(self, version: str = VERSIONS[0]) -> Any:
        return self.send(request("initialize", protocolVersion=version))["result"]

    def test_versions(self) -> None:
        """A known revision is agreed to; for any other the client gets the newest one."""
        for asked, agreed in (
            *((each, each) for each in VERSIONS),
            ("2024-11-05", VERSIONS[0]),
            ("2030-01-01", VERSIONS[0]),
            ("", VERSIONS[0]),
        ):
            self.session = ServerSession(self.tools)
            self.assertEqual(self.begin(asked)["protocolVersion"], agreed)

    def test_order(self) -> None:
        """Before initialize there is only ping, and initialize comes once."""
        for method in ("tools/list", "tools/call"):
            self.assertEqual(self.send(request(method))["error"]["code"], INVALID_REQUEST)
        self.assertEqual(self.send(request("ping", 7)), {"jsonrpc": "2.0", "id": 7, "result": {}})
        self.begin()
        self.assertIsNone(self.send(notification("notifications/initialized")))
        again = self.send(request("initialize", protocolVersion=VERSIONS[0]))
        self.assertEqual(again["error"]["code"], INVALID_REQUEST)
        self.assertEqual(self.send(request("tools/list"))["result"]["tools"][0]["name"], "echo")

    def test_unknown(self) -> None:
        """Unknown methods and tools are errors with the request's id, and unknown notifications nothing."""
        self.begin()
        for method in ("resources/list", "server/discover", "logging/setLevel", "x"):
            error = self.send(request(method, "a"))
            self.assertEqual((error["id"], error["error"]["code"]), ("a", METHOD_NOT_FOUND))
        self.assertIsNone(self.send(notification("anything")))
        error = self.send(request("tools/call", name="no", arguments={}))
        self.assertEqual(error["error"]["code"], INVALID_PARAMS)
        for params in ({}, {"name": 1}, {"name": "echo", "arguments": []}):
            error = self.send(request("tools/call", **params))
            self.assertEqual(error["error"]["code"], INVALID_PARAMS)

    def test_call(self) -> None:
        """Calls answer in the order in which they end."""
        self.begin()
        waiting = self.session.received(request("tools/call", 1, name="wait", arguments={}))
        other = self.send(request("tools/call", 2, name="echo", arguments={"a": 1}))
        self.assertEqual(other["result"]["content"][0]["text"], '{"a": 1}')
        self.tools.waiting[0].callback(None)
        self.assertEqual(json.loads(self.successResultOf(waiting))["id"], 1)
        self.assertEqual(self.session.calls, {})

    def test_cancelled(self) -> None:
        """A cancelled call has no response; the cancellation of any other call does nothing."""
        self.begin()
        waiting = self.session.received(request("tools/call", 5, name="wait", arguments={}))
        for id in (6, "5", None, {}, []):
            self.send(notification("notifications/cancelled", requestId=id))
        self.assertNoResult(waiting)
        self.send(notification("notifications/cancelled", requestId=5))
        self.assertEqual(self.successResultOf(waiting), b"")
        self.assertEqual(self.tools.cancelled, 1)

    def test_many_calls(self) -> None:
        """Calls beyond the limit fail, so that the agent waits."""
        self.begin()
        for id in range(MOST_CALLS):
            self.session.received(request("tools/call", id, name="wait", arguments={}))
        more = self.send(request("tools/call", "more", name="echo", arguments={}))
        self.assertTrue(more["result"]["isError"])
        self.tools.waiting[0].callback(None)
        self.assertFalse(
            self.send(request("tools/call", "x", name="echo", arguments={}))["result"]["isError"]
        )

    def test_repeated_id(self) -> None:
        """An id that is under way is refused."""
        self.begin()
        self.session.received(request("tools/call", 1, name="wait", arguments={}))
        error = self.send(request("tools/call", 1, name="echo", arguments={}))
        self.assertEqual(error["error"]["code"], INVALID_REQUEST)

    def test_fault(self) -> None:
        """A fault of ours is in the log, and not in the response."""
        self.begin()
        error = self.send(request("tools/call", name="break", arguments={}))
        self.assertEqual(error["error"]["code"], INTERNAL_ERROR)
        self.assertNotIn("secret", json.dumps(error))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_close(self) -> None:
        """The end of a session cancels its calls and leaves its consoles."""
        self.begin()
        waiting = self.session.received(request("tools/call", 5, name="wait", arguments={}))
        self.session.close()
        self.assertEqual(self.successResultOf(waiting), b"")
        self.assertTrue(self.tools.is_closed)
