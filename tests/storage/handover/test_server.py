"""
Tests for :mod:`twisted_exec.storage.handover.server`.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import UNIXClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import capturedLogs
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from tests.contracts.storage import MACHINES, changed, machine
from tests.storage.handover.stores import OpensStores
from twisted_exec.api.encoded import json_of
from twisted_exec.storage.handover.messages import (
    Answer,
    Change,
    Current,
    Decoder,
    Hello,
    Item,
    ListBegin,
    ListEnd,
    Message,
    Request,
    encode,
)
from twisted_exec.storage.handover.server import StoreServer
from twisted_exec.storage.interfaces import ADDED
from twisted_exec.storage.writer import CURRENT


class Predecessor(Protocol):
    """Reads messages, and waits for some."""

    transport: Any

    def __init__(self) -> None:
        self.received: list[Message] = []
        self.decoder = Decoder()
        self.lost: Deferred[None] = Deferred()
        self._waiting: list[tuple[type, Deferred[None]]] = []

    def dataReceived(self, data: bytes) -> None:
        for message, _ in self.decoder.feed(data):
            self.received.append(message)
            for kind, waiting in list(self._waiting):
                if isinstance(message, kind) and not waiting.called:
                    waiting.callback(None)

    def until(self, kind: type) -> Deferred[None]:
        """Return a Deferred that fires with the next message of a type."""
        waiting: Deferred[None] = Deferred()
        self._waiting.append((kind, waiting))
        return waiting

    def send(self, message: Message, body: bytes = b"") -> None:
        self.transport.write(encode(message, body))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.callback(None)


class ServerTests(OpensStores, TestCase):
    """A server of a store."""

    remembered_bytes = 1 << 20

    def setUp(self) -> None:
        self.path = self.mktemp()
        self.storage = self.open(self.path, inherits=True)

    async def connect(self, path: str = "") -> Predecessor:
        endpoint = UNIXClientEndpoint(
            self.reactor(), os.path.relpath(f"{path or self.path}-successor")
        )
        protocol: Any = await endpoint.connect(Factory.forProtocol(Predecessor))
        self.addCleanup(protocol.transport.abortConnection)
        return protocol  # type: ignore[no-any-return]

    async def test_another_user(self) -> None:
        """A process of another user gets nothing."""
        other, history = self.mktemp(), self.storage.history
        server = StoreServer(
            other, self.storage, history, self.reactor(), is_trusted=lambda _: False
        )
        server.start()
        self.addCleanup(lambda: Deferred.fromCoroutine(server.stop()))
        with capturedLogs() as logs:
            peer = await self.connect(other)
            peer.send(Hello(1, 0))
            await peer.lost
        self.assertEqual(peer.received, [])
        self.assertTrue(any("another user" in str(each.get("log_format")) for each in logs))

    async def test_bad_peers(self) -> None:
        """A peer that breaks the protocol is disconnected; others go on."""
        good = await self.connect()
        good.send(Hello(1, 0))
        for messages in (
            [Request(1, CURRENT, {})],
            [Hello(2, 0)],
            [Hello(1, -1)],
            [Hello(1, 0), Hello(1, 0)],
            [Answer(1)],
        ):
            peer = await self.connect()
            for message in messages:
                peer.send(message)
            await peer.lost
        good.send(Request(1, CURRENT, {}))
        await good.until(Answer)

    async def test_bad_requests(self) -> None:
        """A request that no store can execute is refused."""
        peer = await self.connect()
        peer.send(Hello(1, 0))
        for number, (change, resource, body) in enumerate(
            [
                ("RENAMED", vars(MACHINES), json_of(machine("a"))),
                (ADDED, {}, json_of(machine("a"))),
                (ADDED, vars(MACHINES), b"{}"),
            ]
        ):
            fields = {
                key: resource[key] for key in resource if key not in ("qualified", "api_version")
            }
            peer.send(Request(number, change, fields), body)
            await peer.until(Answer)
            answer = peer.received[-1]
            assert isinstance(answer, Answer) and answer.status is not None
            self.assertEqual((answer.number, answer.status["code"]), (number, 400))

    async def test_slow_reader(self) -> None:
        """
        A predecessor that does not read costs no memory for each change, and gets all of them when it
        reads again, each once; or the objects, if the changes are forgotten.
        """
        for remembered, last in ((10_000, Change), (50, ListEnd)):
            self.remembered = remembered
            self.path = self.mktemp()
            self.remembered_bytes = 1 << 30
            storage = self.open(self.path, inherits=True)
            peer = await self.connect()
            peer.send(Hello(1, 0))
            await peer.until(Current)
            peer.transport.pauseProducing()
            stored = await storage.create(MACHINES, machine("a"))
            for turn in range(200):
                stored = await storage.update(
                    MACHINES, changed(stored, turn=turn, text="x" * 20_000)
                )
            (server_side,) = storage._server.predecessors  # type: ignore[union-attr]
            self.assertLess(len(server_side.transport.dataBuffer), 1 << 20)
            peer.received.clear()
            peer.transport.resumeProducing()
            await peer.until(Current)
            kinds = {type(message) for message in peer.received[-4:]}
            self.assertIn(last, kinds)
            versions = [each.version for each in peer.received if isinstance(each, Change)]
            self.assertEqual(versions, list(range(1, len(versions) + 1)))
            if last is Change:
                self.assertEqual(len(versions), 201)
            else:
                self.assertEqual(
                    [type(each) for each in peer.received[-4:]],
                    [ListBegin, Item, ListEnd, Current],
                )
