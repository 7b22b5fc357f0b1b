"""
A machine that accepts no input: buffers, answers meanwhile, and no loss.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from twisted.internet import reactor

from tests.runtimes.serving.test_server import StreamCase
from tests.tiers import PROGRAMS
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.iri.request_cache import Grant
from twisted_exec.runtimes.pty import PtyDriver, PtyOptions
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.interfaces import SHUTTING_DOWN, Ending
from twisted_exec.streaming.remotecommand.carriers import DEFAULT_LIMITS, OVER_SPDY
from twisted_exec.streaming.remotecommand.client import ConsoleClient, connect
from twisted_exec.tls.endpoints import unix_client_endpoint
from twisted_exec.wire.channel import V5

from .support import User

TOTAL = 1 << 20

_SCRIPT = """\
stty raw -echo
while [ ! -e go ]; do echo waiting; sleep 0.05; done
head -c %d | sha256sum
exec sleep 1000
"""


class BlockedTests(StreamCase):
    """A real command in a pseudo-terminal, which reads nothing for a while."""

    starts = PROGRAMS
    exact = True
    protocols: Sequence[str] = (V5,)

    def setUp(self) -> None:
        super().setUp()
        options = PtyOptions(
            ["/bin/sh", "-c", _SCRIPT % TOTAL], same_user=True, directory=self.directory
        )
        driver = PtyDriver(options, reactor, self.table)  # type: ignore[arg-type]
        console = driver.run(self.facts())
        self.addCleanup(console.stop)
        self.shared = SharedConsole(console, reactor)  # type: ignore[arg-type]

    async def begin(self) -> ConsoleClient:
        await self.shared.open()
        self.addCleanup(self.shared.end, Ending(SHUTTING_DOWN))
        await self.serve()
        parts = urlsplit(self.server.exec_url(self.cache.insert(Grant("m"))))
        self.user = User()
        client = await connect(
            unix_client_endpoint(reactor, unquote(parts.netloc)),
            UpgradeRequest(b"GET", parts.path.encode(), b"localhost"),
            self.user,
            clock=reactor,  # type: ignore[arg-type]
            timeout_seconds=600,
            protocols=self.protocols,
        )
        self.addCleanup(client.abort)
        self.pongs = 0
        self.patch(client, "pong_received", self.pong_received)
        await self.until(lambda: b"waiting" in self.user.got)
        return client

    def pong_received(self) -> None:
        self.pongs += 1

    async def ping(self, client: ConsoleClient) -> None:
        """The server answers; the client may send pings of its own besides."""
        before = self.pongs
        client.carrier.ping()
        await self.until(lambda: self.pongs > before)

    def waiting_bytes(self) -> int:
        """Return how much input waits for the machine."""
        (viewer,) = self.shared.viewers
        return viewer._transport._input.cost  # A bound that nobody outside can see.

    async def more_output(self) -> None:
        """The machine goes on printing, and the user sees it."""
        before = len(self.user.got)
        await self.until(lambda: len(self.user.got) > before)

    async def test_blocked(self) -> None:
        """
        Up to 256 KiB are kept, and pings are answered as long; beyond that the user is not
        read, output goes on, and in the end the machine has every byte.
        """
        client = await self.begin()
        data = os.urandom(TOTAL)
        client.write(data[:200_000])
        await self.until(self.waiting_bytes)
        self.assertLess(self.waiting_bytes(), DEFAULT_LIMITS.input_bytes)
        await self.ping(client)
        await self.more_output()

        client.write(data[200_000:])
        await self.until(lambda: self.waiting_bytes() >= DEFAULT_LIMITS.input_bytes)
        retained = self.waiting_bytes()
        await self.more_output()
        await self.more_output()
        self.assertEqual(self.waiting_bytes(), retained)
        self.assertLess(retained, DEFAULT_LIMITS.input_bytes + (128 << 10))

        with open(os.path.join(self.directory, "go"), "w"):
            digest = hashlib.sha256(data).hexdigest().encode()
        await self.until(lambda: digest in self.user.got)
        await self.ping(client)

    async def test_leaves(self) -> None:
        """A user that leaves while it is not read is gone with the next sign of life at the latest."""
        client = await self.begin()
        client.write(os.urandom(TOTAL))
        await self.until(lambda: self.waiting_bytes() >= DEFAULT_LIMITS.input_bytes)
        client.abort()
        await self.until(lambda: self.user.gone)
        # The machine prints, so its end notices at once; else the ping every 30 s does.
        await self.until(lambda: not self.shared.viewers)


class BlockedSPDYTests(BlockedTests):
    """The same over SPDY."""

    exact = True
    protocols = (OVER_SPDY,)
