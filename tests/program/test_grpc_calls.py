"""
Tests for :mod:`twisted_exec.program.grpc_calls`.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.trial.unittest import TestCase

from twisted_exec.program import grpc_calls

import grpc  # isort: skip  # after what sets how it behaves

reactor: Any = _reactor
ECHO, HOLD = "/test.Test/Echo", "/test.Test/Hold"


class _Server(grpc.GenericRpcHandler):
    """Answers with what it is sent; to ``HOLD`` only when it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()

    def service(self, details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            self._hold if details.method == HOLD else lambda request, context: request
        )

    def _hold(self, request: bytes, context: Any) -> bytes:
        self.let.wait(600)
        return request


class CallsCase(TestCase):
    """A server in this process, and a link to it."""

    def setUp(self) -> None:
        self.handler = _Server()
        server = grpc.server(ThreadPoolExecutor(4), handlers=[self.handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(server.stop, None)
        self.addCleanup(self.handler.let.set)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.addCleanup(self.channel.close)
        self.link = grpc_calls.Link(self.channel)
        self.readers: list[threading.Thread] = []

    def call(self, path: str, sent: bytes, seconds: float = 600.0) -> Deferred[Any]:
        future = self.link.unary(path).future(sent, timeout=seconds)
        return grpc_calls.call(self.link, reactor, future, self.read, self.told)

    def read(self, future: Any) -> Any:
        self.readers.append(threading.current_thread())
        return future.result() if future.code() is grpc.StatusCode.OK else None

    def told(self, future: Any, made: Any) -> Any:
        self.assertEqual(threading.current_thread(), threading.main_thread())
        return made if made is not None else ValueError(future.code().name)


class CallTests(CallsCase):
    """Tests for :func:`call` and :class:`Link`."""

    async def test_answer(self) -> None:
        """Responses are read in a thread of grpcio and delivered in the reactor's thread."""
        answer = self.call(HOLD, b"x")  # an answer that is ready at once need not wait for a thread
        self.handler.let.set()
        self.assertEqual(await answer, b"x")
        self.assertNotIn(threading.main_thread(), self.readers)

    async def test_at_once(self) -> None:
        """A result that is complete before the call is wrapped is delivered."""
        future = self.link.unary(ECHO).future(b"x", timeout=600)
        future.result()
        answer = grpc_calls.call(self.link, reactor, future, self.read, self.told)
        self.assertEqual(await answer, b"x")

    async def test_failure(self) -> None:
        """An exception that is returned is what the call fails with."""
        problem = await self.assertFailure(self.call(HOLD, b"x", 0.05), ValueError)
        self.assertEqual(str(problem), "DEADLINE_EXCEEDED")

    async def test_cancelled(self) -> None:
        """Cancelling ends the call."""
        calling = self.call(HOLD, b"x")
        calling.cancel()
        await self.assertFailure(calling, CancelledError)

    async def test_retired(self) -> None:
        """A link that is retired is closed when its last call has ended, not before."""
        calling = self.call(HOLD, b"x")
        self.link.retire()
        self.handler.let.set()
        self.assertEqual(await calling, b"x")
        with self.assertRaises(ValueError):
            self.link.channel.unary_unary(ECHO)(b"x")


class CallersTests(CallsCase):
    """Tests for :class:`Callers`."""

    def begin(self, callers: grpc_calls.Callers, path: str, sent: bytes) -> Deferred[Any]:
        stub = self.link.unary(path)
        return callers.call(self.link, lambda: stub(sent, timeout=600), lambda told: told)

    async def test_free(self) -> None:
        """As many calls as there are threads; each thread is free again when its call is over."""
        callers = grpc_calls.Callers(reactor, 2)
        self.addCleanup(callers.stop)
        waiting = []
        for sent in (b"a", b"b"):
            self.assertTrue(callers.free)
            waiting.append(self.begin(callers, HOLD, sent))
        self.assertFalse(callers.free)
        self.handler.let.set()
        self.assertEqual(await gatherResults(waiting), [b"a", b"b"])
        self.assertTrue(callers.free)
        self.assertEqual(await self.begin(callers, ECHO, b"c"), b"c")

    async def test_stopped(self) -> None:
        """Threads end after their calls, which still deliver; new threads start when needed."""
        callers = grpc_calls.Callers(reactor, 1)
        waiting = self.begin(callers, HOLD, b"a")
        callers.stop()
        self.assertTrue(callers.free)
        later = self.begin(callers, ECHO, b"b")
        self.assertEqual(await later, b"b")
        self.handler.let.set()
        self.assertEqual(await waiting, b"a")
        callers.stop()
