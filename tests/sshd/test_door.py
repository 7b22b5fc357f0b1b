"""
Tests for :mod:`twisted_exec.sshd.door`: limits of connections, before and behind the login.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

from tests import needs
from tests.cli.fleet.test_run import Shell
from tests.cli.ssh.support import reactor
from twisted_exec.testing.console import EchoAttachment

from .support import DoorCase

if needs.conch() is None:
    from twisted_exec.sshd.limits import EVICTED, Limits
    from twisted_exec.sshd.metrics import Refusal


class Stranger(Protocol):
    """
    A client that only connects.

    :ivar greeted: fires when the server has said something.
    :ivar lost: fires at the end.
    """

    def __init__(self, says: bytes = b"SSH-2.0-stranger\r\n") -> None:
        self.received, self._says = b"", says
        self.greeted: Deferred[None] = Deferred()
        self.lost: Deferred[bytes] = Deferred()

    def connectionMade(self) -> None:
        self.transport.write(self._says)

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        if not self.greeted.called:
            self.greeted.callback(None)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.callback(self.received)


class LimitCase(DoorCase):
    """A door with small limits, and strangers."""

    def limits(self) -> Limits:
        return Limits(
            before_login=4,
            before_login_per_address=2,
            connections_per_user=2,
            sessions_per_user=2,
        )

    async def stranger(self, address: str = "127.0.0.1", says: bytes = b"") -> Stranger:
        """Connect from an address of this host."""
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", self.port, bindAddress=(address, 0))
        stranger = Stranger(says)
        await connectProtocol(endpoint, stranger)
        self.addCleanup(lambda: stranger.lost)
        self.addCleanup(stranger.transport.loseConnection)
        await stranger.greeted
        return stranger

    def refusals(self, reason: Refusal) -> float:
        name = "twisted_exec_sshd_refusals_total"
        value = self.door.registry.get_sample_value(name, {"reason": reason})
        assert value is not None
        return value


class StrangerTests(LimitCase):
    """Connections that have not logged in."""

    async def test_address(self) -> None:
        """Strangers who wait do not keep a user of their own address out: the oldest of them goes."""
        self.consoles.machines["default/vm"] = lambda: Shell("vm")
        other = await self.stranger("127.0.0.9")
        held = [await self.stranger(), await self.stranger()]
        process = self.gate("vm@gate", "run", "echo in")
        self.assertEqual((await process.ended, process.stdout), (0, b"in\n"), process.stderr)
        self.assertIn(EVICTED.encode(), await held[0].lost)
        self.assertEqual(self.refusals(Refusal.EVICTED), 1)
        self.assertFalse(other.lost.called or held[1].lost.called)

    async def test_crowd(self) -> None:
        """A thousand strangers of many addresses do not keep a user out, and those who wait longest go."""
        self.consoles.machines["default/vm"] = lambda: Shell("vm")
        first = await self.stranger("127.0.1.1")
        for lot in range(10):
            addresses = [f"127.0.{lot + 2}.{each + 1}" for each in range(100)]
            await gatherResults([Deferred.fromCoroutine(self.stranger(each)) for each in addresses])
            self.assertLessEqual(self.door.door.admission.strangers, 4)
        self.assertIn(EVICTED.encode(), await first.lost)
        self.assertEqual(self.refusals(Refusal.EVICTED), 997)
        process = self.gate("vm@gate", "run", "echo in")
        self.assertEqual((await process.ended, process.stdout), (0, b"in\n"), process.stderr)

    async def test_much(self) -> None:
        """A stranger who sends much, or no SSH, is cut."""
        for says in (
            b"x" * 300_000,
            b"GET / HTTP/1.1\r\n\r\n",
            b"SSH-2.0-x\r\n" + b"\xff" * 300_000,
        ):
            stranger = await self.stranger(says=says)
            await stranger.lost
        self.assertEqual(self.door.door.admission.strangers, 0)


class PostQuantumTests(DoorCase):
    """A door for clients with a post-quantum exchange alone."""

    only_post_quantum = True

    async def test_only_post_quantum(self) -> None:
        """A client without one cannot connect, and reads what the door wants."""
        process = self.gate("-o", "KexAlgorithms=curve25519-sha256", "vm@gate", "list")
        self.assertEqual(await process.ended, 255)
        self.assertIn(b"Their offer: mlkem768x25519-sha256", process.stderr)


class GraceTests(LimitCase):
    """The time for a login."""

    login_seconds = 0.2

    async def test_late(self) -> None:
        """A stranger who does not log in is told so, and cut."""
        stranger = await self.stranger()
        self.assertIn(b"the login took longer than", await stranger.lost)
        self.assertEqual(self.refusals(Refusal.GRACE), 1)


class UserTests(LimitCase):
    """Connections and sessions of one user."""

    async def console(self, *options: str, key: str = "ada") -> Any:
        process = self.gate("-tt", *options, "vm@gate", key=key)
        await process.until(rb"Connected to vm\.")
        return process

    async def test_connections(self) -> None:
        """A user with too many connections gets no more, and reads why; another user does."""
        self.consoles.machines["default/vm"] = lambda: EchoAttachment(b"$ ")
        for _ in range(2):
            await self.console()
        process = self.gate("vm@gate", "list")
        self.assertEqual(await process.ended, 255)
        self.assertIn(b"you have 2 connections to this server", process.stderr)
        self.assertEqual(self.refusals(Refusal.USER), 1)
        await self.console(key="bob")

    async def test_sessions(self) -> None:
        """A user with too many sessions gets no more, and reads why, also within one connection."""
        self.consoles.machines["default/vm"] = lambda: EchoAttachment(b"$ ")
        for _ in range(2):
            await self.console()
        self.door.door.admission.log_out("ada")  # there is room for a further connection
        process = self.gate("vm@gate", "run", "true")
        self.assertEqual(await process.ended, 125)
        self.assertIn(b"you have 2 sessions at this server", process.stderr)
        self.door.door.admission.log_in("ada")
