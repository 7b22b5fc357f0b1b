"""
Tests for :mod:`twisted_exec.runtimes.handover`; ``test_sessions`` has them between processes.
"""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.streaming.frames import handshake
from tests.streaming.http.test_upgrade_client import OneConnection
from twisted_exec.runtimes.handover import pass_on
from twisted_exec.runtimes.serving.kept_sessions import Bridged
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.subject import Subject
from twisted_exec.testing.network import MemoryClient, MemoryServer
from twisted_exec.wire.session_terms import FULL


class _Session:
    """A session that another process serves."""

    subject = Subject("s-1", user="ann", uid="u-1")
    terms = FULL


class Successor(Dispatcher):
    """A process to which the hop before sends requests that rejoin streams."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock, self.predecessor = clock, OneConnection()

    async def dispatch(self, request: Request) -> None:
        bridged = cast(Bridged, _Session())
        endpoint: Any = self.predecessor
        await pass_on(request, bridged, endpoint, self.clock)


class PassOnTests(SynchronousTestCase):
    """A stream that a busy predecessor serves."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.successor = Successor(self.clock)
        self.server = MemoryServer(self.successor, self.clock)

    def ask(self) -> MemoryClient:
        client = self.server.connect()
        client.send(handshake())
        return client

    def test_busy(self) -> None:
        """The hop before decides how long it waits: it gives a busy host more time at each attempt."""
        client = self.ask()
        self.clock.advance(39)
        self.assertEqual(client.received(), b"")
        self.successor.predecessor.protocol.dataReceived(
            b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        self.assertIn(b"101 Switching Protocols", client.received())

    def test_hop_leaves(self) -> None:
        """The connection to the predecessor ends with that of the hop before."""
        self.ask().lose()
        self.assertTrue(self.successor.predecessor.transport.aborted)
