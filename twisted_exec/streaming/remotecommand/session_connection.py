"""
One connection of a session that can be resumed.
"""

from __future__ import annotations

from typing import Any, Protocol

from twisted.internet.defer import Deferred

from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.remotecommand.client import ConsoleClient
from twisted_exec.wire.marks import Mark


class Session(Protocol):
    """
    The session, which has one connection after another.

    It is called only by the connection that counts.
    """

    def adopted(self, stream: ConsoleClient) -> None:
        """The server has accepted the connection."""

    def output_received(self, connection: SessionConnection, data: bytes) -> None:
        """Output of the machine arrived."""

    def mark_received(self, connection: SessionConnection, mark: Mark) -> None:
        """A mark arrived, in order with the output."""

    def ended(self, connection: SessionConnection, ending: Ending) -> None:
        """The server has sent a status."""

    def connection_lost(self, connection: SessionConnection, reason: str) -> None:
        """The connection is lost, or closed by the server."""


class SessionConnection:
    """
    The user of one connection of a session.

    :ivar client: ``None`` once another connection counts.
    :ivar synced: fires with the first Ack.
    :ivar is_placed: the position of the output is known.
    """

    stream: ConsoleClient | None = None
    is_placed = False

    def __init__(self, client: Session) -> None:
        self.client: Session | None = client
        self.synced: Deferred[None] = Deferred()

    def attached(self, stream: Any) -> None:
        self.stream = stream
        if self.client is not None and stream.resumable is not None:
            self.client.adopted(stream)

    def fail(self, problem: Exception) -> None:
        """Fail the attempt; ignore what still comes over the connection."""
        self.client = None
        self.synced.errback(problem)

    def abandon(self) -> None:
        """Close the connection; ignore what still comes over it."""
        self.client = None
        self.synced.addErrback(lambda _: None)
        if self.stream is not None:
            self.stream.abort()

    # ConsoleUser, MarkUser

    def data_received(self, data: bytes) -> None:
        if self._counts and self.client is not None:
            self.client.output_received(self, data)

    def mark_received(self, mark: Mark) -> None:
        if self._counts and self.client is not None:
            self.client.mark_received(self, mark)

    def ended(self, ending: Ending) -> None:
        if self._counts and self.client is not None:
            self.client.ended(self, ending)

    def detached(self, reason: str) -> None:
        if self.client is not None:
            self.client.connection_lost(self, reason)

    @property
    def _counts(self) -> bool:
        return self.stream is not None and self.stream.resumable is not None
