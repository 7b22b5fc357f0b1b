"""
Tests for :mod:`twisted_exec.kube.downloads` against a real server.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.audits import AuditList
from tests.chain import PATIENCE_SECONDS
from tests.kube.console_cases import Consoles, ConsolesCase
from twisted_exec.api.kinds import Object
from twisted_exec.api.logs import LogOptions, parse
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    GatewayTimeout,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.console.log import LogStream
from twisted_exec.journal.journal import Journal
from twisted_exec.kube.downloads import MachineLog, read_state
from twisted_exec.program.audit import Trail
from twisted_exec.streaming.http.responses import respond, respond_json
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.wire.resume import Position

STATE = {"epoch": "0" * 16, "offset": 7, "columns": 80, "rows": 24, "output": "hello"}


class Screens(Consoles):
    """
    Serves one screen.

    :ivar stops: the body of the answer stops to arrive.
    """

    stops = False
    body = b""

    async def dispatch(self, request: Request) -> None:
        self.uri = request.uri
        if self.stops:
            request.setHeader(b"Content-Length", b"1000")
            request.write(b"{")
            await Deferred()
        respond(request, 200, self.body, "application/json")


class StateTests(ConsolesCase):
    """The state of a console."""

    async def read(self, **more: float) -> object:
        self.screens = self.site.resource = Screens()
        self.screens.body = json.dumps(STATE).encode()
        options = {"timeout_seconds": PATIENCE_SECONDS, **more}
        return await read_state(
            self.config, "/screen", (80, 24), reactor, reason="a ticket", agent="test", **options
        )

    async def test_request(self) -> None:
        """The request has the size of the terminal and the user's reason."""
        state = await self.read()
        self.assertEqual(vars(state), STATE)
        self.assertEqual(self.screens.uri, b"/screen?as=state&size=80x24&reason=a%20ticket")

    async def test_limit(self) -> None:
        """A screen that stops to arrive fails after the time limit."""
        self.patch(Screens, "stops", True)
        with self.assertRaises(GatewayTimeout):
            await self.read(timeout_seconds=0.2)


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
