"""
The ports of this host's loopback that a kubelet's double forwards to.
"""

from __future__ import annotations

from typing import Any
from typing import Protocol as Typing

from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.interfaces import IHalfCloseableProtocol, IPushProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

_CONNECT_SECONDS = 10


class TargetUser(Typing):
    """Receiver of a port connection's events."""

    def target_said(self, data: bytes) -> None:
        """
        Handle data from the port.

        :param data: at least 1 byte.
        """

    def target_ended(self) -> None:
        """The port has closed its sending side."""

    def target_lost(self) -> None:
        """The connection is closed; this is the last call."""

    def target_full(self, full: bool) -> None:
        """The port stopped reading (``full``), or reads again."""


@implementer(IHalfCloseableProtocol, IPushProducer)
class _Target(Protocol):
    """A connection to a port."""

    transport: Any

    def __init__(self, user: TargetUser) -> None:
        self._user = user

    def connectionMade(self) -> None:
        self.transport.registerProducer(self, True)

    def dataReceived(self, data: bytes) -> None:
        self._user.target_said(data)

    def readConnectionLost(self) -> None:
        # Close after the target's half-close, as kubelets do.
        self._user.target_ended()
        self.transport.unregisterProducer()
        self.transport.loseConnection()

    def writeConnectionLost(self) -> None:
        """Ignore our own half-close."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._user.target_lost()

    def pauseProducing(self) -> None:
        self._user.target_full(True)

    def resumeProducing(self) -> None:
        self._user.target_full(False)

    def stopProducing(self) -> None:
        """Do nothing: ``connectionLost`` follows."""


class Way:
    """A connection to one port, with a buffer until it is connected."""

    target: Any = None

    def __init__(self, reactor: Any, port: int, user: TargetUser) -> None:
        self._early: list[bytes] = []
        self._ended = self.left = False
        self._user = user
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", port, timeout=_CONNECT_SECONDS)
        self.connecting = connectProtocol(endpoint, _Target(user))

    def connected(self, target: Any) -> None:
        """Send the buffered data."""
        if self.left:
            target.transport.abortConnection()
            return
        self.target = target
        for each in self._early:
            target.transport.write(each)
        self._early.clear()
        if self._ended:
            target.transport.loseWriteConnection()

    def write(self, data: bytes) -> None:
        if self.target is not None:
            self.target.transport.write(data)
        else:
            self._early.append(data)
            self._user.target_full(True)

    def end(self) -> None:
        """Close the sending side of the connection."""
        self._ended = True
        if self.target is not None:
            self.target.transport.loseWriteConnection()

    def pace(self, still: bool) -> None:
        """Pause reading from the port if ``still``, otherwise resume."""
        if self.target is not None:
            if still:
                self.target.transport.pauseProducing()
            else:
                self.target.transport.resumeProducing()

    def abort(self) -> None:
        """Close the target's connection, because the client has disconnected."""
        self.left = True
        if self.target is not None:
            self.target.transport.abortConnection()
        else:
            self.connecting.cancel()


def port_of(digits: bytes) -> int | None:
    """Parse a TCP port; ``None`` unless it is 1 to 65535."""
    if not digits.isdigit() or len(digits) > 5:
        return None
    return int(digits) if 1 <= int(digits) <= 0xFFFF else None
