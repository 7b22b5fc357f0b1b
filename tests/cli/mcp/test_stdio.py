"""Tests for :mod:`twisted_exec.cli.mcp.stdio`."""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stderr
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.cli.mcp.test_protocol import SmallTools, request
from twisted_exec.cli.mcp.messages import INVALID_REQUEST, MESSAGE, PARSE_ERROR
from twisted_exec.cli.mcp.protocol import VERSIONS
from twisted_exec.cli.mcp.stdio import Lines, Pipe, say_warning


class LineTests(SynchronousTestCase):
    """Messages in a stream of bytes."""

    def test_split(self) -> None:
        """Lines are found wherever the stream is split; empty ones are none."""
        data = b"one\n\r\n\ntwo\r\nthree"
        for size in (1, 2, 5, 100):
            lines, found = Lines(), []
            for at in range(0, len(data), size):
                found += lines.feed(data[at : at + size])
            self.assertEqual(found, [b"one", b"two\r"])

    def test_too_long(self) -> None:
        """A line that is too long is discarded, and the next one is read."""
        lines = Lines()
        for _ in range(100):
            self.assertEqual(lines.feed(b"x" * 10_000), [])
        self.assertLessEqual(len(lines._held), MESSAGE.size_bytes)
        self.assertEqual(lines.feed(b"x\nnext\n"), [None, b"next"])


class WarningTests(SynchronousTestCase):
    """Warnings of the log."""

    def test_said(self) -> None:
        """A warning is one line of standard error; nothing else of the log is there."""
        log, message = Logger(observer=say_warning), io.StringIO()
        with redirect_stderr(message):
            log.info("begun")
            log.warn("the kubeconfig cannot be used: {error}", error="line 1\nline 2")
            log.failure("failed", Failure(ValueError("secret")))
        self.assertEqual(message.getvalue(), "the kubeconfig cannot be used: line 1 line 2\n")


class PipeTests(TestCase):
    """A client on pipes."""

    def setUp(self) -> None:
        self.tools = SmallTools()
        source, self.to_server = os.pipe()
        self.from_server, sink = os.pipe()
        self.over: Deferred[None] = Deferred()
        self.pipe = Pipe(self.tools, source, sink, reactor, lambda: self.over.callback(None))
        self.reader = os.fdopen(self.from_server, "rb")
        self.addCleanup(self.reader.close)

    async def response(self) -> Any:
        return json.loads(await deferToThread(self.reader.readline))

    async def leave(self) -> None:
        os.close(self.to_server)
        await self.over

    async def test_session(self) -> None:
        """A client that closes its end ends the session."""
        os.write(self.to_server, request("initialize", protocolVersion=VERSIONS[0]) + b"\n")
        self.assertEqual((await self.response())["result"]["protocolVersion"], VERSIONS[0])
        os.write(self.to_server, request("tools/call", 2, name="wait", arguments={}) + b"\n")
        os.write(self.to_server, request("ping", 3) + b"\n")
        self.assertEqual((await self.response())["id"], 3)
        await self.leave()
        self.assertTrue(self.tools.is_closed)
        self.assertEqual(self.tools.cancelled, 1)

    async def test_bad_lines(self) -> None:
        """Bad lines are answered, and the session goes on."""
        await deferToThread(os.write, self.to_server, b"{\n")
        self.assertEqual((await self.response())["error"]["code"], PARSE_ERROR)
        long = b"x" * (2 * MESSAGE.size_bytes) + b"\n"
        while long:
            written = await deferToThread(os.write, self.to_server, long[:4096])
            long = long[written:]
        self.assertEqual((await self.response())["error"]["code"], INVALID_REQUEST)
        os.write(self.to_server, request("ping", 9) + b"\n")
        self.assertEqual((await self.response())["id"], 9)
        await self.leave()
