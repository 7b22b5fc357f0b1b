"""
Tests for :mod:`twisted_exec.streaming.paths`.
"""

from __future__ import annotations

import socket
import struct

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.paths import LOST_SECONDS, Paths, unanswered, unanswered_seconds
from twisted_exec.streaming.splice import Splice


class Plugged:
    """A transport of a socket."""

    def __init__(self, plug: socket.socket) -> None:
        self.socket = plug


class UnansweredTests(SynchronousTestCase):
    """Tests for :func:`unanswered_seconds` and :func:`unanswered`."""

    def test_kernel(self) -> None:
        """A connection whose peer answers, a UNIX socket and other transports are well."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            connection = socket.create_connection(server.getsockname())
            accepted, _ = server.accept()
            near, far = socket.socketpair()
            with connection, accepted, near, far:
                connection.sendall(b"x")
                accepted.recv(1)
                for each in (Plugged(connection), Plugged(near), object()):
                    self.assertEqual(unanswered_seconds(each), 0)

    def test_info(self) -> None:
        """Only a connection that sends again and again is out of reach."""

        def info(retransmits: int, probes: int, last_ack: int) -> bytes:
            return struct.pack("=4B4x12IIQ", 1, 0, retransmits, probes, *([7] * 12), last_ack, 0)

        self.assertEqual(unanswered(info(4, 0, 16_500)), 16.5)
        self.assertEqual(unanswered(info(0, 0, 16_500)), 0)  # nothing was sent
        self.assertEqual(unanswered(info(0, 5, 90_000)), 0)  # the peer takes no more for a while
        self.assertEqual(unanswered(b""), 0)


class PathsTests(SynchronousTestCase):
    """Tests for :class:`Paths`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.seconds: dict[object, float] = {}
        self.paths = Paths(self.clock, lambda transport: self.seconds.get(transport, 0.0))

    def splice(self) -> tuple[Splice, StringTransport]:
        splice = Splice(self.clock, lambda _: None)
        transports = [StringTransport() for _ in range(2)]
        for end, transport in zip((splice.user, splice.machine), transports, strict=True):
            end.makeConnection(transport)
        self.paths.watch(splice)
        return splice, transports[1]

    def test_lost(self) -> None:
        """The connection whose peer does not answer is reset, within seconds, and no other one."""
        watched = [self.splice() for _ in range(7)]
        _, lost = watched[3]
        self.seconds[lost] = LOST_SECONDS - 0.1
        self.clock.pump([1] * 5)
        self.assertFalse(lost.disconnecting)
        self.seconds[lost] = LOST_SECONDS
        self.clock.pump([1] * 5)
        self.assertEqual(
            [transport.disconnecting for _, transport in watched],
            [False] * 3 + [True] + [False] * 3,
        )

    def test_idle(self) -> None:
        """There are no checks without a stream, nor of streams without a connection."""
        self.assertEqual(self.clock.getDelayedCalls(), [])
        waiting = Splice(self.clock, lambda _: None)
        self.paths.watch(waiting)
        self.clock.advance(1)
        self.paths.forget(waiting)
        self.paths.forget(waiting)
        self.assertEqual(self.clock.getDelayedCalls(), [])
