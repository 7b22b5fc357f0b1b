"""
A shell in a pseudo-terminal through three processes: several viewers, terminal sizes, large output,
and a reader that stops.
"""

from __future__ import annotations

import hashlib
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from tests import procfs, soak
from tests.flows import shared
from tests.flows.consoles import endpoint, watch
from tests.flows.deployment import pause
from tests.tiers import PROGRAMS
from twisted_exec.streaming.interfaces import TerminalSize


def flood(size: int) -> bytes:
    """
    Return a command that prints ``size`` bytes.

    The output is deterministic, fast to generate, and without repetition within any buffer: every
    line is its own number.
    """
    lines = size // 16
    return f"stty raw -echo; echo BEG''IN; seq -f %015.0f 1 {lines}; stty cooked; echo E''ND\n".encode()


def flood_digest(size: int) -> str:
    """Return the digest of the flood; in raw mode a newline stays a newline."""
    digest = hashlib.sha256()
    for first in range(1, size // 16 + 1, 1 << 16):
        digest.update(b"".join(b"%015d\n" % n for n in range(first, first + (1 << 16))))
    return digest.hexdigest()


class Sink(Protocol):
    """Hashes the data after a mark, up to the size of the flood, without keeping it."""

    transport: Any

    def __init__(self, size: int) -> None:
        self.size = size
        self.digest = hashlib.sha256()
        self.received, self.pause_at = 0, size + 1
        self.paused: Deferred[None] = Deferred()
        self.finished: Deferred[str] = Deferred()
        self.ended: Deferred[Any] = Deferred()
        self._head = b""
        self._begun = False

    def connectionMade(self) -> None:
        self.transport.write(flood(self.size))

    def dataReceived(self, data: bytes) -> None:
        if not self._begun:
            self._head += data
            _, mark, data = self._head.partition(b"BEGIN\n")
            if not mark:
                return
            self._begun = True
        data = data[: self.size - self.received]
        self.digest.update(data)
        self.received += len(data)
        if self.received >= self.pause_at and not self.paused.called:
            self.transport.pauseProducing()
            self.paused.callback(None)
        if self.received == self.size and not self.finished.called:
            self.finished.callback(self.digest.hexdigest())

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.ended.callback(reason.value)
        if not self.finished.called:
            self.finished.errback(reason)


class DemoShellTests(TestCase):
    """One pty machine and its viewers."""

    starts = PROGRAMS

    async def setUp(self) -> None:
        self.deployment = await shared.deployment(self)
        await self.deployment.create_machine("sh", "shell")

    async def test_company(self) -> None:
        """Viewers share one console; a later viewer first receives the earlier output."""
        admin = self.deployment.admin
        first, second = await watch(admin, "sh"), await watch(admin, "sh")
        first.type(b"echo a$((40+2))a\n")
        await first.until(rb"a42a\r\n")
        await second.until(rb"a42a\r\n")
        second.type(b"echo b$((40+3))b\n")
        await first.until(rb"b43b\r\n")
        third = await watch(admin, "sh")
        await third.until(rb"a42a\r\n(?s:.*)b43b\r\n")
        await second.leave()
        await first.ask(b"echo c$((40+4))c\n", rb"c44c\r\n")
        await third.until(rb"c44c\r\n")
        await first.leave()
        await third.leave()

    async def test_window(self) -> None:
        """A viewer's window size is the terminal's."""
        screen = await watch(self.deployment.admin, "sh")
        for columns, rows in ((132, 43), (80, 25)):
            screen.transport.window_changed(TerminalSize(columns, rows))
            await screen.ask(b"stty size\n", b"%d %d\r\n" % (rows, columns))
        await screen.leave()

    async def test_flood(self) -> None:
        """Many MiB arrive at a sole viewer without a byte lost or changed."""
        size = soak.figure(self) << 20
        sink = await connectProtocol(endpoint(self.deployment.admin, "sh"), Sink(size))
        self.assertEqual(await sink.finished, flood_digest(size))
        sink.transport.loseConnection()
        await sink.ended

    async def test_reader_that_stops(self) -> None:
        """
        While the only viewer does not read, the shell waits, and every hop buffers little, which the
        large figure shows; when it reads again it receives everything.
        """
        # Linux lets the sockets of three connections grow by many MiB, the longer they are read the more.
        size = soak.figure(self) << 20
        sink = await connectProtocol(endpoint(self.deployment.admin, "sh"), Sink(size))
        sink.pause_at = 1 << 20
        await sink.paused  # at once: in a moment the rest could come
        pids = {
            hop: getattr(self.deployment, hop).transport.pid
            for hop in ("api", "poollet", "runtime")
        }
        before = {hop: procfs.resident_bytes(pid) for hop, pid in pids.items()}
        flooding = await self.process_named("seq")
        written = -1
        quiet_since = reactor.seconds()
        while reactor.seconds() < quiet_since + 2:
            now = procfs.written_bytes(flooding)
            if now != written:
                written, quiet_since = now, reactor.seconds()
            await pause()
        for hop, pid in pids.items() if soak.is_large() else ():
            grown = procfs.resident_bytes(pid) - before[hop]
            # The runtime keeps up to 4 MiB of output that a slow disk has not taken yet.
            bound = 8 << 20 if hop == "runtime" else 4 << 20
            self.assertLess(grown, bound, f"{hop} grew by {grown} bytes")
        self.assertLess(sink.received, size)
        sink.transport.resumeProducing()
        self.assertEqual(await sink.finished, flood_digest(size))
        sink.transport.loseConnection()
        await sink.ended

    async def process_named(self, name: str) -> int:
        """Wait for a descendant of the runtime with this name, and return its pid."""
        root = self.deployment.runtime.transport.pid
        while True:
            for pid in procfs.descendants(root):
                if procfs.name(pid) == name:
                    return pid
            await pause()
