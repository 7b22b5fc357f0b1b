"""The user of a session's first connection."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IReactorTime

from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.remotecommand.client import Reopen
from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser, MarkUser
from twisted_exec.wire.marks import Mark


class FirstUser(MarkUser):
    """The user of a connection, until its server says whether it can resume sessions."""

    stream: ConsoleStream

    def __init__(
        self,
        user: ConsoleUser,
        reopen: Reopen,
        clock: IReactorTime,
        give_up_seconds: float | None = None,
    ) -> None:
        self._user, self._reopen, self._clock = user, reopen, clock
        self._give_up_seconds = give_up_seconds

    def attached(self, stream: Any) -> None:
        if stream.resumable is None:
            self.stream = stream
            stream.hand_over(self._user)
            self._user.attached(stream)
            return
        # Imported here: the program starts faster without it, and many servers cannot resume.
        from twisted_exec.streaming.remotecommand.resuming_client import ResumingClient

        self.stream = resuming = ResumingClient(
            self._user, self._reopen, self._clock, limit_seconds=self._give_up_seconds
        )
        resuming.start(stream)

    def data_received(self, data: bytes) -> None:
        """Nothing arrives before :meth:`attached`."""

    def mark_received(self, mark: Mark) -> None:
        """See :meth:`data_received`."""

    def ended(self, ending: Ending) -> None:
        """See :meth:`data_received`."""

    def detached(self, reason: str) -> None:
        """See :meth:`data_received`."""
