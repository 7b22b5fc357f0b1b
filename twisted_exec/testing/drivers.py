"""
Tests of drivers of machine classes: the contracts that every driver and every console keeps, and the far end of a line.

``docs/howto/write-a-driver.rst`` shows a test case. A protocol that raises fails a contract at once: Twisted logs the
error, and a wait of a contract ends with it.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python import log
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from twisted_exec.console.interfaces import ILineTransport
from twisted_exec.runtimes.config import parse
from twisted_exec.runtimes.interfaces import (
    IAdoptsMachines,
    IHardware,
    IHotPlug,
    IMachineDriver,
    IReleasable,
    IRestartPolicy,
    IRun,
    IShutdown,
    MachineFacts,
)
from twisted_exec.runtimes.lines.shared_line import LineTiming
from twisted_exec.runtimes.processes import Leader, ProcessTable
from twisted_exec.runtimes.service import MARK
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    Ending,
    IBreakable,
    IConsole,
    TerminalSize,
)

reactor: Any = _reactor

QUICK = LineTiming(first_delay_seconds=0.01, open_seconds=600.0, settle_seconds=0.01)
"""For a :class:`~twisted_exec.interfaces.SharedLine` that is opened again at once."""


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


class Peer(Protocol):
    """
    One connection of a :class:`Far`.

    :ivar got: all input.
    :ivar gone: the connection has ended.
    :ivar rest: for ``answer``: input that is not complete.
    """

    transport: Any

    def __init__(self, answer: Callable[[Peer, bytes], None], greeting: bytes = b"") -> None:
        self.got = b""
        self.gone = False
        self.rest = b""
        self._answer, self._greeting = answer, greeting

    def connectionMade(self) -> None:
        self.says(self._greeting)

    def dataReceived(self, data: bytes) -> None:
        self.got += data
        self._answer(self, data)

    def says(self, data: bytes) -> None:
        """Print something."""
        self.transport.write(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.gone = True


def echo(peer: Peer, data: bytes) -> None:
    """Print the input, like a machine that echoes."""
    peer.says(data)


def silent(peer: Peer, data: bytes) -> None:
    """Nothing is printed."""


class Far:
    """
    The far end of lines: a server on a UNIX socket in this process.

    :param answer: called with the :class:`Peer` and each part of its input; by default the input is
        echoed.
    :param greeting: is printed at the start of each connection.
    :ivar peers: its connections, the newest last.
    """

    def __init__(
        self, path: str, answer: Callable[[Peer, bytes], None] = echo, greeting: bytes = b""
    ) -> None:
        self.path, self._answer, self._greeting = path, answer, greeting
        self.peers: list[Peer] = []
        self._port: Any = None

    @property
    def endpoint(self) -> str:
        """The endpoint string for clients."""
        return f"unix:{self.path}"

    @property
    def peer(self) -> Peer:
        """The newest connection."""
        return self.peers[-1]

    def listen(self) -> Far:
        """Start listening."""
        factory = Factory.forProtocol(self.build)
        factory.noisy = False
        self._port = reactor.listenUNIX(self.path, factory)
        return self

    def build(self) -> Peer:
        """Return the protocol of a new connection."""
        self.peers.append(Peer(self._answer, self._greeting))
        return self.peers[-1]

    def listen_tcp(self) -> int:
        """Listen on a TCP port of 127.0.0.1 instead, and return its number."""
        factory = Factory.forProtocol(self.build)
        factory.noisy = False
        self._port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        port: int = self._port.getHost().port
        return port

    async def deafen(self) -> None:
        """Stop listening; connections stay."""
        port, self._port = self._port, None
        if port is not None:
            await port.stopListening()

    async def vanish(self) -> None:
        """Stop listening, and abort all connections."""
        await self.deafen()
        for peer in self.peers:
            peer.transport.abortConnection()


class WaitingMixin:
    """Waits for results, and ends a wait when an error is logged."""

    _has_raised = False

    async def wait(self: Any, waiting: Deferred[Any]) -> Any:
        """
        Wait for a result; fail as soon as an error is logged.

        What a protocol raises is logged by Twisted, and the result may then never come.
        """
        errors: list[Failure] = []

        def observe(event: Any) -> None:
            if event["isError"] and "failure" in event and not errors:
                errors.append(event["failure"])
                reactor.callLater(0, waiting.cancel)

        log.addObserver(observe)
        try:
            return await waiting
        except Exception:
            if not errors:
                raise
        finally:
            log.removeObserver(observe)
        self._has_raised = True
        gc.collect()  # an endpoint whose connection was made already drops a failure when it is cancelled
        self.flushLoggedErrors()
        errors[0].raiseException()

    def clean_later(self: Any, clean: Callable[..., Any], *arguments: Any) -> None:
        """Add a cleanup, whose end is not waited for after a protocol has raised."""

        def clean_up() -> Any:
            ending = maybeDeferred(clean, *arguments)
            return None if self._has_raised else ending

        self.addCleanup(clean_up)

    async def connect(self: Any, console: Any) -> Line:
        """Return the line of a console, once it is open."""
        line: Line = await self.wait(console.connect(Factory.forProtocol(Line)))
        return line


class DriverCase(WaitingMixin, TestCase):
    """
    Base of a test case for a driver: the arguments of the driver, and a record of what it did.

    :ivar directory: a private directory with a short path, as that of the machines.
    :ivar table: for drivers that start processes.
    :ivar leaders: the arguments of ``facts.started``.
    :ivar events: the arguments of each ``facts.event``: type, reason, message.
    :ivar changes: the arguments of each ``facts.changed``: state, reason, message.
    :ivar boots: the ids of machines, for each ``facts.booted``.
    :ivar shutdowns: the ids of machines, for each ``facts.shutting_down``.
    """

    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.table = ProcessTable(reactor, MARK)
        self.leaders: list[Leader] = []
        self.events: list[tuple[str, str, str]] = []
        self.changes: list[tuple[int, str, str]] = []
        self.boots: list[str] = []
        self.shutdowns: list[str] = []
        self.mark = f"test-{os.path.basename(self.directory)}"

    def driver_of(self, **keys: Any) -> Any:
        """
        Return the driver of a class with these keys in ``runtime.yaml``, such as ``driver``.

        ``name`` and ``capabilities`` have defaults. The driver's plugin must be on ``PYTHONPATH``.

        :raises ConfigError: the keys are wrong.
        """
        document = {"name": "tested", "capabilities": {"cpu": 1, "memory": "1Mi"}, **keys}
        (machine_class,) = parse({"classes": [document]})
        return machine_class.build(reactor, self.table).driver

    def facts(self, id: str = "m") -> MachineFacts:
        """Return the facts of the machine ``default/ID``."""
        return MachineFacts(
            id=id,
            label=f"default/{id}",
            hostname="",
            directory=self.directory,
            marker=(MARK, f"{self.mark}/{id}"),
            started=self.leaders.append,
            event=lambda *arguments: self.events.append(arguments),
            changed=lambda *arguments: self.changes.append(arguments),
            booted=lambda: self.boots.append(id),
            shutting_down=lambda: self.shutdowns.append(id),
            namespace="default",
            name=id,
        )

    def make_driver(self) -> Any:
        """Return a driver that can run the machine of ``facts()``."""
        raise NotImplementedError("return the driver, such as self.driver_of(driver=...)")

    def make_console(self) -> Any:
        """Return the console of the machine ``m``."""
        return self.make_driver().run(self.facts())

    def far(
        self,
        answer: Callable[[Peer, bytes], None] = echo,
        name: str = "far",
        greeting: bytes = b"",
    ) -> Far:
        """Return a far end that listens at ``name`` in the directory until the test ends."""
        far = Far(os.path.join(self.directory, name), answer, greeting).listen()
        self.addCleanup(far.vanish)
        return far

    def reasons(self) -> list[str]:
        """Return the reasons of the Events so far."""
        return [reason for _, reason, _ in self.events]

    def alive(self) -> list[int]:
        """Return the ids of the processes that the test's machines have left."""
        processes = self.table.scan_now()
        return [pid for pid, (_, mark) in processes.items() if mark.startswith(f"{self.mark}/")]

    async def until(self, condition: Callable[[], Any]) -> None:
        """Let the reactor run until ``condition()`` is true."""
        while not condition():
            await deferLater(reactor, 0.01)


_DRIVER_INTERFACES = (IHardware, IAdoptsMachines, IRestartPolicy)
_RUN_INTERFACES = (IBreakable, IHotPlug, IReleasable, IShutdown)


class MachineDriverContract(WaitingMixin):
    """
    Mix in before a :class:`DriverCase`.

    ``make_driver()`` returns a driver that can run the machine of ``self.facts()`` on this host.
    """

    machine_id = "m"

    def new_run(self: Any, driver: Any = None, **facts: Any) -> Any:
        """A run that is stopped after the test."""
        driver = self.make_driver() if driver is None else driver
        run = driver.run(replace(self.facts(self.machine_id), **facts))
        self.clean_later(run.stop)
        return run

    def test_driver_interfaces(self: Any) -> None:
        """A driver has a name and all methods of the interfaces that it provides."""
        driver = self.make_driver()
        verifyObject(IMachineDriver, driver)
        self.assertRegex(driver.name, r"\A[a-z][a-z0-9-]*\Z")
        for interface in _DRIVER_INTERFACES:
            if interface.providedBy(driver):
                verifyObject(interface, driver)

    def test_run_interfaces(self: Any) -> None:
        """A run has all methods of the interfaces that it provides."""
        run = self.new_run()
        verifyObject(IRun, run)
        self.assertIsInstance(run.paced, bool)
        for interface in _RUN_INTERFACES:
            if interface.providedBy(run):
                verifyObject(interface, run)

    def test_nothing_missing(self: Any) -> None:
        """A driver that can run machines here reports nothing missing."""
        driver = self.make_driver()
        self.assertEqual((driver.missing(), driver.missing()), ("", ""))

    def test_restarts(self: Any) -> None:
        """A driver that decides on restarts answers yes or no for any ending."""
        driver = self.make_driver()
        if IRestartPolicy.providedBy(driver):
            for ending in (Ending(COMPLETED, "", 0), Ending(COMPLETED, "", 1), Ending("Other")):
                self.assertIsInstance(driver.restarts(ending), bool)

    def test_runs_are_lazy(self: Any) -> None:
        """Making a run starts no process, writes no file and reports nothing."""
        driver = self.make_driver()
        before = sorted(os.listdir(self.directory))
        first, second = self.new_run(driver), self.new_run(driver)
        self.assertIsNot(first, second)
        self.assertEqual(sorted(os.listdir(self.directory)), before)
        self.assertEqual((self.leaders, self.events, self.alive()), ([], [], []))

    async def test_stop_before_connect(self: Any) -> None:
        """A run that never started can be stopped, and stopped again."""
        run = self.new_run()
        await self.wait(run.stop())
        await self.wait(run.stop())
        self.assertEqual(self.alive(), [])

    async def test_transport(self: Any) -> None:
        """The line's protocol gets a transport with every method that a session calls."""
        line = await self.connect(self.new_run())
        # Twisted's own transports have the methods and do not declare the interface.
        verifyObject(ILineTransport, line.transport, tentative=True)

    async def test_stop(self: Any) -> None:
        """After stop no process is left and the line has ended, once."""
        run = self.new_run()
        line = await self.connect(run)
        await self.wait(run.stop())
        await self.wait(run.stop())
        await self.wait(line.over())
        await deferLater(reactor, 0)
        self.assertEqual(len(line.lost), 1)
        self.assertEqual(self.alive(), [])

    async def test_stop_while_connecting(self: Any) -> None:
        """
        A machine that is switched off while it starts leaves no process.

        A supervisor cancels ``connect`` and then calls ``stop``.
        """
        run = self.new_run()
        connecting = run.connect(Factory.forProtocol(Line))
        connecting.addErrback(lambda failure: failure.trap(Exception))  # or it was in time
        connecting.cancel()
        await self.wait(run.stop())
        self.assertEqual(self.alive(), [])

    async def test_power_cycle(self: Any) -> None:
        """The same driver starts the same machine again after power off."""
        driver = self.make_driver()
        for _ in range(2):
            run = self.new_run(driver)
            line = await self.connect(run)
            self.assertEqual(line.lost, [])
            await self.wait(run.stop())
            await self.wait(line.over())
        self.assertEqual(self.alive(), [])


class ConsoleContract(WaitingMixin):
    """
    Mix in before a :class:`~twisted.trial.unittest.TestCase` with a real reactor.

    ``make_console()`` gives a fresh console; ``provoke`` is typed into its line and makes the
    machine print something with ``answer`` in it; ``first_words`` is part of what it prints first,
    if it does.  ``clean(console)`` frees a console; by default it is a run, which is stopped.  For a
    console without input use :class:`OutputOnlyContract` instead.
    """

    provoke = b"\r"
    answer = b""
    first_words = b""

    def clean(self, console: Any) -> Any:
        """Free a console; may return a Deferred or a coroutine."""
        return console.stop()

    def cause_output(self: Any, console: Any, line: Line) -> None:
        """Make the machine print ``answer``."""
        assert line.transport is not None
        line.transport.write(self.provoke)

    async def opened(self: Any) -> tuple[Any, Line]:
        console = self.make_console()
        self.clean_later(self.clean, console)
        line = await self.connect(console)
        if self.first_words:
            await self.wait(line.until(self.first_words))
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
        await self.wait(line.until(self.answer))

    async def test_sizes(self: Any) -> None:
        """A size may be set before the line is open, while it is open, and after it has closed."""
        console = self.make_console()
        self.clean_later(self.clean, console)
        console.window_changed(TerminalSize(100, 40))
        line = await self.connect(console)
        console.window_changed(TerminalSize(65535, 1))
        line.transport.loseConnection()
        await self.wait(maybeDeferred(self.clean, console))
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
        await self.wait(line.until(self.answer))

    async def test_closed(self: Any) -> None:
        """A closed line ends exactly once, when its machine is stopped."""
        console, line = await self.opened()
        line.transport.loseConnection()
        await self.wait(maybeDeferred(self.clean, console))
        await self.wait(line.over())
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
            await self.wait(line.until(self.discard_notice))
        # wait: that nothing happens is no event
        await deferLater(
            reactor, 0.05
        )  # a second notice must not come: there is no event to wait for
        if self.discard_notice:
            self.assertEqual(line.got.count(self.discard_notice), 1)
        else:
            self.assertEqual(line.got, before)
        self.cause_output(console, line)
        await self.wait(line.until(self.answer))
        self.assertNotIn(b"unsendable", line.got)
        self.assertEqual(line.lost, [])


class BreakableContract(WaitingMixin):
    """
    Mix in beside :class:`ConsoleContract` for a console with BREAK.

    The test case itself must test that BREAK reaches the machine.
    """

    async def test_break(self: Any) -> None:
        """
        BREAK may be sent before the line is open, while it is open and after; the line stays open.
        """
        console = self.make_console()
        self.clean_later(self.clean, console)
        verifyObject(IBreakable, console)
        console.send_break(1)
        line = await self.connect(console)
        console.send_break(1)
        await deferLater(reactor, 0.01)  # wait: that nothing happens is no event
        line.transport.write(self.provoke)
        await self.wait(line.until(self.answer))
        await self.wait(maybeDeferred(self.clean, console))
        console.send_break(5000)
