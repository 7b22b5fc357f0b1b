"""
Tests of every :class:`~twisted_exec.streaming.interfaces.IConsole`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from twisted_exec.streaming.interfaces import IBreakable, IConsole, TerminalSize


class Line(Protocol):
    """An open line; keeps what it gets."""

    def __init__(self) -> None:
        self.got = b""
        self.lost: list[Any] = []
        self._waiting: list[tuple[bytes, Deferred[None]]] = []
        self._over: list[Deferred[Any]] = []

    def dataReceived(self, data: bytes) -> None:
        assert data
        self.got += data
        self._look()

    def _look(self) -> None:
        for expected, waiter in list(self._waiting):
            if expected in self.got:
                self._waiting.remove((expected, waiter))
                waiter.callback(None)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.append(reason.value)
        for waiter in self._over:
            waiter.callback(reason.value)

    def until(self, expected: bytes) -> Deferred[None]:
        """Fires when the output contains ``expected``."""
        waiter: Deferred[None] = Deferred()
        self._waiting.append((expected, waiter))
        self._look()
        return waiter

    def over(self) -> Deferred[Any]:
        """Fires with the exception of ``connectionLost``, once the line has ended."""
        waiter: Deferred[Any] = Deferred()
        if self.lost:
            waiter.callback(self.lost[0])
        else:
            self._over.append(waiter)
        return waiter


class ConsoleContract:
    """
    Mix in before a :class:`~twisted.trial.unittest.TestCase` with a real reactor.

    ``make_console()`` gives a fresh console; ``provoke`` is typed into its line and makes the
    machine print something with ``answer`` in it.  ``clean(console)`` frees it.  For a console
    without input use :class:`OutputOnlyContract` instead.
    """

    provoke = b"\r"
    answer = b""
    first_words = b""

    def cause_output(self: Any, console: Any, line: Line) -> None:
        """Make the machine print ``answer``."""
        line.transport.write(self.provoke)

    async def opened(self: Any) -> tuple[Any, Line]:
        console = self.make_console()
        self.addCleanup(self.clean, console)
        line = await console.connect(Factory.forProtocol(Line))
        if self.first_words:
            await line.until(self.first_words)
        return console, line

    def test_interface(self: Any) -> None:
        """It is an endpoint and a console."""
        console = self.make_console()
        verifyObject(IConsole, console)
        verifyObject(IStreamClientEndpoint, console)
        self.assertIsInstance(console.paced, bool)

    async def test_answers(self: Any) -> None:
        """Input reaches the machine, and its output comes back."""
        console, line = await self.opened()
        self.cause_output(console, line)
        await line.until(self.answer)

    async def test_sizes(self: Any) -> None:
        """A size may be set before the line is open, while it is open, and after it has closed."""
        console = self.make_console()
        self.addCleanup(self.clean, console)
        console.window_changed(TerminalSize(100, 40))
        line = await console.connect(Factory.forProtocol(Line))
        console.window_changed(TerminalSize(65535, 1))
        line.transport.loseConnection()
        await self.clean(console)
        console.window_changed(TerminalSize(80, 24))

    async def test_paused(self: Any) -> None:
        """A paused line delivers nothing until it is resumed, and then everything."""
        console, line = await self.opened()
        line.transport.pauseProducing()
        before = line.got
        self.cause_output(console, line)
        await deferLater(reactor, 0.2)  # wait: that nothing happens is no event
        self.assertEqual(line.got, before)
        line.transport.resumeProducing()
        await line.until(self.answer)

    async def test_closed(self: Any) -> None:
        """A closed line ends exactly once, when its machine is stopped."""
        console, line = await self.opened()
        line.transport.loseConnection()
        await self.clean(console)
        await line.over()
        await deferLater(reactor, 0)
        self.assertEqual(len(line.lost), 1)


class OutputOnlyContract(ConsoleContract):
    """
    Mix in instead of :class:`ConsoleContract` for a console without input, such as a log file.

    ``cause_output(console, line)`` makes the machine print ``answer`` without input; ``provoke`` is
    not used.  ``discard_notice`` is a part of the notice that the line prints when it discards
    input; empty if it discards silently.
    """

    discard_notice = b""

    def cause_output(self: Any, console: Any, line: Line) -> None:
        raise NotImplementedError("make the machine print")

    async def test_answers(self: Any) -> None:
        """Output of the machine arrives without any input."""
        await super().test_answers()

    async def test_input_discarded(self: Any) -> None:
        """Input is discarded, with at most one notice; the line stays open and output goes on."""
        console, line = await self.opened()
        before = line.got
        line.transport.write(b"unsendable")
        line.transport.write(b"unsendable")
        if self.discard_notice:
            await line.until(self.discard_notice)
        # wait: that nothing happens is no event
        await deferLater(
            reactor, 0.05
        )  # a second notice must not come: there is no event to wait for
        if self.discard_notice:
            self.assertEqual(line.got.count(self.discard_notice), 1)
        else:
            self.assertEqual(line.got, before)
        self.cause_output(console, line)
        await line.until(self.answer)
        self.assertNotIn(b"unsendable", line.got)
        self.assertEqual(line.lost, [])


class BreakableContract:
    """
    Mix in beside :class:`ConsoleContract` for a console with BREAK.

    The test case itself must test that BREAK reaches the machine.
    """

    async def test_break(self: Any) -> None:
        """
        BREAK may be sent before the line is open, while it is open and after; the line stays open.
        """
        console = self.make_console()
        self.addCleanup(self.clean, console)
        verifyObject(IBreakable, console)
        console.send_break(1)
        line = await console.connect(Factory.forProtocol(Line))
        console.send_break(1)
        await deferLater(reactor, 0.01)  # wait: that nothing happens is no event
        line.transport.write(self.provoke)
        await line.until(self.answer)
        await self.clean(console)
        console.send_break(5000)
