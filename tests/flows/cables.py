"""
Connections that can be cut: a TCP relay between two programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, TCP4ServerEndpoint, connectProtocol
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

reactor: Any = _reactor


class Cable(Factory):
    """
    A relay on loopback.

    :ivar target: the port on 127.0.0.1 that connections are passed on to.
    :ivar port: its own port, once it listens.
    :ivar made: the number of connections so far.
    :ivar late: calls that pass on what is under way.
    :ivar refuses: new connections are closed at once.
    :ivar bytes_per_second: of each direction of each connection; 0: as fast as the host is.
    :ivar delay_seconds: how much later bytes and the end arrive, in each direction of connections that are made from
        now on.
    """

    noisy = False

    def __init__(self) -> None:
        self.target = self.port = self.made = 0
        self.bytes_per_second = 0
        self.delay_seconds = 0.0
        self.refuses = self._silent = False
        self._ends: set[_End] = set()
        self.late: set[Any] = set()
        self._listening: Any = None

    async def listen(self, port: int = 0, interface: str = "127.0.0.1") -> None:
        """Listen."""
        self._listening = await TCP4ServerEndpoint(reactor, port, interface=interface).listen(self)
        self.port = self._listening.getHost().port

    async def stop(self) -> None:
        """Stop listening, and cut all connections."""
        self.cut()
        if self._listening is not None:
            await self._listening.stopListening()

    def buildProtocol(self, addr: object) -> _End:
        self.made += 1
        return _Near(self)

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return sum(isinstance(each, _Near) for each in self._ends)

    @property
    def answered(self) -> dict[object, int]:
        """How many bytes have come from the target over each open connection."""
        return {each: each.received for each in self._ends if not isinstance(each, _Near)}

    @property
    def ports(self) -> list[int]:
        """The ports that only the present connections use."""
        return [
            each.transport.getPeer().port
            if isinstance(each, _Near)
            else each.transport.getHost().port
            for each in self._ends
        ]

    def cut(self) -> None:
        """Reset all connections, in both directions."""
        while self.late:
            self.late.pop().cancel()
        for end in list(self._ends):
            end.transport.abortConnection()

    def forget(self) -> None:
        """
        Reset all connections at the side that has connected; the other side hears nothing of it.

        So does a host that changes its network.
        """
        for end in list(self._ends):
            if isinstance(end, _Near):
                end.forget()

    def silence(self) -> None:
        """Pass nothing on, over present and further connections, as if all packets were lost."""
        self._silent = True
        for end in self._ends:
            end.transport.pauseProducing()

    def mend(self) -> None:
        """Pass everything on again, also what was sent meanwhile."""
        self._silent = False
        for end in self._ends:
            end.transport.resumeProducing()

    def delay_present(self, seconds: float) -> None:
        """Let bytes and the end arrive so much later from now on, at the present connections alone."""
        for end in self._ends:
            end.delay_seconds = seconds

    @property
    def is_silent(self) -> bool:
        return self._silent


@implementer(IPushProducer)
class _End(Protocol):
    """One end; as a producer it is the other end's input."""

    transport: Any

    def __init__(self, cable: Cable) -> None:
        self.cable = cable
        self.peer: _End | None = None
        self._early = b""
        self._slow: Any = None  # the call that ends the time which the last bytes take
        self.received = 0
        self.delay_seconds = cable.delay_seconds

    def connectionMade(self) -> None:
        self.cable._ends.add(self)
        self.transport.setTcpNoDelay(True)
        if self.cable.is_silent:
            self.transport.pauseProducing()

    def join(self, peer: _End) -> None:
        """Pass on what came, and from now on everything, to another end."""
        self.peer = peer
        peer.transport.registerProducer(self, True)
        early, self._early = self._early, b""
        if early:
            self._pass_on(peer.transport.write, early)

    def _pass_on(self, act: Callable[..., None], *arguments: object) -> None:
        if not self.delay_seconds:
            act(*arguments)
            return

        def arrive() -> None:
            self.cable.late.discard(call)
            act(*arguments)

        call = reactor.callLater(self.delay_seconds, arrive)
        self.cable.late.add(call)

    def dataReceived(self, data: bytes) -> None:
        self.received += len(data)
        if self.peer is None:
            self._early += data
        else:
            self._pass_on(self.peer.transport.write, data)
            if speed := self.cable.bytes_per_second:
                self.transport.pauseProducing()
                self._slow = reactor.callLater(len(data) / speed, self._passed)

    def _passed(self) -> None:
        self._slow = None
        self.resumeProducing()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.cable._ends.discard(self)
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
        if self.peer is not None:
            self._pass_on(self._end, self.peer)

    @staticmethod
    def _end(peer: _End) -> None:
        peer.transport.unregisterProducer()
        peer.transport.loseConnection()

    def pauseProducing(self) -> None:
        self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        if not self.cable.is_silent and self._slow is None:
            self.transport.resumeProducing()

    def stopProducing(self) -> None:
        self.transport.loseConnection()


class _Near(_End):
    """The end at the program that connects."""

    _connecting: Deferred[Protocol] | None = None

    def connectionMade(self) -> None:
        super().connectionMade()
        if self.cable.refuses:
            self.transport.abortConnection()
            return
        far = _End(self.cable)
        target = HostnameEndpoint(reactor, "127.0.0.1", self.cable.target)
        self._connecting = connectProtocol(target, far)
        self._connecting.addCallbacks(self._joined, lambda _: self.transport.loseConnection())

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        super().connectionLost(reason)
        if self._connecting is not None:
            self._connecting.cancel()  # an attempt that is still open would outlive the test

    def forget(self) -> None:
        """Reset this end alone."""
        peer, self.peer = self.peer, None
        if peer is not None:
            peer.peer = None
            peer.transport.unregisterProducer()
            peer.transport.pauseProducing()
        self.transport.unregisterProducer()
        self.transport.abortConnection()

    def _joined(self, far: _End) -> None:
        if not self.connected:
            far.transport.abortConnection()
            return
        self.join(far)
        far.join(self)
