"""Tests for :mod:`twisted_exec.streaming.rejoinable_transport`."""

from __future__ import annotations

import hashlib

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import Conflict, NotFound
from twisted_exec.streaming.rejoinable_transport import (
    RejoinableTransport,
    RejoinableTransports,
    StreamOwner,
    TransportState,
)
from twisted_exec.testing.network import MemoryNetwork, MemoryTransport
from twisted_exec.wire.rejoin import Rejoin, Rejoinable

from .rejoin.support import WAIT_SECONDS, Chain, Peer, frame


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


class AnotherProcessTests(SynchronousTestCase):
    """Another process may continue the stream."""

    def setUp(self) -> None:
        self.chain = chain = Chain()
        chain.stream.ping = lambda: True
        chain.machine.transport.write(frame(b"\x01one"))
        chain.stream.keep_alive()
        chain.user.transport.write(b"keys and a pa")
        chain.network.pump()
        self.state = chain.stream.suspend(4)
        chain.user.transport.write(b"rt")
        chain.machine.transport.write(frame(b"\x01two"))
        chain.network.pump()

    def test_suspended(self) -> None:
        """Nothing passes in either direction."""
        self.assertEqual(self.state, TransportState(9, 0, frame(b"\x01one"), (8,)))
        self.assertEqual(self.chain.machine.got, b"keys and a pa")
        self.assertEqual(self.chain.user.got, frame(b"\x01one"))

    def test_unsuspended(self) -> None:
        """If there is no other process, everything passes that has waited."""
        self.chain.stream.unsuspend()
        self.chain.network.pump()
        self.assertEqual(self.chain.machine.got, b"keys and a part")
        self.assertEqual(self.chain.user.got, frame(b"\x01one") + frame(b"\x01two"))

    def test_lost_meanwhile(self) -> None:
        """A connection that is lost meanwhile is replaced later, and nothing is lost with it."""
        self.chain.cut()
        self.chain.stream.unsuspend()
        self.chain.rejoin()
        self.chain.network.pump()
        self.assertEqual(self.chain.machine.got, b"keys and a part")
        self.assertEqual(self.chain.user.got, frame(b"\x01one") + frame(b"\x01two"))

    def test_continued(self) -> None:
        """The hop before rejoins the stream in the other process, which waits for it for a while."""
        chain, machine = self.chain, Peer()
        owner, key = StreamOwner("3f6b", "ada", "uid-1"), "k" * 43
        streams = RejoinableTransports(chain.clock, 30)
        digest = hashlib.sha256(key.encode()).digest()
        chain.stream.abortConnection()
        chain.network.pump()
        chain.stream = streams.make(digest, owner, machine, has_head=False)
        chain.stream.restore(self.state)
        self.assertIs(streams.find(owner, Rejoin(key, 0)), chain.stream)
        chain.rejoin()
        machine.transport.write(frame(b"\x01three"))
        chain.network.pump()
        self.assertEqual(machine.got, b"a part")
        self.assertEqual(chain.user.got, frame(b"\x01one") + frame(b"\x01three"))
        chain.cut()
        chain.clock.advance(30)
        self.assertEqual(len(streams), 0)


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
