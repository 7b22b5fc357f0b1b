"""Responses of :mod:`twisted_exec.runtimes.recordings.content` that break off."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.audits import AuditList
from twisted_exec.program.audit import Trail
from twisted_exec.recording.journal_ranges import MissingOutput
from twisted_exec.recording.proof_lines import InvalidRecording
from twisted_exec.runtimes.recordings.content import RecordingStream
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.testing.network import MemoryServer

UNREADABLE = OSError(errno.EIO, os.strerror(errno.EIO))


class Content(Dispatcher):
    """Answers with a recording that has a problem behind its first bytes, or before them."""

    def __init__(self, sessions: Sessions, problem: Exception, *, at_once: bool) -> None:
        super().__init__()
        self._sessions, self._problem, self._at_once = sessions, problem, at_once

    def _pieces(self) -> Iterator[bytes]:
        yield b"abc"
        raise self._problem

    async def _prepare(self) -> Iterator[bytes]:
        if self._at_once:
            raise self._problem
        return self._pieces()

    async def dispatch(self, request: Request) -> None:
        session = self._sessions.open(request.subject)
        await RecordingStream(request, "r1", self._prepare).run(session)


class BreakTests(SynchronousTestCase):
    """The reason in the audit log says no more than is known."""

    def reason(self, problem: Exception, *, at_once: bool = False) -> str:
        records, clock = AuditList(), Clock()
        sessions = Sessions(Trail(records, "runtime", clock))
        server = MemoryServer(Content(sessions, problem, at_once=at_once), clock)
        client = server.connect()
        client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        clock.advance(1)
        self.assertTrue(client.closed)
        ((reason, _),) = records.ends()
        return str(reason)

    def test_unreadable(self) -> None:
        """A file that cannot be read may still be complete."""
        for at_once in (True, False):
            reason = self.reason(UNREADABLE, at_once=at_once)
            self.assertEqual(reason, "the recording cannot be read")

    def test_incomplete(self) -> None:
        """Output that is missing, or is not the signed output, is no longer complete."""
        for problem in (MissingOutput("the output is gone"), InvalidRecording("changed")):
            self.assertEqual(self.reason(problem), "the recording is no longer complete")
