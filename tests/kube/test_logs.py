"""
Tests for :mod:`twisted_exec.kube.logs`: real sockets and real logs.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.audits import AuditList
from tests.kube.console_cases import Consoles, ConsolesCase
from twisted_exec.api.kinds import Object
from twisted_exec.api.logs import LogOptions, parse
from twisted_exec.api.status import APIError, BadGateway, NotFound, ServiceUnavailable
from twisted_exec.console.log import LogStream
from twisted_exec.journal.journal import Journal
from twisted_exec.kube.logs import MachineLog
from twisted_exec.program.audit import Trail
from twisted_exec.streaming.http.responses import respond_json
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.wire.resume import Position


class Logs(Consoles):
    """
    Serves the log of the machine ``vm``.

    :ivar problem: refuses requests.
    :ivar frames: the server knows frames.
    :ivar deleted: the DeletedConsoles.
    :ivar read_deleted: names of those whose log was read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.journal = Journal()
        self.sessions = Sessions(Trail(AuditList(), "apiserver", reactor))
        self.problem: APIError | None = None
        self.frames = True
        self.queries: list[bytes] = []
        self.deleted: list[Object] = []
        self.read_deleted: list[str] = []

    async def dispatch(self, request: Request) -> None:
        if request.path.endswith(b"/deletedconsoles"):
            respond_json(request, 200, {"items": self.deleted, "metadata": {}})
            return
        if not request.path.endswith(b"/log"):
            await super().dispatch(request)
            return
        self.queries.append(request.uri.partition(b"?")[2])
        if self.problem is not None:
            raise self.problem
        *_, plural, name, _ = request.path.decode().split("/")
        if plural == "deletedconsoles":
            self.read_deleted.append(name)
        elif (plural, name) != ("machines", "vm"):
            raise NotFound("machines", "vm", "compute.ironcore.dev")
        args = dict(request.args)
        if not self.frames:
            args.pop(b"frames", None)
        stream = LogStream(request, self.journal, parse(args, "vm"), "vm")
        await stream.run(self.sessions.open(request.subject))

    def cut(self) -> None:
        """Lose all connections, as when the server is killed."""
        for session in self.sessions.live():
            session.cut()


class MachineLogTests(ConsolesCase):
    """Logs that are read."""

    def setUp(self) -> Any:
        serving = super().setUp()
        self.logs = self.site.resource = Logs()
        self.text = b""
        self.lost: list[str | None] = []
        self._waiting: list[tuple[bytes, Deferred[None]]] = []
        return serving

    def reading(self, name: str = "vm", **options: Any) -> Deferred[None]:
        log = MachineLog(self.config, "default", name, reactor, lost=self.lost.append)
        return Deferred.fromCoroutine(log.read(LogOptions(frames=True, **options), self.take))

    def take(self, data: bytes) -> None:
        self.text += data
        for text, seen in self._waiting[:]:
            if text in self.text:
                self._waiting.remove((text, seen))
                seen.callback(None)

    def until(self, text: bytes) -> Deferred[None]:
        seen: Deferred[None] = Deferred()
        self._waiting.append((text, seen))
        self.take(b"")
        return seen

    async def test_read(self) -> None:
        """A log is read to its end."""
        self.logs.journal.append(b"one\ntwo\n")
        await self.reading(tail_lines=1)
        self.assertEqual(self.text, b"two\n")
        self.assertEqual(self.logs.queries, [b"frames=true&tailLines=1"])

    async def test_position(self) -> None:
        """A reader that has opened the log can say where it is, and pause it."""
        journal = self.logs.journal
        journal.append(b"one\n")
        logs: list[Any] = []
        log = MachineLog(self.config, "default", "vm", reactor)
        reading = Deferred.fromCoroutine(
            log.read(LogOptions(frames=True, follow=True), self.take, logs.append)
        )
        await self.until(b"one\n")
        self.assertEqual(logs[0].position, Position(journal.epoch, 4))
        logs[0].pause()
        journal.append(b"two\n")
        logs[0].resume()
        await self.until(b"two\n")
        self.assertEqual(logs[0].position.offset, 8)
        journal.close()
        await reading

    async def test_continues(self) -> None:
        """A log whose server is killed continues without a lost or repeated byte."""
        journal = self.logs.journal
        journal.append(b"one\nt")
        reading = self.reading(follow=True)
        await self.until(b"one\nt")
        self.logs.problem = ServiceUnavailable("starting")
        self.logs.cut()
        journal.append(b"wo\n")
        while len(self.logs.queries) < 3:
            await self._settle()
        self.logs.problem = None
        await self.until(b"wo\n")
        self.assertEqual(self.text, b"one\ntwo\n")
        self.assertEqual(self.lost, ["the connection was lost", None])
        journal.close()
        await reading

    async def test_deleted_meanwhile(self) -> None:
        """A machine that is gone after the outage ends the log as cut off."""
        self.logs.journal.append(b"one\n")
        reading = self.reading(follow=True)
        await self.until(b"one\n")
        self.logs.problem = NotFound("machines", "vm", "compute.ironcore.dev")
        self.logs.cut()
        error = await self.assertFailure(reading, BadGateway)
        self.assertIn("the log was cut off: machines", error.message)
        self.assertNotIn("continue with", error.message)

    async def test_without_frames(self) -> None:
        """The log of a server that sends no frames is read, and ends when it is cut off."""
        self.logs.frames = False
        self.logs.journal.append(b"one\n")
        reading = self.reading(follow=True)
        await self.until(b"one\n")
        self.logs.cut()
        error = await self.assertFailure(reading, BadGateway)
        self.assertEqual(error.message, "the log was cut off")

    async def test_refused(self) -> None:
        """A refusal of the first request is the user's error."""
        error = await self.assertFailure(self.reading("none"), APIError)
        self.assertEqual(error.code, 404)

    async def test_reader_fails(self) -> None:
        """An exception of the reader ends the log."""
        self.logs.journal.append(b"one\n")

        def broken(data: bytes) -> None:
            raise BrokenPipeError

        log = MachineLog(self.config, "default", "vm", reactor)
        reading = log.read(LogOptions(follow=True, frames=True), broken)
        await self.assertFailure(Deferred.fromCoroutine(reading), BrokenPipeError)

    async def test_cancelled(self) -> None:
        """A reader that is cancelled leaves the server."""
        self.logs.journal.append(b"one\n")
        reading = self.reading(follow=True)
        await self.until(b"one\n")
        await self._settle()
        reading.addErrback(lambda _: None).cancel()
        while self.logs.sessions.live():
            await self._settle()
