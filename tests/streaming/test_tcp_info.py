"""
Tests for :mod:`twisted_exec.streaming.tcp_info`.
"""

from __future__ import annotations

import socket
import struct
import time

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.tcp_info import (
    round_trip_seconds,
    shortest_round_trip_seconds,
    tcp_info,
)


class Plugged:
    """A transport of a socket."""

    def __init__(self, plug: socket.socket) -> None:
        self.socket = plug


class TCPInfoTests(SynchronousTestCase):
    """Tests for :func:`tcp_info` and the round trips in it."""

    def test_kernel(self) -> None:
        """A TCP connection has the round trip that the kernel tells; after its end it has none."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            connection = socket.create_connection(server.getsockname())
            accepted, _ = server.accept()
            with connection, accepted:
                connection.sendall(b"x")
                accepted.recv(1)
                for each in (connection, accepted):
                    seconds = round_trip_seconds(Plugged(each))
                    # ``tcpi_rtt`` of ``struct tcp_info``, in microseconds.
                    raw = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 72)
                    (microseconds,) = struct.unpack_from("=I", raw, 68)
                    self.assertGreater(microseconds, 0)
                    self.assertEqual(seconds, microseconds / 10**6)
            self.assertIsNone(round_trip_seconds(Plugged(connection)))

    def test_delayed_acknowledgements(self) -> None:
        """The shortest round trip is not longer than an answer takes, although the peer delays acknowledgements."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            connection = socket.create_connection(server.getsockname())
            accepted, _ = server.accept()
            with connection, accepted:
                began = time.monotonic()
                connection.sendall(b"x")
                accepted.sendall(accepted.recv(1))
                connection.recv(1)
                taken = time.monotonic() - began
                for _ in range(20):  # of which each is acknowledged later
                    connection.sendall(b"x")
                    accepted.recv(1)
                seconds = shortest_round_trip_seconds(Plugged(connection))
                assert seconds is not None
                self.assertLessEqual(seconds, taken)
            self.assertIsNone(shortest_round_trip_seconds(Plugged(connection)))

    def test_others(self) -> None:
        """UNIX sockets, transports without a socket, and missing transports have no figures."""
        near, far = socket.socketpair()
        with near, far:
            for each in (Plugged(near), object(), None):
                self.assertEqual(tcp_info(each), b"")
                self.assertIsNone(round_trip_seconds(each))
