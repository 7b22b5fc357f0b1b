"""A server of one console in memory."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.streaming.frames import Peer
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.remotecommand.carriers import StreamLimits
from twisted_exec.streaming.remotecommand.resumable import ResumableServer, Resumption
from twisted_exec.streaming.remotecommand.server import ConsoleServer
from twisted_exec.streaming.remotecommand.serving import serve
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.subject import Subject
from twisted_exec.testing.console import RecordingAttachment, ResumableAttachment
from twisted_exec.testing.network import MemoryServer
from twisted_exec.wire.session_terms import FULL

NOON = 1_800_014_400
"""2027-01-15T12:00:00Z, when the clock of the tests is 0."""


class LoneSession:
    """The session of one stream, whose attachment hears of it."""

    def __init__(self, attachment: ResumableAttachment) -> None:
        self._attachment = attachment

    def connected(self, stream: ResumableServer) -> None:
        """Do nothing."""

    def heard(self) -> None:
        self._attachment.events.append("heard")

    def lost(self) -> None:
        self._attachment.away()

    def over(self, reason: str) -> None:
        self._attachment.detached(reason)


class Serving(Dispatcher):
    """Gives every request its attachment."""

    def __init__(self, clock: Clock, attachment: RecordingAttachment, limits: StreamLimits) -> None:
        super().__init__()
        self.clock, self.attachment, self.limits = clock, attachment, limits
        self.server: ConsoleServer | None = None
        self.terms = FULL
        self.resumption: Resumption | None = None
        self.sessions: Sessions | None = None
        self.now = lambda: NOON + clock.seconds()  # without a cycle through this object

    async def dispatch(self, request: Request) -> None:
        self.server = serve(
            request,
            self.attachment,
            session="s-1",
            user="ann",
            clock=self.clock,
            limits=self.limits,
            terms=self.terms,
            now=self.now,
            resumption=self.resumption,
            entry=None if self.sessions is None else self.sessions.open(Subject("s-1")),
        )


class ServeTestCase(SynchronousTestCase):
    """A console, served in memory."""

    limits = StreamLimits(input_bytes=1000, close_seconds=15, ping_seconds=30)

    def setUp(self) -> None:
        self.clock = Clock()
        self.attach(RecordingAttachment())

    def attach(self, attachment: RecordingAttachment) -> None:
        self.attachment = attachment
        self.serving = Serving(self.clock, attachment, self.limits)
        self.server = MemoryServer(self.serving, self.clock)

    def connect(self, **more: Any) -> Peer:
        peer = Peer(self.server, **more)
        self.assertIn(b"101 Switching Protocols", peer.head)
        self.assertEqual(peer.messages()[:1], [b"\x01"])
        return peer
