"""Tests for :mod:`twisted_exec.streaming.transports`."""

from __future__ import annotations

from twisted.internet.abstract import FileDescriptor
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactor
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.trial.unittest import SynchronousTestCase

from tests.streaming.http.test_upgrade_server import Taker
from twisted_exec.streaming.transports import (
    can_half_close,
    close_behind,
    is_tls,
    swap_protocol,
    unwritten,
)
from twisted_exec.testing.network import MemoryNetwork


class Slow(FileDescriptor):
    """A transport that takes a little of each write."""

    connected = 1

    def __init__(self) -> None:
        super().__init__(MemoryReactor())
        self.taken: list[bytes] = []

    def writeSomeData(self, data: bytes) -> int:
        self.taken.append(bytes(data[:1000]))
        return len(self.taken[-1])


class UnwrittenTests(SynchronousTestCase):
    """What a transport of Twisted has not written."""

    def test_nothing(self) -> None:
        """A transport without output has nothing, and goes on."""
        slow = Slow()
        self.assertEqual(unwritten(slow), b"")
        slow.write(b"x")
        slow.doWrite()
        self.assertEqual((slow.taken, unwritten(slow)), ([b"x"], b""))

    def test_queue(self) -> None:
        """All of it, in order, whether Twisted has joined the writes or not; they are still written."""
        slow = Slow()
        data = bytes(range(256)) * 1200  # more than Twisted joins at once
        for start in range(0, len(data), 100_000):
            slow.write(data[start : start + 100_000])
            slow.doWrite()
        slow.write(b"last")
        for _ in range(2):
            sent = b"".join(slow.taken)
            self.assertEqual(sent + unwritten(slow), data + b"last")
            slow.doWrite()
        while unwritten(slow):
            slow.doWrite()
        self.assertEqual(b"".join(slow.taken), data + b"last")


class FlowTests(SynchronousTestCase):
    """Properties of transports."""

    def setUp(self) -> None:
        self.network = MemoryNetwork()
        self.here, self.there = Taker(), Taker()

    def test_plain(self) -> None:
        """A socket half-closes."""
        self.network.join(self.here, self.there)
        self.assertFalse(is_tls(self.here.transport))
        self.assertTrue(can_half_close(self.here.transport))
        self.there.transport.write(b"unread")
        close_behind(self.here.transport)
        self.network.pump()
        self.assertTrue(self.there.half_closed)
        self.assertEqual(self.here.received, [b"unread"])

    def test_tls(self) -> None:
        """TLS does not half-close, though it has the method."""
        self.network.join(self.here, self.there, encrypted=True)
        self.assertTrue(is_tls(self.here.transport))
        self.assertFalse(can_half_close(self.here.transport))
        close_behind(self.here.transport)
        self.network.pump()
        self.assertIsNotNone(self.here.lost)

    def test_swap(self) -> None:
        """A swapped protocol gets what comes from then on."""
        self.network.join(self.here, self.there)
        self.there.transport.write(b"one")
        self.network.pump()
        swap_protocol(self.here.transport, other := Taker())
        self.there.transport.write(b"two")
        self.network.pump()
        self.assertEqual((self.here.received, other.received), ([b"one"], [b"two"]))

    def test_swap_under_a_wrapper(self) -> None:
        """Under a wrapper such as TLS it is the wrapped protocol that changes."""
        wrapping = WrappingFactory(Factory.forProtocol(Protocol))
        wrapper = ProtocolWrapper(wrapping, self.here)
        self.network.join(wrapper, self.there)
        swap_protocol(self.here.transport, other := Taker())
        self.there.transport.write(b"x")
        self.network.pump()
        self.assertEqual((self.here.received, other.received), ([], [b"x"]))
