"""
Tests for :mod:`twisted_exec.program.listening`.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.protocol import Factory

from tests.tls.support import LoopbackCase, Recorder, reactor
from twisted_exec.program.listening import ListeningSockets, stop_unix_port
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.fast.transport import UNIXServer
from twisted_exec.tls.listening import BACKLOG, Address


class ListeningTests(LoopbackCase):
    """Tests for :class:`ListeningSockets`, with sockets as systemd opens them."""

    def setUp(self) -> None:
        self.sockets = ListeningSockets()
        self.factory = Factory.forProtocol(Recorder)

    def tcp(self) -> socket.socket:
        return socket.create_server(("127.0.0.1", 0))

    def unix(self) -> tuple[str, socket.socket]:
        directory = tempfile.mkdtemp(prefix="listening-")
        self.addCleanup(shutil.rmtree, directory)
        path, listening = f"{directory}/s", socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen()
        os.chmod(path, 0o640)
        return path, listening

    def adopt(self, address: Address) -> Any:
        port = self.sockets.adopt(reactor, self.factory, address)
        if port is not None:
            self.addCleanup(lambda: port.stopListening())
        return port

    def test_by_address(self) -> None:
        """A socket is matched by its address, and adopted once."""
        listening = self.tcp()
        number = listening.getsockname()[1]
        self.sockets.inherit([listening])
        for other in (("127.0.0.2", number), ("127.0.0.1", number + 1), ("localhost", number)):
            self.assertIsNone(self.adopt(other))
        self.assertEqual(self.adopt(("127.0.0.1", number)).getHost().port, number)
        self.assertIsNone(self.adopt(("127.0.0.1", number)))

    def test_every_address(self) -> None:
        """A socket for IPv4 and IPv6 suits all addresses of either."""
        both = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.sockets.inherit([both])
        self.assertIsNotNone(self.adopt(("0.0.0.0", both.getsockname()[1])))

    def test_unused(self) -> None:
        """Sockets that nothing uses are closed."""
        path, listening = self.unix()
        self.sockets.inherit([listening])
        self.assertTrue(self.sockets.has(path))
        self.sockets.close_unused()
        self.assertFalse(self.sockets.has(path))
        self.assertEqual(listening.fileno(), -1)

    async def test_endpoint(self) -> None:
        """An endpoint adopts a UNIX socket; its connections send at once, as those of its own sockets."""
        path, listening = self.unix()
        self.sockets.inherit([listening])
        where = server_endpoint(reactor, f"unix:{path}", None, self.sockets)
        port: Any = await where.listen(self.factory)
        self.assertIs(port.transport, UNIXServer)
        self.assertEqual(port.backlog, BACKLOG)
        await stop_unix_port(port)

    async def test_left_to_systemd(self) -> None:
        """A port that stops leaves its socket open at systemd, with its path: clients wait there."""
        for path, listening in (self.unix(), ("", self.tcp())):
            kept = listening.dup()
            address: Any = path or kept.getsockname()
            self.sockets.inherit([listening])
            await maybeDeferred(self.adopt(address).stopListening)
            with socket.socket(kept.family) as plug, kept:
                plug.connect(address)

    def test_no_path(self) -> None:
        """A socket whose path was removed is not adopted."""
        path, listening = self.unix()
        os.unlink(path)
        self.sockets.inherit([listening])
        self.assertIsNone(self.adopt(path))
