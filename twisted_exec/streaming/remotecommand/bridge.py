"""
Frontend and backend connection of a bridge between protocols.

Each gets the callbacks of its carrier, keeps the state of its connection, and reports to the
bridge;
:mod:`~twisted_exec.streaming.remotecommand.translate` decides what passes between them.
"""

from __future__ import annotations

from typing import Protocol as Typing

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api.status import BadGateway
from twisted_exec.streaming.interfaces import INTERNAL, Ending
from twisted_exec.streaming.remotecommand.carrier import ClientCarrier, ServerCarrier
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.remotecommand.messages import STATUS_LIMIT_BYTES, decode_ending, has_status

LOST = "connection to the machine lost before the session's status"

SILENT_SECONDS = 61.0
"""A next hop that answers no ping for this long is dead."""

LEAVE_SECONDS = 5.0
"""Time limit for the next hop to close after the user has left."""


class Bridge(Typing):
    """Callbacks of both connections."""

    @property
    def clock(self) -> IReactorTime:
        """Clock of time limits."""

    def pump(self) -> None:
        """The frontend accepts output now."""

    def input(self, channel: Channel, data: bytes) -> None:
        """The user sent input or a size."""

    def input_over(self) -> None:
        """The user ended the input."""

    def user_flow(self, full: bool) -> None:
        """The user's buffer is full, or has room again."""

    def user_broke(self, reason: str) -> None:
        """The user's client broke the protocol; it can still receive a status."""

    def user_left(self, reason: str) -> None:
        """The user is leaving, or has left; may be repeated."""

    def output(self, channel: Channel, data: bytes) -> None:
        """The machine sent output."""

    def machine_over(self, reason: str) -> None:
        """The machine's end sent everything, or is lost; called once."""

    def gone(self) -> None:
        """A connection is closed; the last call of each."""


def cancel(timer: IDelayedCall | None) -> None:
    """Stop a timer, if it is set and active."""
    if timer is not None and timer.active():
        timer.cancel()


class FrontendConnection:
    """The user's side."""

    carrier: ServerCarrier
    open = False
    gone = False

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def use(self, carrier: ServerCarrier) -> None:
        self.carrier = carrier
        carrier.on_flow(self._bridge.user_flow)

    @property
    def takes(self) -> bool:
        """Return whether it accepts output now."""
        return self.open and not self.gone and not self.carrier.blocked

    # CarrierUser

    def connected(self) -> None:
        """Ignored: only the opening of the channels counts."""

    def opened(self) -> None:
        self.open = True
        self._bridge.pump()

    def received(self, channel: Channel, data: bytes) -> None:
        if channel in (Channel.STDIN, Channel.RESIZE):
            self._bridge.input(channel, data)

    def ended(self, channel: Channel) -> None:
        if channel is Channel.STDIN:
            self._bridge.input_over()

    def pong_received(self) -> None:
        """Ignored: TCP shows whether the peer is alive."""

    def failing(self, reason: str) -> None:
        self._bridge.user_broke(reason)

    def close_received(self, code: int | None = None) -> None:
        self._bridge.user_left("client closed")

    def lost(self, reason: str) -> None:
        self.gone = True
        self._bridge.user_left(reason.replace("connection", "client", 1))
        self._bridge.gone()


class BackendConnection:
    """
    The machine's side.

    :ivar opening: fires when the streams are open; fails with 502.
    :ivar over: nothing more will arrive.
    """

    carrier: ClientCarrier
    over = False
    gone = False

    def __init__(self, bridge: Bridge) -> None:
        self._bridge, self._clock = bridge, bridge.clock
        self.opening: Deferred[None] = Deferred(self._abandon)
        self._abandoned = False
        self._hearing = True
        self._heard_at = 0.0
        self._status = b""
        self._status_ended = False
        self._why = ""
        self._leaving: IDelayedCall | None = None

    def _abandon(self, opening: Deferred[None]) -> None:
        self._abandoned = True
        self.carrier.abort()

    def hear(self, hearing: bool) -> None:
        """Pause or resume reading."""
        if hearing is not self._hearing and not self.gone:
            self._hearing, self._heard_at = hearing, self._clock.seconds()
            if hearing:
                self.carrier.transport.resumeProducing()
            else:
                self.carrier.transport.pauseProducing()

    def leave(self) -> None:
        """Close, and wait a little for the machine's end to do so."""
        if self.gone or self._leaving is not None:
            return
        self.hear(True)  # to notice its end
        self.over = True
        self._leaving = self._clock.callLater(LEAVE_SECONDS, self.carrier.hang_up)
        self.carrier.close()

    @property
    def silent(self) -> bool:
        """Return whether a ping has gone unanswered for too long."""
        quiet_seconds = self._clock.seconds() - self._heard_at
        held_up = self.carrier.blocked or not self._hearing
        return quiet_seconds >= SILENT_SECONDS and not held_up

    def give_up(self) -> None:
        """Treat the peer as dead."""
        self._why = f"the machine's end has not answered for {SILENT_SECONDS:g} seconds"
        self.carrier.abort()

    def ending(self) -> Ending | bytes:
        """Return the ending: the Status as received, if there was one."""
        if not (self._status or self._status_ended):
            return Ending(INTERNAL, self._why or LOST)
        try:
            ending = decode_ending(self._status, self.carrier.protocol)
        except RemoteProtocolError as problem:
            return Ending(INTERNAL, f"the machine's status cannot be read: {problem}")
        verbatim = self._status and has_status(self.carrier.protocol)
        return self._status if verbatim else ending

    # CarrierUser

    def connected(self) -> None:
        """Ignored: only the opening of the channels counts."""

    def opened(self) -> None:
        self.hear(False)  # until the client is answered
        self._heard_at = self._clock.seconds()
        self.opening.callback(None)

    def received(self, channel: Channel, data: bytes) -> None:
        self._heard_at = self._clock.seconds()
        if self.over:
            return
        if channel is Channel.ERROR:
            self._status += data
            if len(self._status) > STATUS_LIMIT_BYTES:
                self.carrier.fail("the status is too large")
        elif channel in (Channel.STDOUT, Channel.STDERR):
            self._bridge.output(channel, data)

    def ended(self, channel: Channel) -> None:
        if channel is Channel.ERROR:
            self._status_ended = True

    def pong_received(self) -> None:
        self._heard_at = self._clock.seconds()

    def failing(self, reason: str) -> None:
        self._status, self._status_ended = b"", False
        self._why = f"the machine's end broke the protocol: {reason}"
        self.close_received()

    def close_received(self, code: int | None = None) -> None:
        if not self.over:
            self.over = True
            self._bridge.machine_over("backend closed")

    def lost(self, reason: str) -> None:
        self.gone = True
        cancel(self._leaving)
        if not self.opening.called:
            if not self._abandoned:
                self.opening.errback(BadGateway(self._why or reason))
            return
        if not self.over:
            self.over = True
            self._bridge.machine_over(reason.replace("connection", "backend", 1))
        self._bridge.gone()
