"""
Protocol layers between an endpoint and a console, such as framing, telnet or encryption.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocolFactory, IPushProducer, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.runtimes.interfaces import ISharedLineTransport

_MOST_HELD_BYTES = 256 << 10
"""
Output that a layer keeps for a paused console before input waits: more than one read of a transport
(64 KiB), so that only an echo reaches it.
"""


@implementer(IStreamClientEndpoint)
class LayeredEndpoint:
    """
    Connects to an endpoint, with a layer between its transport and the console.

    ``connect`` fires when the layer has begun the console (:meth:`LineLayer.begin`). If the
    connection ends before, it fails with the reason; to cancel it aborts the connection.

    :param make_layer: called for each connection with the console's protocol; usually a subclass of
        :class:`LineLayer`.
    """

    def __init__(
        self, endpoint: IStreamClientEndpoint, make_layer: Callable[[Any], LineLayer]
    ) -> None:
        self._endpoint, self._make_layer = endpoint, make_layer

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        def build() -> LineLayer:
            return self._make_layer(protocolFactory.buildProtocol(None))  # type: ignore[arg-type]

        factory = Factory.forProtocol(build)
        factory.noisy = False
        connecting: Deferred[Any] = self._endpoint.connect(factory)
        return connecting.addCallback(lambda layer: layer.when_begun())


class PauseCause(Enum):
    """Why users' input waits."""

    TRANSPORT = "the transport takes no more"
    ECHO = "the console must read its echo first"
    PEER = "the peer asks for silence"


@implementer(IPushProducer)
class _Input:
    """The users' input: it goes on when every cause to pause it has ended."""

    def __init__(self) -> None:
        self._producer: Any = None
        self._causes: set[PauseCause] = set()

    @property
    def is_registered(self) -> bool:
        return self._producer is not None

    def register(self, producer: Any) -> None:
        self._producer = producer
        if self._causes:
            producer.pauseProducing()

    def unregister(self) -> None:
        self._producer = None

    def pause(self, cause: PauseCause) -> None:
        self._causes.add(cause)
        if self._producer is not None:
            self._producer.pauseProducing()

    def resume(self, cause: PauseCause) -> None:
        if cause in self._causes:
            self._causes.remove(cause)
            if self._producer is not None and not self._causes:
                self._producer.resumeProducing()

    def pauseProducing(self) -> None:
        self.pause(PauseCause.TRANSPORT)

    def resumeProducing(self) -> None:
        self.resume(PauseCause.TRANSPORT)

    def stopProducing(self) -> None:
        """Do nothing: ``connectionLost`` follows."""


@implementer(ISharedLineTransport)
class LineLayer(Protocol):
    """
    One connection: the protocol of the endpoint's transport, and the transport of the console.

    This class changes nothing. A subclass overrides ``dataReceived`` to decode the machine's
    output, which it passes to :meth:`deliver`, and ``write`` to encode the users' input. For a dialog
    before the console, such as a login, it overrides ``connectionMade`` and calls :meth:`begin` at
    the end of the dialog. It may have ``window_changed(size)`` and ``send_break(milliseconds)``. The
    attributes ``transport`` and ``factory`` are Twisted's.

    :param upper: the console's protocol.
    :ivar error: the argument of :meth:`fail`, or ``None``.
    :ivar is_paused: the console has paused its output.
    """

    transport: Any

    def __init__(self, upper: Any) -> None:
        self.upper = upper
        self.error: Exception | None = None
        self.is_paused = False
        self._held = bytearray()
        self._input = _Input()
        self._begun: Deferred[Any] = Deferred(lambda _: self.transport.abortConnection())
        self._has_begun = False

    # Protocol of the endpoint's transport.

    def connectionMade(self) -> None:
        self.begin()

    def dataReceived(self, data: bytes) -> None:
        self.deliver(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        why = reason if self.error is None else Failure(self.error)
        if self._has_begun:
            self.is_paused = False
            self._flush()
            self.upper.connectionLost(why)
        elif not self._begun.called:
            self._begun.errback(why)

    # For subclasses.

    def begin(self) -> None:
        """
        Begin the console, once: from now on the users type, and :meth:`deliver` prints.

        Earlier nobody calls :meth:`write` but the subclass, whose ``super().write(data)`` sends at
        once.
        """
        if self._begun.called:
            return  # the dialog took too long
        self._has_begun = True
        self.upper.makeConnection(self)
        self._begun.callback(self.upper)
        self._flush()

    def when_begun(self) -> Deferred[Any]:
        """Return the Deferred of :meth:`LayeredEndpoint.connect`; call it once."""
        return self._begun

    def deliver(self, data: bytes) -> None:
        """
        Print output, including an echo: while the console is paused or has not begun, later; after
        :meth:`fail`, never.

        While 256 KiB wait, users' input waits as well. Before the console begins, only the last 256 KiB
        are kept.

        :param data: may be empty.
        """
        if self.error is None:
            self._held += data
        if not self._has_begun:
            del self._held[:-_MOST_HELD_BYTES]
        self._flush()
        if len(self._held) >= _MOST_HELD_BYTES:
            self.pause_input(PauseCause.ECHO)

    def fail(self, error: Exception) -> None:
        """
        Close the connection immediately, such as after a malformed message.

        :param error: its text tells users why the line was lost, or cannot be opened. A
            :class:`~twisted_exec.interfaces.CannotStart` has also the reason of the machine's
            condition.
        """
        if self.error is None:
            self.error = error
            self.transport.abortConnection()

    def notify(self, text: str) -> None:
        """Show users a notice, which is not part of the machine's output; only over a ``SharedLine``."""
        self.upper.notify(text)

    def pause_input(self, cause: PauseCause) -> None:
        """Let users' input wait; it may also wait for other causes."""
        self._input.pause(cause)

    def resume_input(self, cause: PauseCause) -> None:
        """Let users' input go on, unless there is another cause to wait."""
        self._input.resume(cause)

    def _flush(self) -> None:
        if self._held and self._has_begun and not self.is_paused:
            data, self._held = bytes(self._held), bytearray()
            self.upper.dataReceived(data)
            # Behind this output, to which input may add its echo.
            if len(self._held) < _MOST_HELD_BYTES:
                self.resume_input(PauseCause.ECHO)

    # ISharedLineTransport of the console.

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self._input.register(producer)
        self.transport.registerProducer(self._input, True)

    def unregisterProducer(self) -> None:
        if self._input.is_registered:
            self._input.unregister()
            self.transport.unregisterProducer()

    def pauseProducing(self) -> None:
        self.is_paused = True
        self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        self.is_paused = False
        self.transport.resumeProducing()
        self._flush()

    def loseConnection(self) -> None:
        self.unregisterProducer()  # a transport with a paused producer would stay open
        self.transport.loseConnection()

    def abortConnection(self) -> None:
        self.transport.abortConnection()
