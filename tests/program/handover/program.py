"""
A program under twistd that tests replace by a successor.

It tells each connection the text of ``--text`` and the numbers that it has inherited, and then
repeats what it gets.  ``--plan`` is a JSON file, read at the start, with what goes wrong.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from twisted.application.service import IService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.usage import UsageError
from zope.interface import implementer

from twisted_exec.program.descriptors import inherited_descriptor_limits
from twisted_exec.program.handover.interfaces import IHandsOver, ServiceState
from twisted_exec.program.listening import LISTENING
from twisted_exec.program.options.sessions import SessionOptions
from twisted_exec.program.service import AsyncService
from twisted_exec.program.start import make_service
from twisted_exec.tls.endpoints import server_endpoint

PROGRAM = "exec-handed"


class Options(SessionOptions):
    """Command line of the program."""

    program = PROGRAM
    optParameters = [
        ["listen", None, "tcp:0:interface=127.0.0.1", "Endpoint."],
        ["plan", None, "", "JSON file."],
    ]

    def postOptions(self) -> None:
        self["plan_file"] = self["plan"]
        self["plan"] = json.loads(Path(self["plan"]).read_text()) if self["plan"] else {}
        if self["plan"].get("options"):
            raise UsageError("the options are wrong")


class _Session(Protocol):
    transport: Any

    def __init__(self, program: Handable) -> None:
        self._program = program

    def connectionMade(self) -> None:
        self._program.open.add(self)
        self.transport.write(f"{self._program.greeting}\n".encode())

    def dataReceived(self, data: bytes) -> None:
        self.transport.write(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._program.gone(self)


class Handable(AsyncService):
    """The program's service."""

    label = "the program"
    _log = Logger()

    def __init__(self, options: Options, reactor: Any) -> None:
        super().__init__()
        self._options, self._reactor, self._plan = options, reactor, options["plan"]
        self.state_version = self._plan.get("version", 1)
        self.open: set[_Session] = set()
        self._port: IListeningPort | None = None
        self._retired: Deferred[None] | None = None
        self._generation, self._inherited = 0, ""

    @property
    def greeting(self) -> str:
        return f"{self._generation} {self._inherited}"

    def trouble(self, stage: str) -> Deferred[None] | None:
        """Do what the plan says about a stage."""
        planned = self._plan.get(stage, "")
        if planned == "hang":
            return Deferred()
        if planned == "block":
            time.sleep(600)  # wait: the program under test hangs on purpose
        if planned == "work":
            until = time.process_time() + 3
            while time.process_time() < until:
                pass
        if planned == "wait":
            return Deferred.fromCoroutine(self._wait_for_plan(stage))
        if planned == "fail":
            raise ValueError(f"{stage} failed")
        if planned == "die":
            os._exit(3)
        return None

    async def _wait_for_plan(self, stage: str) -> None:
        """Go on when the file does not say so any more."""
        path = Path(self._options["plan_file"])
        while f'"{stage}": "wait"' in path.read_text():
            await deferLater(self._reactor, 0.02)

    async def start(self) -> None:
        await maybeDeferred(self.trouble, "start")
        endpoint = server_endpoint(self._reactor, self._options["listen"], None, LISTENING)
        factory = Factory.forProtocol(lambda: _Session(self))
        factory.noisy = False
        self._port = await endpoint.listen(factory)
        await maybeDeferred(self.trouble, "ready")
        # The signal is listened to once the reactor runs.
        self._reactor.callLater(0, self._announce, self._port.getHost())

    def _announce(self, at: object) -> None:
        self._log.info("limits {limits}", limits=inherited_descriptor_limits())
        self._log.info("generation {n} at {at}", n=self._generation, at=at)

    async def stop(self) -> None:
        if self._port is not None:
            await maybeDeferred(self._port.stopListening)
        self._log.info("stopped with {n} sessions", n=len(self.open))
        for each in list(self.open):
            each.transport.loseConnection()

    def gone(self, session: _Session) -> None:
        self.open.discard(session)
        if not self.open and self._retired is not None and not self._retired.called:
            self._retired.callback(None)

    def freeze(self) -> Deferred[ServiceState]:
        """Hand over a file, which counts how often it was."""
        hanging = self.trouble("freeze")
        if hanging is not None:
            return hanging.addCallback(lambda _: ServiceState())
        reading, writing = os.pipe()
        os.write(writing, b"piped")
        os.close(writing)
        frozen: Deferred[ServiceState] = Deferred()
        frozen.callback(ServiceState({"generation": self._generation}, [reading]))
        return frozen

    def thaw(self) -> Deferred[None]:
        self._log.info("thawed")
        return maybeDeferred(lambda: None)

    def retire(self, linger_seconds: float) -> Deferred[None]:
        self._log.info("lingering {n:g} s", n=linger_seconds)
        self._retired = Deferred()
        self._reactor.callLater(0, self.gone, None)
        return self._retired

    def inherit(self, handed: ServiceState) -> None:
        hanging = self.trouble("inherit")
        assert hanging is None
        (number,) = handed.descriptors
        assert not os.get_inheritable(number)
        with os.fdopen(number) as file:
            self._inherited = file.read()
        self._generation = handed.values["generation"] + 1


@implementer(IHandsOver)
class _Handable(Handable):
    pass


def makeService(options: Options) -> IService:
    """Return the service."""

    def make(reactor: Any) -> Handable:
        service = (Handable if options["plan"].get("make") == "none" else _Handable)(
            options, reactor
        )
        hanging = service.trouble("make")
        assert hanging is None
        return service

    return make_service(PROGRAM, make, (ValueError,), options=options)
