"""
Processes of a hand-over within the process of the tests.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ProcessDone, ProcessExitedAlready
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure
from zope.interface import implementer

from tests.tls.support import reactor
from twisted_exec.program.handover.channel import Lingering
from twisted_exec.program.handover.interfaces import IHandsOver, ServiceState
from twisted_exec.program.handover.predecessor import Predecessor
from twisted_exec.program.handover.process import HandOver
from twisted_exec.program.handover.successor import ProcessCommand, Successor
from twisted_exec.program.listening import ListeningSockets
from twisted_exec.tls.endpoints import server_endpoint

LISTEN = "tcp:0:interface=127.0.0.1"


@implementer(IHandsOver)
class Service:
    """
    A service with one descriptor.

    :ivar lingers: fires when no session is left.
    """

    state_version = 1

    def __init__(self) -> None:
        self.lingers: Deferred[None] = Deferred()
        self.calls: list[str] = []
        self.open: list[int] = []

    def freeze(self) -> Deferred[ServiceState]:
        self.calls.append("freeze")
        self.open.append(os.open("/dev/null", os.O_RDONLY))
        return succeed(ServiceState({"calls": len(self.calls)}, self.open))

    def thaw(self) -> Deferred[None]:
        self.calls.append("thaw")
        self.close()
        return succeed(None)

    def retire(self, linger_seconds: float) -> Deferred[None]:
        self.calls.append("retire")
        self.close()
        return self.lingers

    def inherit(self, handed: ServiceState) -> None:
        self.calls.append("inherit")
        self.open += handed.descriptors
        self.close()

    def close(self) -> None:
        while self.open:
            os.close(self.open.pop())


class Process:
    """
    A process that can replace another one, and can be replaced; it is its own reactor.

    :ivar started: fires with the next process that this one starts.
    :ivar ended: fires when it has ended.
    """

    pid = 0

    def __init__(self) -> None:
        self.started: Deferred[Process] = Deferred()
        self.clock = Clock()
        self.service, self.sockets, self.lingering = Service(), ListeningSockets(), Lingering()
        self.hand_over = HandOver(
            self.service,
            self,
            ProcessCommand(("program",), os.getcwd()),
            lingering=self.lingering,
            listening=self.sockets,
        )
        self.predecessor: Predecessor | None = None
        self.successor: Successor | None = None
        self.ended: Deferred[None] = Deferred()
        self._end: socket.socket | None = None
        self._parent: Process | None = None
        self._port: Any = None

    async def begin(self) -> Process:
        """Start a successor."""
        started = self.started
        self.hand_over.begin()
        return await started

    async def listen(self) -> None:
        """Start the program."""
        factory = Factory()
        factory.noisy = False
        where = server_endpoint(reactor, LISTEN, None, self.sockets)
        self._port = await where.listen(factory)

    async def take_over(self) -> None:
        """Get the state of the predecessor."""
        assert self._end is not None
        predecessor = self.predecessor = Predecessor(self._end)
        # It blocks, and the predecessor is in this process.
        await deferToThread(predecessor.take_over, "program", self.service, self.sockets)
        predecessor.attach(reactor, self.lingering)

    async def replace(self) -> None:
        """Do all that a successor does."""
        await self.take_over()
        await self.listen()
        assert self.predecessor is not None
        await self.predecessor.ready()
        self.hand_over.ready()

    def end(self) -> None:
        """End, as by SIGKILL."""
        if self.ended.called:
            return
        self.ended.callback(None)
        if self._end is not None and self._end.fileno() != -1:
            with suppress(OSError):
                self._end.shutdown(socket.SHUT_RDWR)  # for a thread that waits for the state
            self._end.close()
        if self.predecessor is not None:
            while self.predecessor.earlier:
                self.predecessor.earlier.pop().close()
            if self.predecessor.channel is not None:
                self.predecessor.channel.close()
        self.lingering.leave()
        if self.successor is not None and self.successor.channel is not None:
            self.successor.channel.close()
        self.sockets.close_unused()
        if self._port is not None and not self._port.disconnecting:
            self._port.stopListening()
        parent = self._parent
        if parent is not None and parent.successor is not None and not parent.ended.called:
            reactor.callLater(0, parent.successor.processEnded, Failure(ProcessDone(0)))

    # What a hand-over needs of a reactor.

    def spawnProcess(
        self,
        protocol: Any,
        executable: str,
        args: Sequence[str],
        env: Mapping[str, str],
        path: str | None,
        childFDs: Mapping[int, int],
    ) -> Process:
        successor = Process()
        successor._parent, self.successor = self, protocol
        successor._end = socket.socket(fileno=os.dup(childFDs[3]))
        started, self.started = self.started, Deferred()
        reactor.callLater(0, started.callback, successor)
        return successor

    def signalProcess(self, name: str) -> None:
        if self.ended.called:
            raise ProcessExitedAlready
        assert name == "KILL"
        self.end()

    def callLater(self, *arguments: Any) -> Any:
        return self.clock.callLater(*arguments)

    def seconds(self) -> float:
        return self.clock.seconds()

    def adoptStreamConnection(self, *arguments: Any) -> Any:
        return reactor.adoptStreamConnection(*arguments)

    def stop(self) -> None:
        self.end()
