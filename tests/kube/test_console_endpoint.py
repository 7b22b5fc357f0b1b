"""
Tests for :mod:`twisted_exec.kube.console_endpoint`: real sockets, the real server's end.
"""

from __future__ import annotations

import os

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString, connectProtocol
from twisted.internet.error import NoProtocol
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure

from tests.kube.console_cases import ConsolesCase
from twisted_exec.kube.console_endpoint import (
    ConsoleAddress,
    ConsoleDone,
    ConsoleEndpoint,
    ConsoleLost,
)
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.streaming.interfaces import MACHINE_DELETED, Break, Ending, TerminalSize
from twisted_exec.testing.console import EchoAttachment, RecordingAttachment


class Collector(Protocol):
    """Protocol that records its input; ``over`` fires with the reason of the disconnect."""

    def __init__(self) -> None:
        self.received = b""
        self.over: Deferred[Exception] = Deferred()
        self._waiting: list[tuple[bytes, Deferred[None]]] = []

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        for wanted, seen in self._waiting[:]:
            if wanted in self.received:
                self._waiting.remove((wanted, seen))
                seen.callback(None)

    def until(self, wanted: bytes) -> Deferred[None]:
        seen: Deferred[None] = Deferred()
        self._waiting.append((wanted, seen))
        self.dataReceived(b"")
        return seen

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.over.callback(reason.value)


class ConsoleEndpointTests(ConsolesCase):
    """Tests for :class:`ConsoleEndpoint`."""

    def endpoint(self) -> ConsoleEndpoint:
        return ConsoleEndpoint(self.config, "default", "vm", reactor)

    async def test_both_ways(self) -> None:
        """The transport carries bytes both ways; ``loseConnection`` ends it with ConsoleDone."""
        self.consoles.machines["default/vm"] = EchoAttachment
        console = await connectProtocol(self.endpoint(), Collector())
        console.transport.write(b"echo")
        console.transport.writeSequence([b" o", b"k"])
        await console.until(b"echo ok")
        self.assertEqual(
            console.transport.getPeer(), ConsoleAddress(self.config.server, "default", "vm")
        )
        console.transport.loseConnection()
        reason = await console.over
        assert isinstance(reason, ConsoleDone)
        self.assertIsNone(reason.ending)

    async def test_end_of_input(self) -> None:
        """``loseWriteConnection`` reaches the attachment, and the session's status comes back."""
        self.consoles.machines["default/vm"] = EchoAttachment
        console = await connectProtocol(self.endpoint(), Collector())
        console.transport.write(b"last")
        console.transport.loseWriteConnection()
        reason = await console.over
        self.assertEqual(console.received, b"last")
        assert isinstance(reason, ConsoleDone) and reason.ending is not None
        self.assertTrue(reason.ending.is_success)

    async def test_ended_from_the_other_side(self) -> None:
        """Any other ending raises ConsoleLost with the reason and message."""
        attachment = RecordingAttachment(b"login: ")
        self.consoles.machines["default/vm"] = lambda: attachment
        console = await connectProtocol(self.endpoint(), Collector())
        await console.until(b"login: ")
        attachment.transport.end(Ending(MACHINE_DELETED, "machine gone"))
        reason = await console.over
        assert isinstance(reason, ConsoleLost) and reason.ending is not None
        self.assertEqual(reason.ending.reason, MACHINE_DELETED)
        self.assertIn("machine gone", str(reason))

    async def test_exit_code(self) -> None:
        """The ending carries the exit code of a process."""
        attachment = RecordingAttachment()
        self.consoles.machines["default/vm"] = lambda: attachment
        console = await connectProtocol(self.endpoint(), Collector())
        attachment.transport.end(Ending("Completed", "exited with 7", 7))
        reason = await console.over
        assert isinstance(reason, ConsoleLost) and reason.ending is not None
        self.assertEqual(reason.ending.exit_code, 7)

    async def test_lost(self) -> None:
        """A broken connection raises ConsoleLost without an ending."""
        attachment = RecordingAttachment()
        self.consoles.machines["default/vm"] = lambda: attachment
        console = await connectProtocol(self.endpoint(), Collector())
        attachment.transport.cut()
        reason = await console.over
        assert isinstance(reason, ConsoleLost)
        self.assertIsNone(reason.ending)
        self.assertIn("connection lost before the session's status", str(reason))

    async def test_size(self) -> None:
        """``window_changed`` sends the terminal size to the machine."""
        attachment = EchoAttachment()
        self.consoles.machines["default/vm"] = lambda: attachment
        console = await connectProtocol(self.endpoint(), Collector())
        console.transport.window_changed(TerminalSize(132, 43))
        console.transport.write(b"x")
        await console.until(b"x")
        self.assertEqual(attachment.sizes, [TerminalSize(132, 43)])
        console.transport.abortConnection()
        await console.over

    async def test_break(self) -> None:
        """``send_break`` sends BREAK between the writes before and after it."""
        attachment = EchoAttachment()
        self.consoles.machines["default/vm"] = lambda: attachment
        console = await connectProtocol(self.endpoint(), Collector())
        console.transport.window_changed(TerminalSize(132, 43))
        console.transport.write(b"a")
        console.transport.send_break()
        console.transport.send_break(5000)
        console.transport.write(b"b")
        await console.until(b"ab")
        self.assertEqual(attachment.wishes, [Break(250), Break(5000)])
        self.assertEqual(attachment.sizes, [TerminalSize(132, 43)])
        console.transport.abortConnection()
        await console.over
        console.transport.send_break()

    async def test_back_pressure(self) -> None:
        """A paused protocol gets no data; after ``resumeProducing`` it gets all of it."""
        attachment = RecordingAttachment(b"first")
        self.consoles.machines["default/vm"] = lambda: attachment
        console = await connectProtocol(self.endpoint(), Collector())
        await console.until(b"first")
        console.transport.pauseProducing()
        attachment.transport.write(b"second" * 1000)
        await self._settle()
        self.assertEqual(console.received, b"first")
        console.transport.resumeProducing()
        await console.until(b"second" * 1000)
        console.transport.loseConnection()
        await console.over

    async def test_factory_that_declines(self) -> None:
        """A factory that returns no protocol fails with NoProtocol."""
        self.consoles.machines["default/vm"] = EchoAttachment

        class Declining(Factory):
            def buildProtocol(self, addr: object) -> None:
                return None

        await self.assertFailure(self.endpoint().connect(Declining()), NoProtocol)


class EndpointStringTests(ConsolesCase):
    """``console:...`` with ``clientFromString``."""

    async def test_connects(self) -> None:
        """The string names the machine and its namespace, the kubeconfig names the server."""
        self.consoles.machines["space/vm"] = EchoAttachment
        path = self.kubeconfig()
        description = f"console:vm:namespace=space:kubeconfig={path}:context=test:reason=INC 7"
        console = await connectProtocol(clientFromString(reactor, description), Collector())
        console.transport.write(b"hello")
        await console.until(b"hello")
        self.assertIn(b"&reason=INC%207", self.consoles.queries[0])
        console.transport.loseConnection()
        await console.over

    async def test_read_when_connecting(self) -> None:
        """The kubeconfig is read on each connect, not when the string is parsed."""
        self.consoles.machines["default/vm"] = EchoAttachment
        path = os.path.abspath(self.mktemp())
        endpoint = clientFromString(reactor, f"console:vm:kubeconfig={path}")
        await self.assertFailure(connectProtocol(endpoint, Collector()), KubeConfigError)
        os.rename(self.kubeconfig(), path)
        console = await connectProtocol(endpoint, Collector())
        console.transport.abortConnection()
        await console.over

    def test_mistakes(self) -> None:
        """A string without a machine, or with an invalid timeout, is refused."""
        for description in ("console:", "console:vm:timeout=soon", "console:vm:reason=a\x1b"):
            self.assertRaises(ValueError, clientFromString, reactor, description)
