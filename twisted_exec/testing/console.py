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

from twisted_exec.streaming.interfaces import IBreakable, IConsole, TerminalSize


class _Line(StringTransport):
    """The open line: writes are input, and output waits while the line is paused."""

    def __init__(self, console: FakeConsole) -> None:
        super().__init__()
        self._console = console

    def write(self, data: bytes) -> None:
        super().write(data)
        if self._console.echo:
            self._console.says(data)

    def resumeProducing(self) -> None:
        super().resumeProducing()
        self._console.deliver()

    def loseConnection(self) -> None:
        super().loseConnection()
        self._console.ends()

    def abortConnection(self) -> None:
        self.loseConnection()


@implementer(IConsole, IBreakable)
class FakeConsole:
    """
    A line whose other end is the test.

    :param paced: as :class:`~twisted_exec.streaming.interfaces.IConsole` has it.
    :param echo: print all input.
    :ivar opened: number of connections so far.
    :ivar refusal: an exception to fail the next :meth:`connect` with.
    :ivar sizes: all terminal sizes, also from while the line was closed.
    :ivar breaks: how long each BREAK was that the open line sent, in milliseconds.
    """

    def __init__(self, paced: bool = True, echo: bool = False) -> None:
        self.paced, self.echo = paced, echo
        self.opened = 0
        self.refusal: Exception | None = None
        self.sizes: list[TerminalSize] = []
        self.breaks: list[int] = []
        self._line: _Line | None = None
        self._protocol: IProtocol | None = None
        self._unread = b""

    @property
    def is_open(self) -> bool:
        """True if a client is connected."""
        return self._protocol is not None

    @property
    def is_paused(self) -> bool:
        """True if the client has paused reading."""
        return self._line is not None and self._line.producerState == "paused"

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Open the line."""
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            return fail(Failure(refusal))
        self.opened += 1
        protocol = protocolFactory.buildProtocol(UNIXAddress("fake"))
        assert protocol is not None
        self._protocol, self._line, self._unread = protocol, _Line(self), b""
        protocol.makeConnection(self._line)
        return succeed(protocol)

    def window_changed(self, size: TerminalSize) -> None:
        """Remember the size."""
        self.sizes.append(size)

    def send_break(self, milliseconds: int) -> None:
        """Remember it."""
        if self.is_open:
            self.breaks.append(milliseconds)

    def typed(self) -> bytes:
        """Return the input since the last call."""
        if self._line is None:
            return b""
        data: bytes = self._line.value()
        self._line.clear()
        return data

    def says(self, data: bytes) -> None:
        """Print output of the machine; it is lost while the line is closed."""
        if self.is_open:
            self._unread += data
            self.deliver()

    def deliver(self) -> None:
        """Deliver the output, unless the line is paused."""
        if self._protocol is not None and self._unread and not self.is_paused:
            unread, self._unread = self._unread, b""
            self._protocol.dataReceived(unread)

    def ends(self, reason: Exception | None = None) -> None:
        """The line is lost, or its process ends; once."""
        protocol, self._protocol = self._protocol, None
        self._line = None
        if protocol is not None:
            protocol.connectionLost(Failure(reason or ConnectionDone()))
