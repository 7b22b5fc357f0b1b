"""
Tests for :mod:`twisted_exec.streaming.http.websocket`.

What both ends do with it is tested with them; here is what neither shows.
"""

from __future__ import annotations

import gc
import struct
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.streaming.frames import CloseConnection, masked
from tests.streaming.remotecommand.serving import ServeTestCase
from twisted_exec.streaming.http.websocket import (
    ServerSocket,
    client_factory,
    server_factory,
    unmasked,
)
from twisted_exec.streaming.remotecommand.carriers import StreamLimits
from twisted_exec.testing.console import RecordingAttachment


class FactoryTests(SynchronousTestCase):
    """Tests for the options."""

    def test_limits(self) -> None:
        """Sizes are limited, the drop is never brutal, and no time is autobahn's."""
        for build in (server_factory, client_factory):
            factory = build(Clock(), 1000)
            self.assertEqual(
                (factory.maxMessagePayloadSize, factory.maxFramePayloadSize), (1000,) * 2
            )
            self.assertFalse(factory.failByDrop)
            times = (
                factory.openHandshakeTimeout,
                factory.closeHandshakeTimeout,
                factory.autoPingInterval,
            )
            self.assertEqual(times, (0, 0, 0))

    def test_shared(self) -> None:
        """One factory serves all connections with the same options."""
        clock = Clock()
        self.assertIs(server_factory(clock, 1000), server_factory(clock, 1000))
        self.assertIsNot(server_factory(clock, 1000), server_factory(clock, 2000))


class FragmentTests(ServeTestCase):
    """A message that comes in fragments, as a console's server keeps it."""

    limits = StreamLimits()

    def test_without_end(self) -> None:
        """Many fragments, empty ones too, are kept as their bytes and no more."""
        peer = self.connect()
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        peer.raw(masked(b"\0", fin=False))
        before, _ = tracemalloc.get_traced_memory()
        for part in (b"", b"x"):
            fragments = masked(part, 0, fin=False) * 100
            for _ in range(20):
                peer.raw(fragments)
        after, _ = tracemalloc.get_traced_memory()
        self.assertLess(after - before, 64 << 10)
        peer.raw(masked(b"y", 0))
        self.assertEqual(self.attachment.received, b"x" * 2_000 + b"y")

    def test_too_many(self) -> None:
        """A message in tens of thousands of tiny fragments is refused."""
        for part in (b"", b"x"):
            self.setUp()
            peer = self.connect()
            peer.raw(
                masked(b"\0", fin=False) + masked(part, 0, fin=False) * 20_000 + masked(b"", 0)
            )
            (status, closing) = peer.events()
            self.assertIn(b"too many small fragments", status.data)
            self.assertEqual(closing.code, 1008)
            self.assertEqual(self.attachment.received, b"")

    def test_larger_fragments(self) -> None:
        """The number of larger fragments is not limited."""
        peer = self.connect()
        peer.raw(masked(b"\0", fin=False) + masked(b"x" * 16, 0, fin=False) * 20_000)
        peer.raw(masked(b"", 0))
        self.assertEqual(len(self.attachment.received), 320_000)


class LostTests(ServeTestCase):
    """A connection that is lost without a Close."""

    def test_nothing_is_kept(self) -> None:
        """A lost connection is freed without the garbage collector."""
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        peer = self.connect()
        before = self.sockets()
        peer.client.lose()
        # Cycles of the doubles.
        self.attachment.transport = None
        peer.client.transport.protocol = peer.client.transport.producer = None
        self.attach(RecordingAttachment())
        del peer
        self.assertEqual(len(before - self.sockets()), 1)

    def sockets(self) -> set[int]:
        return {id(each) for each in gc.get_objects() if isinstance(each, ServerSocket)}


class CloseTests(ServeTestCase):
    """The Close of a client."""

    limits = StreamLimits()

    def closed_with(self, code: int) -> int | None:
        """The code of our Close after the client's."""
        self.setUp()
        peer = self.connect()
        peer.raw(masked(struct.pack("!H", code), 8))
        return next(event.code for event in peer.events() if isinstance(event, CloseConnection))

    def test_codes(self) -> None:
        """Registered codes, 1014 (Bad Gateway) included, are no mistake; reserved ones are."""
        for code in (1000, 1001, 1011, 1012, 1013, 1014, 3000, 4999):
            self.assertEqual(self.closed_with(code), 1000, code)
            self.assertNotIn("protocol", self.attachment.detached_with[0])
        for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000):
            self.assertEqual(self.closed_with(code), 1002, code)


class UnmaskedTests(SynchronousTestCase):
    """Tests for :func:`unmasked`."""

    @given(st.binary(max_size=300), st.binary(min_size=4, max_size=4), st.integers(0, 300))
    def test_parts(self, data: bytes, mask: bytes, middle: int) -> None:
        """Each byte is changed by that of the mask at its place in the payload, wherever a part ends."""
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
        middle = min(middle, len(data))
        parts = unmasked(masked[:middle], mask, 0) + unmasked(masked[middle:], mask, middle)
        self.assertEqual(parts, data)
