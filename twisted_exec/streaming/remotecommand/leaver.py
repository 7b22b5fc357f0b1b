"""The user of a session that opens after its user has left."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser


class Leaver(ConsoleUser):
    """
    A user who leaves as soon as the connection is open.

    :ivar gone: fires after the end of the connection.
    """

    def __init__(self) -> None:
        self.gone: Deferred[None] = Deferred()

    def attached(self, stream: ConsoleStream) -> None:
        stream.leave()

    def data_received(self, data: bytes) -> None:
        """Nothing is read any more."""

    def ended(self, ending: Ending) -> None:
        """See :meth:`data_received`."""

    def detached(self, reason: str) -> None:
        self.gone.callback(None)
