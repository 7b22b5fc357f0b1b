"""Tests for :mod:`twisted_exec.program.handover.connections`."""

from __future__ import annotations

import os
import socket
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from twisted_exec.program.handover.connections import PassedConnections, SuccessorEndpoint


class Echo(Protocol):
    def dataReceived(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[union-attr]


class Client(Protocol):
    """Knows what it got, and when its connection ends."""

    def __init__(self) -> None:
        self.received: Deferred[bytes] = Deferred()
        self.ended: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.received.callback(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.ended.callback(None)


class ConnectionTests(TestCase):
    """A process, and its successor."""

    def setUp(self) -> None:
        ours, theirs = socket.socketpair()
        self.endpoint = SuccessorEndpoint(reactor, ours)
        self.addCleanup(self.endpoint.close)
        self.endpoint.start()
        self.served = self.serving(theirs)

    def serving(self, end: socket.socket) -> PassedConnections:
        served = PassedConnections(reactor, end, Factory.forProtocol(Echo))
        self.addCleanup(served.close)
        return served

    async def connect(self) -> Client:
        client: Any = await self.endpoint.connect(Factory.forProtocol(Client))
        self.addCleanup(lambda: client.transport.abortConnection())
        return client

    async def test_connections(self) -> None:
        """Each connection is one of its own; those that came before the start are served as well."""
        clients = [await self.connect() for _ in range(3)]
        for number, each in enumerate(clients):
            each.transport.write(b"%d" % number)  # type: ignore[union-attr]
        self.served.start()
        self.assertEqual([await each.received for each in clients], [b"0", b"1", b"2"])
        for each in clients:
            each.transport.loseConnection()  # type: ignore[union-attr]
            await each.ended

    async def test_another_successor(self) -> None:
        """Connections wait while no process reads; then the one that has a copy of the end serves."""
        self.served.start()
        self.served.pause()
        client = await self.connect()
        client.transport.write(b"wait")  # type: ignore[union-attr]
        another = self.serving(socket.socket(fileno=os.dup(self.served.fileno())))
        self.served.close()
        another.start()
        self.assertEqual(await client.received, b"wait")
        self.assertFalse(self.endpoint.lost.called)

    async def test_lost(self) -> None:
        """A process learns that no successor has the other end any more."""
        self.served.start()
        self.served.close()
        await self.endpoint.lost
        with self.assertRaises(ConnectError):
            await self.connect()

    async def test_successor_that_fails(self) -> None:
        """A successor that ends shuts down neither its predecessor's end nor its copies."""
        copy = self.serving(socket.socket(fileno=os.dup(self.served.fileno())))
        copy.start()
        copy.connectionLost(Failure(ConnectError()))  # as the reactor calls at its end
        self.served.start()
        client = await self.connect()
        client.transport.write(b"here")  # type: ignore[union-attr]
        self.assertEqual(await client.received, b"here")
