"""Tests for :mod:`twisted_exec.streaming.text.shared_downloads`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.streaming.http.test_upgrade_client import AbortableTransport
from tests.streaming.text.test_shared_stream import H2Connection
from twisted_exec.streaming.http.upgrade_client import Asking
from twisted_exec.streaming.text.download import DOWNLOADS
from twisted_exec.streaming.text.shared_downloads import (
    HTTP_1_1,
    IDLE_SECONDS,
    READY_SECONDS,
    SharedDownloads,
    SharedStream,
)


@implementer(IStreamClientEndpoint)
class Slow:
    """A server whose connections come when the test says so."""

    def __init__(self, shared: SharedDownloads) -> None:
        self.server = H2Connection(True, shared)
        self.waiting: list[tuple[Any, Deferred[Any]]] = []
        self.plain: list[AbortableTransport] = []
        self.cancelled = 0

    def connect(self, factory: Any) -> Deferred[Any]:
        connecting: Deferred[Any] = Deferred(self._cancel)
        self.waiting.append((factory, connecting))
        return connecting

    def _cancel(self, connecting: Deferred[Any]) -> None:
        self.cancelled += 1
        self.waiting = [each for each in self.waiting if each[1] is not connecting]

    def come(self) -> None:
        """Complete the oldest connection, with the server's settings."""
        factory, connecting = self.waiting.pop(0)
        self.server.meet(factory).chainDeferred(connecting)
        self.server.settle()

    def come_plain(self) -> None:
        """Complete the oldest connection, with HTTP/1.1 chosen."""
        factory, connecting = self.waiting.pop(0)
        transport: Any = AbortableTransport()
        transport.negotiatedProtocol = HTTP_1_1
        transport.protocol = protocol = factory.buildProtocol(None)
        protocol.makeConnection(transport)
        self.plain.append(transport)
        connecting.callback(protocol)


class PoolCase(SynchronousTestCase):
    """Clients of one server."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.shared = SharedDownloads(self.clock)
        self.slow = Slow(self.shared)

    def ask(self, key: object = "leaf") -> Deferred[Any]:
        return self.shared.endpoint(key, self.slow).connect(DOWNLOADS)

    def nothing_is_left(self) -> None:
        self.assertEqual((len(self.shared), self.slow.waiting), (0, []))
        self.assertEqual(self.clock.getDelayedCalls(), [])


class ConnectTests(PoolCase):
    """Assignment of connections."""

    def test_together(self) -> None:
        """Requests share a connection being made; another is made only beyond its 100 streams."""
        asked = [self.ask() for _ in range(250)]
        self.assertEqual(len(self.slow.waiting), 3)
        self.slow.come()
        self.assertEqual([each.called for each in asked], [True] * 100 + [False] * 150)
        self.slow.come()
        self.slow.come()
        for each in asked:
            self.assertIsInstance(self.successResultOf(each), SharedStream)
        self.assertEqual(self.slow.waiting, [])

    def test_takes_fewer(self) -> None:
        """If the server permits fewer streams than assumed, more connections are made."""
        self.slow.server.fronts.streams = 2
        asked = [self.ask() for _ in range(5)]
        for _ in range(3):
            self.assertEqual(len(self.slow.waiting), 1)
            self.slow.come()
        self.assertTrue(all(each.called for each in asked))
        self.assertEqual(self.slow.waiting, [])

    def test_keys(self) -> None:
        """Another client has another connection."""
        asked = [self.ask("ann"), self.ask("ben"), self.ask("ann")]
        self.slow.come()
        self.slow.come()
        self.assertTrue(all(each.called for each in asked))
        self.assertEqual(len(self.slow.server.made), 2)

    def test_http_1_1(self) -> None:
        """If the server chooses HTTP/1.1, each request gets its own connection, in parallel."""
        asked = [self.ask() for _ in range(3)]
        self.assertEqual(len(self.slow.waiting), 1)
        self.slow.come_plain()
        self.assertEqual([each.called for each in asked], [True, False, False])
        self.assertEqual(len(self.slow.waiting), 2)
        self.slow.come_plain()
        self.slow.come_plain()
        made = [self.successResultOf(each) for each in asked]
        for each, transport in zip(made, self.slow.plain, strict=True):
            self.assertIsInstance(each, Asking)
            self.assertIs(each.transport, transport)
            self.assertIs(transport.protocol, each)
        self.nothing_is_left()

    def test_speaks_first(self) -> None:
        """A server that sends bytes before the request is refused."""
        asked = self.ask()
        factory, connecting = self.slow.waiting.pop(0)
        transport: Any = AbortableTransport()
        protocol = factory.buildProtocol(None)
        protocol.makeConnection(transport)
        protocol.dataReceived(b"220 mail ready\r\n")
        self.assertTrue(transport.aborted)
        connecting.errback(ConnectionRefusedError())
        self.failureResultOf(asked, ConnectionRefusedError)


class FailTests(PoolCase):
    """Failed connections."""

    def test_refused(self) -> None:
        """A failed connection fails the requests assigned to it; others wait for the next."""
        asked = [self.ask() for _ in range(101)]
        for each in asked:
            each.addErrback(lambda why: why.value)
        self.slow.waiting.pop(0)[1].errback(ConnectionRefusedError())
        self.assertEqual([each.called for each in asked], [True] * 100 + [False])
        self.slow.come()
        self.assertIsInstance(self.successResultOf(asked[100]), SharedStream)
        self.assertIsInstance(self.successResultOf(asked[0]), ConnectionRefusedError)

    def test_at_once(self) -> None:
        """A server that refuses at once is tried once per request."""

        def connect(factory: Any) -> Deferred[Any]:
            failed: Deferred[Any] = Deferred()
            failed.errback(ConnectionRefusedError())
            return failed

        self.slow.connect = connect  # type: ignore[method-assign]
        for _ in range(3):
            self.failureResultOf(self.ask(), ConnectionRefusedError)
        self.nothing_is_left()

    def test_nobody_waits(self) -> None:
        """Without waiting requests the attempt is cancelled."""
        asked = [self.ask(), self.ask()]
        for each in asked:
            self.assertEqual(self.slow.cancelled, 0)
            each.cancel()
            self.failureResultOf(each, CancelledError)
        self.assertEqual(self.slow.cancelled, 1)
        self.nothing_is_left()

    def test_not_ready(self) -> None:
        """A connection without SETTINGS in time is closed."""
        asked = self.ask()
        factory, connecting = self.slow.waiting.pop(0)
        self.slow.server.meet(factory).chainDeferred(connecting)
        self.clock.advance(READY_SECONDS)
        self.failureResultOf(asked, TimeoutError)
        self.assertTrue(self.slow.server.made[0].aborted)
        self.nothing_is_left()

    def test_left_before_ready(self) -> None:
        """A connection without SETTINGS is also closed if no request waits for it any more."""
        asked = self.ask()
        factory, connecting = self.slow.waiting.pop(0)
        self.slow.server.meet(factory).chainDeferred(connecting)
        asked.cancel()
        self.failureResultOf(asked, CancelledError)
        self.assertTrue(self.slow.server.made[0].aborted)
        self.nothing_is_left()

    def test_unused(self) -> None:
        """A connection whose only reader left before a request closes by itself."""
        asked = self.ask()
        self.slow.come()
        self.successResultOf(asked).abort()
        self.clock.advance(IDLE_SECONDS)
        self.nothing_is_left()
