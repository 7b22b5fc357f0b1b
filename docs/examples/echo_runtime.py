"""
A machine runtime with one class, whose machines echo their input.

Start it, and give the same target to a poollet:

    python docs/examples/echo_runtime.py unix:///tmp/echo/iri.sock /tmp/echo/state
    twistd -n exec-poollet --machine-runtime-endpoint unix:///tmp/echo/iri.sock ...

Only EchoRun is specific to this runtime: a console without a machine behind it.  RuntimeHost does
the rest: it serves the machine runtime interface (IRI) over gRPC, reconciles machines with their
desired state, issues tokens, and serves consoles.
"""

from __future__ import annotations

import sys
from typing import Any

from twisted.internet import task
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IProtocol, IProtocolFactory
from twisted.logger import globalLogBeginner, textFileLogObserver
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.interfaces import IMachineDriver, IRun, MachineFacts, TerminalSize
from twisted_exec.machines import ClassConfig, RuntimeHost, RuntimeSettings
from twisted_exec.services import JSONLinesAudit


@implementer(IRun)
class EchoRun:
    """
    One machine from power on to power off, with its line.

    It is a Twisted endpoint: connecting powers the machine on and opens the line.  It is also the
    transport of that line.
    """

    paced = True  # output can wait, so a slow viewer may delay it

    def __init__(self, facts: MachineFacts, reactor: Any) -> None:
        self._facts, self._reactor = facts, reactor
        self._line: IProtocol | None = None

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        self._line = line = protocolFactory.buildProtocol(None)
        assert line is not None
        line.makeConnection(self)
        self._reactor.callLater(0, self._say, f"{self._facts.label} echoes\r\n".encode())
        return succeed(line)

    def window_changed(self, size: TerminalSize) -> None:
        self._say(f"[{size.columns}x{size.rows}]\r\n".encode())

    def stop(self) -> Deferred[None]:
        self.loseConnection()
        return succeed(None)

    def _say(self, data: bytes) -> None:
        if self._line is not None:
            self._line.dataReceived(data)

    # Methods of the line's transport.

    def write(self, data: bytes) -> None:
        self._reactor.callLater(0, self._say, data)

    def loseConnection(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.connectionLost(Failure(ConnectionDone()))

    def registerProducer(self, producer: object, streaming: bool) -> None:
        """Ignore it: input is echoed at once, so it never has to wait."""

    def unregisterProducer(self) -> None: ...
    def pauseProducing(self) -> None: ...
    def resumeProducing(self) -> None: ...


@implementer(IMachineDriver)
class EchoDriver:
    """Runs the machines of the class."""

    name = "echo"

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def missing(self) -> str:
        return ""  # any host can run these machines

    def run(self, facts: MachineFacts) -> EchoRun:
        return EchoRun(facts, self._reactor)


def echo_class(name: str = "echo") -> ClassConfig:
    """Return the class; its name and capabilities must match a MachineClass."""
    capabilities = {"cpu": 1, "memory": 32 << 20}
    return ClassConfig(name, capabilities, 100, lambda reactor, table: EchoDriver(reactor))


async def main(reactor: Any, target: str, state_directory: str) -> None:
    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stdout)])
    settings = RuntimeSettings([echo_class()], state_directory, iri_target=target)
    host = RuntimeHost(settings, JSONLinesAudit("-"), reactor)
    host.startService()
    reactor.addSystemEventTrigger("before", "shutdown", host.stopService)
    await host.when_ready()
    await Deferred()  # until a signal


if __name__ == "__main__":
    task.react(lambda reactor: Deferred.fromCoroutine(main(reactor, *sys.argv[1:])))
