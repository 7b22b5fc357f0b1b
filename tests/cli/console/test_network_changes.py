"""
Tests for :mod:`twisted_exec.cli.console.network_changes`.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import struct
import sys
from typing import Any
from unittest import skipUnless

from twisted.internet import reactor
from twisted.internet.task import Clock
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import SynchronousTestCase, TestCase

from twisted_exec.cli.console.network_changes import (
    COALESCE_SECONDS,
    NetworkChanges,
    has_appeared,
    watch_network,
)

UP, RUNNING = 0x1, 0x40


def message(kind: int, body: bytes = b"") -> bytes:
    """Return a netlink message, padded as in a list of several."""
    data = struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body
    return data + bytes(-len(data) % 4)


def link(flags: int, kind: int = 16) -> bytes:
    """Return the message about a link, with an attribute behind it."""
    return message(kind, struct.pack("=BxHiII", 0, 1, 2, flags, 0) + b"\x08\x00\x03\x00eth0")


ADDRESS = message(20, bytes(8))


class HasAppearedTests(SynchronousTestCase):
    """Tests for :func:`has_appeared`."""

    def test_messages(self) -> None:
        """A link that works and an address count; what disappears does not."""
        for data, expected in (
            (ADDRESS, True),
            (link(UP | RUNNING), True),
            (link(UP), False),
            (link(RUNNING, kind=17), False),
            (message(21, bytes(8)), False),
            (link(UP) + message(21, b"odd") + ADDRESS, True),
            (b"", False),
        ):
            self.assertIs(has_appeared(data), expected, data)

    def test_malformed(self) -> None:
        """Messages that are cut short or lie about their size are harmless."""
        for data in (
            link(UP | RUNNING)[:20],
            ADDRESS[:15],
            bytes(64),
            struct.pack("=IHHII", 7, 20, 0, 0, 0),
            message(16),
        ):
            self.assertFalse(has_appeared(data), data)


class FakeReactor(Clock):
    """A clock that knows which descriptors are read."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: set[Any] = set()

    def addReader(self, reader: Any) -> None:
        self.readers.add(reader)

    def removeReader(self, reader: Any) -> None:
        self.readers.discard(reader)


class FailingSocket:
    """A netlink socket with prepared answers."""

    closed = False

    def __init__(self, *answers: bytes | OSError) -> None:
        self.answers = [*answers]

    def recv(self, size: int) -> bytes:
        answer = self.answers.pop(0) if self.answers else BlockingIOError()
        if isinstance(answer, OSError):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


class NetworkChangesTests(SynchronousTestCase):
    """Tests for :class:`NetworkChanges`."""

    def setUp(self) -> None:
        self.reactor = FakeReactor()
        self.calls = 0

    def changed(self) -> None:
        self.calls += 1

    def watch(self, sock: Any) -> NetworkChanges:
        watcher = NetworkChanges(sock, self.changed, self.reactor)
        watcher.startReading()
        return watcher

    def test_coalesced(self) -> None:
        """A burst of changes is one call, a tenth of a second after its first message."""
        ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(other.close)
        ours.setblocking(False)
        watcher = self.watch(ours)
        self.addCleanup(watcher.stop)
        for _ in range(5):
            other.send(ADDRESS + link(RUNNING))
            watcher.doRead()
        self.clock_to(COALESCE_SECONDS, 1)
        other.send(link(UP))
        watcher.doRead()
        self.clock_to(COALESCE_SECONDS, 1)
        other.send(ADDRESS)
        watcher.doRead()
        self.clock_to(COALESCE_SECONDS, 2)

    def clock_to(self, seconds: float, calls: int) -> None:
        self.reactor.advance(seconds)
        self.assertEqual(self.calls, calls)

    def test_bounded(self) -> None:
        """A flood of messages does not hold up the program."""
        sock = FailingSocket(*[ADDRESS] * 100)
        self.watch(sock).doRead()
        self.assertGreater(len(sock.answers), 50)

    def test_dropped_messages(self) -> None:
        """If the system has dropped messages, one of them may have mattered."""
        watcher = self.watch(FailingSocket(OSError(errno.ENOBUFS, "full")))
        self.assertIsNone(watcher.doRead())
        self.clock_to(COALESCE_SECONDS, 1)

    def test_error(self) -> None:
        """An error ends the watch, and nothing else."""
        sock = FailingSocket(ADDRESS, OSError(errno.EIO, "broken"))
        watcher = self.watch(sock)
        error = watcher.doRead()
        assert isinstance(error, OSError)
        watcher.connectionLost(None)  # type: ignore[arg-type]  # the reason does not matter
        self.assertTrue(sock.closed)
        self.assertEqual(self.reactor.readers, set())
        self.clock_to(1, 0)

    def test_stop(self) -> None:
        """After the end there are no calls; a second end does nothing."""
        sock = FailingSocket(ADDRESS)
        watcher = self.watch(sock)
        watcher.doRead()
        watcher.stop()
        watcher.stop()
        self.assertTrue(sock.closed)
        self.clock_to(1, 0)
        self.assertEqual(self.reactor.getDelayedCalls(), [])


class WatchNetworkTests(SynchronousTestCase):
    """Tests for :func:`watch_network`."""

    def test_not_available(self) -> None:
        """Without netlink sockets nothing is watched, and nothing fails."""
        for error in (PermissionError(), OSError(errno.EAFNOSUPPORT, "no"), AttributeError()):

            def refuse(*_: object, error: Exception = error) -> None:
                raise error

            self.patch(socket, "socket", refuse)
            clock = FakeReactor()
            stop = watch_network(lambda: None, clock)
            self.assertEqual(clock.readers, set())
            stop()


PROGRAM = """
import subprocess
from twisted.internet import reactor
from twisted_exec.cli.console.network_changes import watch_network

def changed():
    print("changed")
    stop()
    reactor.stop()

stop = watch_network(changed, reactor)
reactor.callWhenRunning(subprocess.check_call, ["ip", "link", "set", "lo", "up"])
reactor.callLater(600, reactor.stop)
reactor.run()
"""


@skipUnless(shutil.which("unshare") and shutil.which("ip"), "needs unshare and ip")
class RealNetworkTests(TestCase):
    """A network namespace of its own."""

    async def test_link(self) -> None:
        """A link that comes up is noticed."""
        command = ["-r", "-n", sys.executable, "-c", PROGRAM]
        unshare = shutil.which("unshare")
        assert unshare is not None
        out, err, code = await getProcessOutputAndValue(
            unshare, command, env={**os.environ}, reactor=reactor
        )
        if b"unshare" in err:
            self.skipTest("network namespaces are not allowed here")
        self.assertEqual((out, code), (b"changed\n", 0), err)
