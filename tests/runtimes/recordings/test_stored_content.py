"""
Content that is read from a store: :mod:`twisted_exec.runtimes.recordings.stored_content`.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.audits import AuditList
from tests.contracts.recording_store import text_of
from twisted_exec.api.status import APIError
from twisted_exec.program.audit import Trail
from twisted_exec.recording.stores.interfaces import ReadText, StoreError
from twisted_exec.runtimes.recordings.stored_content import StoredStream
from twisted_exec.streaming.http.responses import Dispatcher, respond_status
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import COMPLETED
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.testing.network import MemoryClient, MemoryServer

CONTENT = bytes(range(256)) * 4096


class Contents(Dispatcher):
    """Answers with one recording."""

    def __init__(self, sessions: Sessions, read: ReadText) -> None:
        super().__init__()
        self._sessions, self.read = sessions, read

    async def dispatch(self, request: Request) -> None:
        session = self._sessions.open(request.subject)
        try:
            await StoredStream(request, "r1", self.read).run(session)
        except APIError as error:
            session.over(error.message, code=error.code)
            respond_status(request, error)


class StoredStreamTests(SynchronousTestCase):
    """A recording of 1 MiB."""

    def setUp(self) -> None:
        self.records = AuditList()
        self.offsets: list[int] = []
        sessions = Sessions(Trail(self.records, "runtime", Clock()))
        self.contents = Contents(sessions, self.read)
        self.clock = Clock()
        self.server = MemoryServer(self.contents, self.clock)

    def read(self, offset: int, limit: int) -> Deferred[bytes]:
        """The recording."""
        self.offsets.append(offset)
        return text_of(CONTENT)(offset, limit)

    def ask(self) -> MemoryClient:
        """A client with a request."""
        client = self.server.connect()
        client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return client

    def test_whole(self) -> None:
        """The recording comes whole, in order."""
        (answer,) = self.ask().responses()
        self.assertEqual(answer.body, CONTENT)
        self.assertEqual(self.records.ends(), [(COMPLETED, None)])

    def test_slow_reader(self) -> None:
        """The store is read no faster than the client."""
        waiting: Deferred[bytes] = Deferred()
        self.contents.read = lambda offset, limit: waiting if offset == 3 else succeed(b"abc")
        client = self.ask()
        producer = client.transport.producer
        self.contents.read = self.read
        producer.pauseProducing()
        self.assertIn(b"abc", client.received())
        self.assertEqual(self.offsets, [])
        waiting.callback(b"def")
        self.assertIn(b"def", client.received())

    def test_unreadable(self) -> None:
        """A store that cannot be read is an error before the beginning."""
        self.contents.read = self.away
        (answer,) = self.ask().responses()
        self.assertEqual(answer.code, 503)
        self.assertIn(b"cannot reach the bucket", answer.body)

    async def _away(self) -> bytes:
        raise StoreError("unreachable", "cannot reach the bucket")

    def away(self, offset: int, limit: int) -> Deferred[bytes]:
        """A store that does not answer."""
        return Deferred.fromCoroutine(self._away())

    def test_lost_in_the_middle(self) -> None:
        """A store that is lost later breaks the response off, so that the client notices."""
        self.contents.read = lambda offset, limit: (
            self.away(offset, limit) if offset else succeed(b"abc")
        )
        client = self.ask()
        received = client.received()
        self.assertIn(b"abc", received)
        self.assertFalse(received.endswith(b"0\r\n\r\n"))
        self.assertTrue(client.closed)
        ((reason, _),) = self.records.ends()
        self.assertEqual(reason, "the recording cannot be read")

    def test_client_leaves(self) -> None:
        """A client that leaves ends the reading."""
        waiting: Deferred[bytes] = Deferred()
        self.contents.read = lambda offset, limit: waiting if offset else succeed(b"abc")
        client = self.ask()
        client.transport.loseConnection()
        client.received()
        ((reason, _),) = self.records.ends()
        self.assertEqual(reason, "client closed")
