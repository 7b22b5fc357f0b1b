"""
Carriers: a console's channels over WebSocket messages or SPDY streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from typing import Protocol as Typing

from twisted_exec.wire.channel import Channel


class CarrierUser(Typing):
    """Callbacks of a carrier."""

    def connected(self) -> None:
        """The connection is up; called once, first of all."""

    def opened(self) -> None:
        """The channels are open; called once at most, before anything arrives."""

    def received(self, channel: Channel, data: bytes) -> None:
        """
        Data arrived on a channel.

        :param data: 1 byte or more, split anywhere.
        """

    def ended(self, channel: Channel) -> None:
        """The peer sends no more on a channel."""

    def pong_received(self) -> None:
        """The peer answered a ping."""

    def failing(self, reason: str) -> None:
        """The peer broke the protocol; a status may still precede the end."""

    def close_received(self, code: int | None = None, reason: str = "") -> None:
        """
        The peer leaves, on its own or after us.

        :param code: of a WebSocket's Close; ``None`` without one.
        :param reason: what that says, for people.
        """

    def lost(self, reason: str) -> None:
        """The connection is lost; called once, last of all."""


class Carrier(Typing):
    """The interface of carriers at both ends."""

    @property
    def transport(self) -> Any:
        """The connection's transport."""

    @property
    def blocked(self) -> bool:
        """Return whether the transport's buffer is full."""

    @property
    def protocol(self) -> str:
        """Name of the protocol version, such as ``v4.channel.k8s.io``."""

    def send(self, channel: Channel, data: bytes) -> None:
        """Send data; dropped when the channel is closed."""

    def ping(self) -> None:
        """Send a ping, unless output is blocked."""

    def close(self) -> None:
        """Close in the protocol's order, behind everything sent before."""

    def hang_up(self) -> None:
        """Close the connection behind everything sent; reset it after a time limit."""

    def abort(self) -> None:
        """Reset the connection."""

    def on_flow(self, changed: Callable[[bool], None]) -> None:
        """
        Set a callback: ``changed(True)`` when the transport's buffer is full, ``False`` after.
        """


class ServerCarrier(Carrier, Typing):
    """A carrier at the machine's end."""

    def send_status(self, document: bytes) -> None:
        """
        Send the status of the session, behind all output.

        :param document: as encoded for :attr:`protocol`; may be empty.
        """

    def restart(self, reason: str) -> None:
        """Close behind everything sent, so that the client opens another connection."""


class ClientCarrier(Carrier, Typing):
    """A carrier at the user's end."""

    @property
    def can_half_close(self) -> bool:
        """Return whether the protocol can signal the end of input."""

    def hold_answers(self, held: bool) -> None:
        """Answer no pings while ``held``; then answer the latest."""

    def end(self, channel: Channel) -> None:
        """End a channel.  :raises LocalProtocolError: not ``can_half_close``."""

    def fail(self, reason: str) -> None:
        """Fail the connection: the peer broke the protocol inside the channels."""
