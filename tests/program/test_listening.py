"""
Tests for :mod:`twisted_exec.program.listening`.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
from typing import Any

from twisted.internet.protocol import Factory

from tests.tls.support import LoopbackCase, Recorder, reactor
from twisted_exec.program.listening import ListeningSocket, ListeningSockets, stop_unix_port
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.fast.transport import UNIXServer
from twisted_exec.tls.listening import BACKLOG


class ListeningTests(LoopbackCase):
    """Tests for :class:`ListeningSockets`."""

    def setUp(self) -> None:
        self.sockets = ListeningSockets()
        self.factory = Factory.forProtocol(Recorder)

    def tcp(self, description: str = "", *, is_shared: bool = False) -> ListeningSocket:
        return ListeningSocket(
            description, socket.create_server(("127.0.0.1", 0)), is_shared=is_shared
        )

    def unix(self) -> tuple[str, socket.socket]:
        directory = tempfile.mkdtemp(prefix="listening-")
        self.addCleanup(shutil.rmtree, directory)
        path, listening = f"{directory}/s", socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen()
        os.chmod(path, 0o640)
        return path, listening

    def adopt(self, *where: Any) -> Any:
        description, address = (*where, None)[:2]
        port = self.sockets.adopt(reactor, description, self.factory, address)
        if port is not None:
            self.addCleanup(lambda: port.stopListening())
        return port

    def number(self, listening: ListeningSocket) -> int:
        number = listening.socket.getsockname()[1]
        assert isinstance(number, int)
        return number

    def test_by_description(self) -> None:
        """Sockets of one description are adopted in their order, each once."""
        several = [self.tcp("tcp:0"), self.tcp("tcp:1"), self.tcp("tcp:0")]
        numbers = [self.number(each) for each in several]
        self.sockets.inherit(several)
        self.assertEqual(self.adopt("tcp:0").getHost().port, numbers[0])
        self.assertEqual(self.adopt("tcp:0").getHost().port, numbers[2])
        self.assertIsNone(self.adopt("tcp:0"))
        self.assertTrue(self.sockets.has("tcp:1"))
        self.sockets.close_unused()
        self.assertFalse(self.sockets.has("tcp:1"))

    def test_by_address(self) -> None:
        """A socket without a description is matched by its address."""
        listening = self.tcp()
        number = self.number(listening)
        self.sockets.inherit([listening])
        for other in (("127.0.0.2", number), ("127.0.0.1", number + 1), ("localhost", number)):
            self.assertIsNone(self.adopt("tcp", other))
        self.assertEqual(self.adopt("tcp", ("127.0.0.1", number)).getHost().port, number)

    def test_every_address(self) -> None:
        """A socket for IPv4 and IPv6 suits all addresses of either."""
        both = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        number = both.getsockname()[1]
        self.sockets.inherit([ListeningSocket("", both)])
        self.assertIsNotNone(self.adopt("tcp", ("0.0.0.0", number)))

    def test_held(self) -> None:
        """A held port accepts connections only when it may."""
        self.sockets.inherit([self.tcp("tcp:0")], is_held=True)
        port = self.adopt("tcp:0")
        self.assertNotIn(port, reactor.getReaders())
        self.sockets.accept()
        self.assertIn(port, reactor.getReaders())
        self.sockets.pause()
        self.assertNotIn(port, reactor.getReaders())

    async def test_released(self) -> None:
        """A released port leaves its socket open elsewhere, and its path there."""
        path, listening = self.unix()
        self.sockets.inherit([ListeningSocket("unix", listening)])
        port = self.adopt("unix")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o640)
        (held,) = self.sockets.sockets()
        kept = held.socket.dup()
        self.sockets.release()
        while port.connected:
            await self.turn()
        await stop_unix_port(port)
        self.assertEqual(self.sockets.sockets(), [])
        with socket.socket(socket.AF_UNIX) as plug, kept:
            plug.connect(path)

    async def test_not_released(self) -> None:
        """A port that cannot be left to another process does not stop the others."""

        def fail() -> None:
            raise OSError("too many open files")

        ports = []
        for name in ("one", "two"):
            _, listening = self.unix()
            self.sockets.inherit([ListeningSocket(name, listening)])
            ports.append(self.adopt(name))
        bad, good = ports
        self.patch(bad, "stopListening", fail)
        self.sockets.release()
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.assertEqual(self.sockets.sockets(), [])
        bad.stopReading()
        bad.socket.close()
        while good.connected:
            await self.turn()

    async def test_released_own(self) -> None:
        """A released port that this process has opened leaves its socket open elsewhere, too."""
        where = "tcp:0:interface=127.0.0.1"
        port: Any = await server_endpoint(reactor, where, None, self.sockets).listen(self.factory)
        (opened,) = self.sockets.sockets()
        kept = opened.socket.dup()
        self.sockets.release()
        while port.connected:
            await self.turn()
        with socket.create_connection(kept.getsockname()), kept:
            kept.accept()[0].close()

    async def test_endpoint(self) -> None:
        """An endpoint adopts a UNIX socket; its connections send at once, as those of its own sockets."""
        path, listening = self.unix()
        self.sockets.inherit([ListeningSocket(f"unix:{path}", listening)])
        where = server_endpoint(reactor, f"unix:{path}", None, self.sockets)
        port: Any = await where.listen(self.factory)
        self.assertIs(port.transport, UNIXServer)
        self.assertEqual(port.backlog, BACKLOG)
        await stop_unix_port(port)

    async def turn(self) -> None:
        from twisted.internet.task import deferLater

        await deferLater(reactor, 0)

    async def test_shared(self) -> None:
        """A socket that systemd keeps stays open when its port stops; a successor learns that, too."""
        path, listening = self.unix()
        kept = listening.dup()
        self.sockets.inherit([ListeningSocket("", listening, is_shared=True)])
        port = self.adopt("unix", path)
        self.assertEqual([each.is_shared for each in self.sockets.sockets()], [True])
        await stop_unix_port(port)
        with socket.socket(socket.AF_UNIX) as plug, kept:
            plug.connect(path)

    async def test_own(self) -> None:
        """The path of a socket that no other process has is removed."""
        path, listening = self.unix()
        self.sockets.inherit([ListeningSocket("", listening)])
        await stop_unix_port(self.adopt("unix", path))
        self.assertFalse(os.path.exists(path))

    def test_no_path(self) -> None:
        """A socket whose path was removed is not adopted."""
        path, listening = self.unix()
        os.unlink(path)
        self.sockets.inherit([ListeningSocket("unix", listening)])
        self.assertIsNone(self.adopt("unix"))
