"""Tests for :mod:`twisted_exec.streaming.rejoinable_transport`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import Conflict, NotFound
from twisted_exec.streaming.rejoinable_transport import (
    RejoinableTransport,
    RejoinableTransports,
    StreamOwner,
)
from twisted_exec.testing.network import MemoryNetwork, MemoryTransport
from twisted_exec.wire.rejoin import Rejoin, Rejoinable

from .rejoin.support import WAIT_SECONDS, Peer


class StreamsTests(SynchronousTestCase):
    """The streams of a server."""

    owner = StreamOwner("3f6b", "ada", "uid-1")

    def setUp(self) -> None:
        self.clock, self.network = Clock(), MemoryNetwork()
        self.streams = RejoinableTransports(self.clock, 29.5)

    def open(self) -> tuple[Rejoinable, Peer, MemoryTransport]:
        offer = self.streams.offered(self.owner)
        assert offer is not None
        machine = Peer()
        near, _ = self.network.join(Peer(), offer.connection(machine, has_head=False))
        return offer.answer, machine, near

    def test_found(self) -> None:
        answer, machine, _ = self.open()
        self.assertEqual(answer.seconds, 30)
        stream = self.streams.find(self.owner, Rejoin(answer.key, 0))
        self.assertIs(machine.transport, stream)
        self.assertEqual(len(self.streams), 1)

    def test_not_opened(self) -> None:
        """A stream whose client leaves before it opens is not kept."""
        offer = self.streams.offered(self.owner)
        assert offer is not None
        offer.connection(Peer(), has_head=False)
        self.assertEqual(len(self.streams), 0)
        with self.assertRaises(NotFound):
            self.streams.find(self.owner, Rejoin(offer.answer.key, 0))

    def test_others(self) -> None:
        """Every difference gets the same answer."""
        answer, _, _ = self.open()
        right = Rejoin(answer.key, 0)
        messages = set()
        for owner, rejoin in (
            (StreamOwner("3f6c", "ada", "uid-1"), right),
            (StreamOwner("3f6b", "bob", "uid-1"), right),
            (StreamOwner("3f6b", "ada", "uid-2"), right),
            (self.owner, Rejoin("x" * 43, 0)),
        ):
            error = self.assertRaises(NotFound, self.streams.find, owner, rejoin)
            messages.add(error.message)
        self.assertEqual(len(messages), 1)

    def test_not_kept(self) -> None:
        answer, _, _ = self.open()
        with self.assertRaises(Conflict):
            self.streams.find(self.owner, Rejoin(answer.key, 1))

    def test_over(self) -> None:
        """A stream is forgotten when its wait is over."""
        answer, machine, near = self.open()
        near.abortConnection()
        self.network.pump()
        self.streams.find(self.owner, Rejoin(answer.key, 0))
        self.clock.advance(29.5)
        self.assertIsNotNone(machine.lost)
        self.assertEqual(len(self.streams), 0)
        with self.assertRaises(NotFound):
            self.streams.find(self.owner, Rejoin(answer.key, 0))

    def test_off(self) -> None:
        self.assertIsNone(RejoinableTransports(self.clock, 0).offered(self.owner))

    def test_keys_are_not_printed(self) -> None:
        offer = self.streams.offered(self.owner)
        assert offer is not None
        self.assertNotIn(offer.answer.key, repr(offer))


class HeadTests(SynchronousTestCase):
    """The head of a response that the protocol writes is no part of the stream."""

    def test_not_sent_again(self) -> None:
        """Bytes are counted from behind the head, however it is written."""
        machine, near = Peer(), Peer()
        stream = RejoinableTransport(machine, Clock(), WAIT_SECONDS, has_head=True)
        network = MemoryNetwork()
        first, _ = network.join(near, stream.connection())
        for piece in (b"HTTP/1.1 101 Switching\r\n", b"A: b\r", b"\n\r\n\x82\x00", b"rest"):
            machine.transport.write(piece)
        network.pump()
        self.assertTrue(near.got.endswith(b"\r\n\r\n\x82\x00rest"))
        first.abortConnection()
        network.pump()
        again = Peer()
        network.join(again, stream.rejoin(2))
        network.pump()
        self.assertEqual(again.got, b"rest")
