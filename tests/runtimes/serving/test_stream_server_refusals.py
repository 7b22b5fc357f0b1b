"""Tests for :mod:`twisted_exec.runtimes.serving.stream_server`: refused requests retain nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from tests.console.doubles import MemoryConsole
from tests.recording.support import signer
from tests.retained import growth
from tests.runtimes.recordings.support import UID
from tests.runtimes.serving.kept_case import KeptCase
from tests.screens.doubles import MemoryRenderer
from tests.streaming.frames import handshake
from twisted_exec.api.status import Conflict, NotFound, ServiceUnavailable
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.iri.request_cache import EXEC, LOG, RECORDING, Grant
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.store import JournalStore
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.runtimes.recordings.recording import RecordingFacts
from twisted_exec.runtimes.recordings.service import ConsoleRecordings
from twisted_exec.runtimes.serving.stream_server import StreamRoutes
from twisted_exec.screens.from_journal import Screens
from twisted_exec.streaming.http.responses import CLIENT_LEFT
from twisted_exec.streaming.interfaces import SHUTTING_DOWN, Ending, IAttachment
from twisted_exec.streaming.subject import Subject
from twisted_exec.testing.network import MemoryClient, MemoryServer
from twisted_exec.wire.session_terms import Terms

DISK = OSError(errno.EIO, os.strerror(errno.EIO))
PROBLEMS = (
    (404, NotFound("machines", "x")),
    (409, Conflict("the machine is powered off")),
    (503, ServiceUnavailable("the disk does not answer")),
    (500, DISK),
)


class RefusalCase(KeptCase):
    """
    A stream server in memory, before a machine of the test.

    :ivar failure: the answer to a request for the machine.
    :ivar admitting: called while a request is answered.
    """

    def setUp(self) -> None:
        super().setUp()
        self.shared = SharedConsole(MemoryConsole(), self.clock)
        self.shared.open()
        self.addCleanup(self.shared.end, Ending(SHUTTING_DOWN))
        self.journal, self.renderer = Journal(lambda: 0), MemoryRenderer()
        self.failure: Exception | None = None
        self.admitting: Callable[[], None] = lambda: None
        self.client: MemoryClient
        self.serve()

    def serve(self, recordings: ConsoleRecordings | None = None) -> None:
        routes = StreamRoutes(
            self.server,
            self.cache,
            self.attach,
            self.server.kept_sessions,
            self.read_log,
            Screens(self.renderer, self.clock),
            None if recordings is None else lambda: recordings,
        )
        self.memory = MemoryServer(routes, self.clock)

    def attach(self, grant: Grant) -> tuple[Subject, IAttachment]:
        self.admitting()
        if self.failure is not None:
            raise self.failure
        return Subject("", namespace="lab", machine="x", uid="uid-x"), self.shared.viewer()

    def read_log(self, grant: Grant) -> tuple[Subject, Journal]:
        machine, _ = self.attach(grant)
        return machine, self.journal

    def ask(self, purpose: str, path: str, *lines: str) -> None:
        """Send a request with a new token."""
        grant = Grant("m", "uid-x", "ann", f"s{next(self.numbers)}", purpose)
        head = [b"X-Twisted-Exec-User: ann", b"X-Twisted-Exec-Machine-Uid: uid-x"]
        head += [each.encode() for each in lines]
        target = path.format(self.cache.insert(grant)).encode()
        self.client = self.memory.connect()
        if purpose == EXEC:
            self.client.send(handshake(*head, path=target))
        else:
            start = b"GET " + target + b" HTTP/1.1"
            self.client.send(b"\r\n".join([start, b"Host: x", *head, b"", b""]))

    def code(self, purpose: str, path: str, *lines: str) -> int:
        """Send a request with a new token, read the answer and leave; :return: the audited code."""
        self.ask(purpose, path, *lines)
        self.clock.advance(0)
        self.client.lose()
        self.cache.forget_machine("m")
        self.flushLoggedErrors(OSError)
        return int(self.audit("end")[-1]["code"])

    def check(self, code: int, purpose: str, path: str, *lines: str) -> None:
        """Have a request refused several times."""
        parts = self.server, self.shared

        def refuse() -> None:
            self.assertEqual(self.code(purpose, path, *lines), code)

        with self.subTest(path=path, lines=lines, code=code):
            self.assertEqual(growth(parts, refuse, beside=[self.clock]), 0)


class ConsoleTests(RefusalCase):
    """A console, of stock clients and of those that resume their sessions."""

    def check_both(self, code: int, *lines: str) -> None:
        for kept in ((), ("X-Twisted-Exec-Resume: marks",), ("X-Twisted-Exec-Rejoin: offer",)):
            self.check(code, EXEC, "/exec/{}", *kept, *lines)

    def test_not_admitted(self) -> None:
        """A ConsolePolicy allows no more sessions, or the console cannot be recorded."""
        self.ask(EXEC, "/exec/{}")
        self.check_both(429, f"X-Twisted-Exec-Terms: {Terms(viewers=1).text()}")
        recorded = Terms(recording=f"{UID}/none").text()
        self.check_both(501, f"X-Twisted-Exec-Terms: {recorded}")

    def test_bad_request(self) -> None:
        self.check_both(400, "X-Twisted-Exec-Terms: viewers=many")
        self.check_both(403, "Origin: https://evil.example")

    def test_no_machine(self) -> None:
        for code, self.failure in PROBLEMS:
            self.check_both(code)

    def test_too_many(self) -> None:
        self.server.sessions.limits = SessionLimits(10, 1)
        self.ask(EXEC, "/exec/{}")
        self.check_both(429)

    def test_left(self) -> None:
        """The client leaves while the request is answered."""
        self.admitting = lambda: self.client.lose()
        self.check_both(CLIENT_LEFT)


class Unreadable(Journal):
    """A journal on a broken disk."""

    def last_lines(self, *arguments: object) -> int:
        raise DISK

    def last_bytes(self, *arguments: object) -> int:
        raise DISK


class TextTests(RefusalCase):
    """Logs and screens."""

    def check_both(self, code: int, query: str = "") -> None:
        for path in ("/log/{}", "/screen/{}"):
            self.check(code, LOG, path + query)

    def test_bad_request(self) -> None:
        self.check(400, LOG, "/log/{}?tailLines=x")
        self.check(400, LOG, "/screen/{}?at=7")

    def test_no_machine(self) -> None:
        for code, self.failure in PROBLEMS:
            self.check_both(code)

    def test_too_many(self) -> None:
        self.server.sessions.limits = SessionLimits(10, 1)
        self.ask(EXEC, "/exec/{}")
        self.check_both(429)

    def test_unreadable(self) -> None:
        """The journal or the emulator fails."""
        for code, self.renderer.problem in PROBLEMS:
            self.check(code, LOG, "/screen/{}")
        self.journal = Unreadable(lambda: 0)
        self.check(503, LOG, "/log/{}?tailLines=1")
        self.check(503, LOG, "/screen/{}")

    def test_left(self) -> None:
        """The client leaves while the screen is rendered."""
        self.renderer.waits = True
        self.check(CLIENT_LEFT, LOG, "/screen/{}")


class Recordings(ConsoleRecordings):
    """
    Recordings of a broken runtime.

    :ivar problem: the answer to a request for a recording; ``None`` if it is in a store.
    """

    problem: Exception | None = None

    def facts(self, uid: str) -> RecordingFacts:
        if self.problem is not None:
            raise self.problem
        location = "s3://bucket/r1"
        return RecordingFacts(uid, "k", {}, "none", "e", 0, 0, 80, 24, "", location=location)


class RecordingTests(RefusalCase):
    """Recordings."""

    def setUp(self) -> None:
        super().setUp()
        path = self.mktemp()
        journals = JournalStore(os.path.join(path, "consoles"), self.clock)
        self.recordings = Recordings(path, journals, self.clock, signer, lambda: 0)
        self.serve(self.recordings)

    def test_unreadable(self) -> None:
        """There is no such recording, or it cannot be read."""
        for code, self.recordings.problem in PROBLEMS:
            self.check(code, RECORDING, "/recording/{}")

    def test_no_store(self) -> None:
        """The recording is in a store, and the runtime has none any more."""
        self.check(503, RECORDING, "/recording/{}")
