"""
The serial port as one line, through whatever becomes of its socket.

QEMU's socket may be closed while the machine goes on.  Then the line is opened again, and who
writes into it is paused meanwhile; the line itself ends when the machine does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IConsumer, ITransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer


class SerialPort(Protocol):
    """One connection to the socket."""

    transport: Any

    def __init__(self, line: SerialLine) -> None:
        self._line = line

    def dataReceived(self, data: bytes) -> None:
        self._line.received(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._line.port_lost(self)


@implementer(ITransport, IConsumer)
class SerialLine:
    """
    The transport of a line's protocol.

    :param lost: called when the socket was closed by somebody else while the line is open.
    """

    disconnecting = False

    def __init__(self, lost: Callable[[], None]) -> None:
        self._lost = lost
        self._port: Any = None
        self._protocol: Any = None
        self._producer: Any = None
        self._paused = False
        self._over = False

    @property
    def is_open(self) -> bool:
        """Whether anybody listens still."""
        return not self._over and not self.disconnecting

    def join(self, port: SerialPort, protocol: Any = None) -> None:
        """
        From here on the line is this connection.

        :param protocol: of the line, the first time.
        """
        self._port = port
        if self._paused:
            port.transport.pauseProducing()
        if protocol is not None:
            self._protocol = protocol
            protocol.makeConnection(self)
        elif self._producer is not None:
            port.transport.registerProducer(self._producer, True)
            self._producer.resumeProducing()

    def received(self, data: bytes) -> None:
        """The machine printed."""
        if self._protocol is not None and not self._over:
            self._protocol.dataReceived(data)

    def port_lost(self, port: SerialPort) -> None:
        """A connection is gone."""
        if port is not self._port:
            return
        self._port = None
        if self._producer is not None and self.is_open:
            self._producer.pauseProducing()
        self._lost()

    def end(self, reason: Failure) -> None:
        """The line is over; its protocol is told, once."""
        if not self._over and self._protocol is not None:
            self._over = True
            self._protocol.connectionLost(reason)

    def drop(self) -> None:
        """Close the connection at once."""
        if self._port is not None:
            self._port.transport.abortConnection()

    # ITransport and IConsumer, as the line's protocol uses them.

    def write(self, data: bytes) -> None:
        if self._port is not None:
            self._port.transport.write(data)

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        self.disconnecting = True
        if self._port is not None:
            self._port.transport.loseConnection()
        else:
            self.end(Failure(ConnectionDone()))

    def getPeer(self) -> Any:
        return self._port.transport.getPeer() if self._port is not None else None

    def getHost(self) -> Any:
        return self._port.transport.getHost() if self._port is not None else None

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self._producer = producer
        if self._port is not None:
            self._port.transport.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        self._producer = None
        if self._port is not None:
            self._port.transport.unregisterProducer()

    def pauseProducing(self) -> None:
        self._paused = True
        if self._port is not None:
            self._port.transport.pauseProducing()

    def resumeProducing(self) -> None:
        self._paused = False
        if self._port is not None:
            self._port.transport.resumeProducing()

    def stopProducing(self) -> None:
        self.loseConnection()
