"""
A console line without a machine.
"""

from __future__ import annotations

from twisted.internet.address import UNIXAddress
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IProtocol, IProtocolFactory
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.streaming.interfaces import IConsole, TerminalSize


class LineTransport(StringTransport):
    """
    The open line, from the session's side.

    :ivar paused: the session reads nothing for now.
    """

    @property
    def paused(self) -> bool:
        return bool(self.producerState == "paused")

    def take(self) -> bytes:
        """What was typed into the line since the last time."""
        data: bytes = self.value()
        self.clear()
        return data


@implementer(IConsole)
class FakeConsole:
    """
    A line whose other end is the test.

    :param paced: as :class:`~twisted_exec.streaming.interfaces.IConsole` has it.
    :ivar opened: how often it was connected to.
    :ivar refusal: an exception to fail the next :meth:`connect` with.
    :ivar transport: the open line's, ``None`` while nobody has it open.
    :ivar sizes: what the line was told.
    """

    def __init__(self, paced: bool = True) -> None:
        self.paced = paced
        self.opened = 0
        self.refusal: Exception | None = None
        self.transport: LineTransport | None = None
        self.protocol: IProtocol | None = None
        self.sizes: list[TerminalSize] = []

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        if self.refusal is not None:
            return fail(Failure(self.refusal))
        self.opened += 1
        protocol = protocolFactory.buildProtocol(UNIXAddress("fake"))
        assert protocol is not None
        self.protocol, self.transport = protocol, LineTransport()
        protocol.makeConnection(self.transport)
        return succeed(protocol)

    def window_changed(self, size: TerminalSize) -> None:
        self.sizes.append(size)

    def says(self, data: bytes) -> None:
        """The machine prints."""
        assert self.protocol is not None
        self.protocol.dataReceived(data)

    def ends(self, reason: Exception | None = None) -> None:
        """The line is lost, or its process ends."""
        assert self.protocol is not None
        protocol, self.protocol, self.transport = self.protocol, None, None
        protocol.connectionLost(Failure(reason or ConnectionDone()))
