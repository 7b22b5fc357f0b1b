"""Tests for :mod:`tests.ports`."""

from __future__ import annotations

import errno
import socket
import struct

from twisted.internet import reactor as _reactor
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.protocol import Factory
from twisted.trial.unittest import TestCase

from tests.ports import ReservedPorts

IP_LOCAL_PORT_RANGE = 51
"""As ``linux/in.h`` has it: the ports that a socket may get, the lowest and the highest one."""


class ReservedPortsTests(TestCase):
    """One port."""

    def setUp(self) -> None:
        self.ports = ReservedPorts()
        self.addCleanup(self.ports.release)
        self.port = self.ports.add()

    async def test_listen(self) -> None:
        """A program that names the port listens there, and does so again after it has left."""
        endpoint = TCP4ServerEndpoint(_reactor, self.port, interface="127.0.0.1")
        for _ in range(2):
            listening = await endpoint.listen(Factory())
            self.assertEqual(listening.getHost().port, self.port)
            await listening.stopListening()

    def bind(self) -> int:
        """Ask Linux for a free port where there is only this one; return it."""
        with socket.socket() as asking:
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            asking.setsockopt(
                socket.SOL_IP, IP_LOCAL_PORT_RANGE, struct.pack("HH", *[self.port] * 2)
            )
            asking.bind(("127.0.0.1", 0))
            return int(asking.getsockname()[1])

    def test_reserved(self) -> None:
        """Nobody who asks for a free port gets it, before it is given back."""
        with self.assertRaises(OSError) as caught:
            self.bind()
        if caught.exception.errno == errno.ENOPROTOOPT:
            return  # before Linux 6.3 nobody can ask for so few ports
        self.assertEqual(caught.exception.errno, errno.EADDRINUSE)
        self.ports.release()
        self.assertEqual(self.bind(), self.port)
