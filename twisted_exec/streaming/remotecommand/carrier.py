"""
What carries a console's channels: a WebSocket's messages, or SPDY's streams.

The two ends of a console (:mod:`~twisted_exec.streaming.remotecommand.server`,
:mod:`~twisted_exec.streaming.remotecommand.client`) know channels, sizes and
endings; a carrier knows how its protocol says these, and in which order a session
begins and ends.  So a console behaves alike whatever its client speaks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from typing import Protocol as Typing

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.streaming.flow import close_behind
from twisted_exec.wire.channel import Channel


class CarrierUser(Typing):
    """Whom a carrier tells."""

    def connected(self) -> None:
        """The connection is there; called once, the first call."""

    def opened(self) -> None:
        """The channels are there; called once, before anything comes on them, or never."""

    def received(self, channel: Channel, data: bytes) -> None:
        """
        Something came on a channel.

        :param data: 1 byte or more, any split.
        """

    def ended(self, channel: Channel) -> None:
        """The peer sends no more on a channel."""

    def pong_received(self) -> None:
        """The peer answered a ping."""

    def failing(self, reason: str) -> None:
        """The peer broke the protocol; a status sent now still goes out before the end."""

    def close_received(self) -> None:
        """The peer leaves: it wants to, or because we do.  What follows is not this one's."""

    def lost(self, reason: str) -> None:
        """The connection is gone; called once, the last call."""


class Carrier(Typing):
    """What both ends ask of a carrier."""

    @property
    def transport(self) -> Any:
        """The connection's."""

    @property
    def blocked(self) -> bool:
        """The transport takes no more for now."""

    @property
    def protocol(self) -> str:
        """The version's name, such as ``v4.channel.k8s.io``."""

    def send(self, channel: Channel, data: bytes) -> None:
        """Send data; dropped when the channel takes no more."""

    def ping(self) -> None:
        """Ask for an answer, unless the question would only join a queue."""

    def close(self) -> None:
        """Leave in the protocol's order; what was sent goes first."""

    def hang_up(self) -> None:
        """Close the connection behind what was sent; reset it when that takes too long."""

    def abort(self) -> None:
        """Reset the connection."""

    def on_flow(self, changed: Callable[[bool], None]) -> None:
        """``changed(True)`` when the transport is full, ``changed(False)`` when it has room."""


class ServerCarrier(Carrier, Typing):
    """A carrier at the machine's end."""

    def send_status(self, document: bytes) -> None:
        """
        Say how it ended, behind all output.

        :param document: in the words of :attr:`protocol`; empty where they have none.
        """


class ClientCarrier(Carrier, Typing):
    """A carrier at the user's end."""

    @property
    def can_half_close(self) -> bool:
        """The protocol can tell the end of input."""

    def end(self, channel: Channel) -> None:
        """There is no more on a channel.  :raises LocalProtocolError: not ``can_half_close``."""

    def fail(self, reason: str) -> None:
        """The peer broke the protocol above this one."""


@implementer(IPushProducer)
class PacedConnection:
    """
    What carriers have in common as the holders of a transport; mixed into their protocols.

    :ivar blocked: the transport takes no more for now.
    """

    transport: Any
    clock: IReactorTime
    linger_seconds: float
    blocked = False
    _question: Any = None  # the latest ping that was not answered
    _hung_up = False
    _abort_timer: IDelayedCall | None = None
    _flow: Callable[[bool], None] | None = None

    def hang_up(self) -> None:
        """Close the connection behind what was sent; reset it when that takes too long."""
        if not self._hung_up:
            self._hung_up = True
            self._abort_timer = self.clock.callLater(self.linger_seconds, self._abort)
            self.transport.unregisterProducer()
            self.transport.resumeProducing()  # to see the peer's end
            close_behind(self.transport)

    def abort(self) -> None:
        """Reset the connection."""
        self.transport.abortConnection()

    def on_flow(self, changed: Callable[[bool], None]) -> None:
        """``changed(True)`` when the transport is full, ``changed(False)`` when it has room."""
        self._flow = changed

    def pauseProducing(self) -> None:
        self.blocked = True
        if self._flow is not None:
            self._flow(True)

    def resumeProducing(self) -> None:
        self.blocked = False
        question, self._question = self._question, None
        if question is not None:
            self.answer(question)
        if self._flow is not None:
            self._flow(False)

    def stopProducing(self) -> None:
        """The transport is dying; ``connectionLost`` follows."""

    def asked(self, question: Any) -> None:
        """
        The peer wants a sign of life.

        Answered while output is blocked as well, but then only the latest: a peer
        that asks and reads nothing would fill our memory.
        """
        if self.blocked:
            self._question = question
        else:
            self.answer(question)

    def answer(self, question: Any) -> None:
        """Give the sign."""
        raise NotImplementedError

    def connection_lost(self, reason: Failure) -> str:
        """What ends with a connection; returns why it did."""
        self._hung_up = True
        timer, self._abort_timer = self._abort_timer, None
        if timer is not None and timer.active():
            timer.cancel()
        self._flow = None
        return "connection closed" if reason.check(ConnectionDone) else "connection lost"

    def _abort(self) -> None:
        self._abort_timer = None
        self.transport.abortConnection()
