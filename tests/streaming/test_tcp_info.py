"""
Tests for :mod:`twisted_exec.streaming.flow`.
"""

from __future__ import annotations

import socket

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.flow import round_trip_seconds, tcp_info


class Plugged:
    """A transport of a socket."""

    def __init__(self, plug: socket.socket) -> None:
        self.socket = plug


class TCPInfoTests(SynchronousTestCase):
    """Tests for :func:`tcp_info` and :func:`round_trip_seconds`."""

    def test_kernel(self) -> None:
        """A TCP connection has a round trip, which is short on one host; after its end it has none."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            connection = socket.create_connection(server.getsockname())
            accepted, _ = server.accept()
            with connection, accepted:
                connection.sendall(b"x")
                accepted.recv(1)
                for each in (connection, accepted):
                    seconds = round_trip_seconds(Plugged(each))
                    assert seconds is not None
                    self.assertGreater(seconds, 0)
                    self.assertLess(seconds, 10)
            self.assertIsNone(round_trip_seconds(Plugged(connection)))

    def test_others(self) -> None:
        """UNIX sockets, transports without a socket, and missing transports have no figures."""
        near, far = socket.socketpair()
        with near, far:
            for each in (Plugged(near), object(), None):
                self.assertEqual(tcp_info(each), b"")
                self.assertIsNone(round_trip_seconds(each))
