"""
Tests for :mod:`twisted_exec.testing.drivers`: what the contracts say of a driver that is wrong, and devices.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import TimeoutError
from twisted.internet.endpoints import UNIXClientEndpoint
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.trial.reporter import TestResult
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from twisted_exec.console.notices import LINE_BACK
from twisted_exec.runtimes.interfaces import CannotStart, IMachineDriver, MachineFacts
from twisted_exec.runtimes.lines.layer import LayeredEndpoint, LineLayer
from twisted_exec.runtimes.lines.lines import Lines
from twisted_exec.runtimes.lines.shared_line import SharedLine
from twisted_exec.testing.drivers import (
    QUICK,
    ConsoleContract,
    DriverCase,
    Far,
    MachineDriverContract,
)


class RaisesWhenMade(LineLayer):
    def connectionMade(self) -> None:
        raise ValueError("no connection can be made")


class RaisesAtOutput(LineLayer):
    def dataReceived(self, data: bytes) -> None:
        raise ValueError("output is not understood")


class RaisesWhenLost(LineLayer):
    def connectionLost(self, reason: Failure = connectionDone) -> None:
        raise ValueError("the end is not understood")


@implementer(IMachineDriver)
class Driver:
    name = "wrong"

    def __init__(self, lines: Lines[str], layer: type[LineLayer]) -> None:
        self.lines, self.layer = lines, layer

    def missing(self) -> str:
        return ""

    def run(self, facts: MachineFacts) -> SharedLine:
        def claim() -> Any:
            name, path = self.lines.claim(facts)
            return name, LayeredEndpoint(UNIXClientEndpoint(reactor, path), self.layer)

        return SharedLine(facts, reactor, claim, lambda: self.lines.release(facts), timing=QUICK)


class ContractTests(SynchronousTestCase):
    """A protocol that raises fails a contract with what it raised, and no test waits for its end."""

    def result_of(self, layer: type[LineLayer], method: str) -> TestResult:
        class WrongTests(MachineDriverContract, ConsoleContract, DriverCase):
            provoke = answer = b"hello"

            def make_driver(self) -> Driver:
                return Driver(Lines({"m": self.far().path}), layer)

        result = TestResult()
        WrongTests(method).run(result)
        return result

    def test_right(self) -> None:
        """A layer that changes nothing passes."""
        result = self.result_of(LineLayer, "test_answers")
        self.assertEqual((result.errors, result.failures, result.successes), ([], [], 1))

    def test_raised(self) -> None:
        """Whenever a protocol raises, its error is the first of the test, which does not wait longer."""
        for layer, method, error in (
            (RaisesWhenMade, "test_answers", "no connection can be made"),
            (RaisesWhenMade, "test_transport", "no connection can be made"),
            (RaisesAtOutput, "test_answers", "output is not understood"),
            (RaisesAtOutput, "test_paused", "output is not understood"),
            (RaisesWhenLost, "test_stop", "the end is not understood"),
            (RaisesWhenLost, "test_closed", "the end is not understood"),
        ):
            result = self.result_of(layer, method)
            messages = [str(failure.value) for _, failure in result.errors]
            self.assertEqual(messages[0], error, (layer, method))
            self.assertNotIn(TimeoutError, [failure.type for _, failure in result.errors])


class Login(LineLayer):
    """Answers a prompt, and says why the console never began."""

    def connectionMade(self) -> None:
        """Wait for the prompt."""

    def dataReceived(self, data: bytes) -> None:
        self.write(b"ada")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.fail(CannotStart("LoginRefused", "the device hung up"))
        super().connectionLost(reason)


class FarTests(DriverCase):
    """The far end of a line."""

    def console(self, far: Far, layer: type[LineLayer]) -> SharedLine:
        endpoint = LayeredEndpoint(UNIXClientEndpoint(reactor, far.path), layer)
        run = SharedLine(self.facts(), reactor, lambda: ("m", endpoint), lambda: None, timing=QUICK)
        self.clean_later(run.stop)
        return run

    async def test_greeting(self) -> None:
        """A device can print before it is asked, on each connection."""
        far = self.far(greeting=b"login: ")
        line = await self.connect(self.console(far, LineLayer))
        await self.wait(line.until(b"login: "))
        far.peer.transport.abortConnection()
        await self.wait(line.until(LINE_BACK.encode()))
        await self.until(lambda: line.got.count(b"login: ") == 2)

    async def test_hangs_up(self) -> None:
        """A layer can say why a device that greets, and hangs up then, has no console."""
        far = self.far(lambda peer, _: peer.transport.loseConnection(), greeting=b"login: ")
        with self.assertRaises(CannotStart) as caught:
            await self.connect(self.console(far, Login))
        self.assertEqual(caught.exception.condition, "LoginRefused")
        self.assertIn("the device hung up", caught.exception.message)
