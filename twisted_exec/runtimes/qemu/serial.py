"""
The serial port of a virtual machine: one line, over a socket, or over a file and a FIFO.

A QEMU that outlives the runtime usually has a file (:mod:`.serial_log`) and a FIFO
(:mod:`.log_port`): output to a socket would be lost while no runtime is connected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IConsumer, ITransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.console.interfaces import ILineTransport


class QemuSerialPort(Protocol):
    """One connection to the socket."""

    transport: Any

    def __init__(self, line: QemuSerialLine) -> None:
        self._line = line

    def dataReceived(self, data: bytes) -> None:
        self._line.received(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._line.port_lost(self)


@implementer(ILineTransport, ITransport, IConsumer)
class QemuSerialLine:
    """
    The transport of a line's protocol.

    :param lost: called after each loss of the connection; :attr:`is_open` says whether to
        reconnect.
    """

    disconnecting = False

    def __init__(self, lost: Callable[[], None], active: Callable[[], None] = lambda: None) -> None:
        self._lost, self._active = lost, active
        self._port: Any = None
        self._protocol: Any = None
        self._producer: Any = None
        self._paused = False
        self._over = False
        # Input that waits for BREAKs, and how many of these QEMU has not carried out yet.
        self._held, self._breaks = b"", 0

    @property
    def is_open(self) -> bool:
        """True until the session closed the line or the machine ended."""
        return not self._over and not self.disconnecting

    def begin(self, protocol: Any) -> None:
        self._protocol = protocol
        protocol.makeConnection(self)

    def join(self, port: Any, protocol: Any = None) -> None:
        """Use a new connection for the line."""
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
        self._active()
        if self._protocol is not None and not self._over:
            self._protocol.dataReceived(data)

    def port_lost(self, port: Any) -> None:
        if port is not self._port:
            return
        self._port = None
        if self._producer is not None and self.is_open:
            self._producer.pauseProducing()
        self._lost()

    def end(self, reason: Failure) -> None:
        if not self._over and self._protocol is not None:
            self._over = True
            self._protocol.connectionLost(reason)

    def break_begins(self) -> None:
        """
        Hold input back until :meth:`break_ends`.

        BREAK is a command of QMP, so QEMU could read a key that the user typed after it from the
        serial socket first.
        """
        self._breaks += 1
        if self._producer is not None:
            self._producer.pauseProducing()

    def break_ends(self, result: Any) -> Any:
        """Send the input that was held back, unless another BREAK is under way."""
        self._breaks -= 1
        if not self._breaks:
            held, self._held = self._held, b""
            if self._port is not None:  # otherwise input is lost with the connection
                self._port.transport.write(held)
                if self._producer is not None:
                    self._producer.resumeProducing()
        return result

    def drop(self) -> None:
        if self._port is not None:
            self._port.transport.abortConnection()

    # ILineTransport, ITransport and IConsumer.

    def write(self, data: bytes) -> None:
        self._active()
        if self._breaks:
            self._held += data
        elif self._port is not None:
            self._port.transport.write(data)

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        self.disconnecting = True
        if self._port is not None:
            held, self._held = self._held, b""
            self._port.transport.write(held)
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
