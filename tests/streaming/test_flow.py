"""Tests for :mod:`twisted_exec.streaming.flow`."""

from __future__ import annotations

from twisted.internet.protocol import Factory, Protocol
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.trial.unittest import SynchronousTestCase

from tests.streaming.http.test_upgrade_server import Taker
from twisted_exec.streaming.flow import can_half_close, close_behind, is_tls, swap_protocol
from twisted_exec.testing.network import MemoryNetwork


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
