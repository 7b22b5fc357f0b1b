"""A stream server in memory whose sessions outlive connections, and its clients."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.streaming.frames import BytesMessage, CloseConnection, Peer, Ping, Pong, handshake
from twisted_exec.api.status import APIError
from twisted_exec.iri.request_cache import Grant, RequestCache
from twisted_exec.program.audit_file import JSONLinesAudit
from twisted_exec.program.metrics import metrics_text
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.runtimes.serving.options import Listening
from twisted_exec.runtimes.serving.stream_server import StreamRoutes, StreamServer
from twisted_exec.streaming.interfaces import IAttachment
from twisted_exec.streaming.subject import Subject
from twisted_exec.testing.console import ResumableAttachment
from twisted_exec.testing.network import MemoryServer
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.endings import decode_ending
from twisted_exec.wire.marks import Answer, MarkDecoder, encode_mark
from twisted_exec.wire.resume import Position, Resumable, Resume

EPOCH = ResumableAttachment.epoch
SECRET = b"s" * 32
NO_SESSION = "there is no such session to resume"


class Client(Peer):
    """
    A client of one connection.

    :ivar answer: the answer to a client that can resume.
    :ivar heard: marks, output as bytes, and endings, in order.
    """

    def __init__(self, session: str, server: MemoryServer, **more: Any) -> None:
        super().__init__(server, **more)
        self.session = session
        self.answer: Resumable | None = None
        for line in self.head.split(b"\r\n"):
            name, _, value = line.partition(b": ")
            if name.lower() == b"x-twisted-exec-resume":
                self.answer = Resumable.parse(value.decode())
        self._marks = MarkDecoder()
        self.pings = 0
        self.is_closed = False

    def hears(self) -> list[object]:
        """Return what the server has sent since the last call."""
        heard: list[object] = []
        for event in self.events():
            if isinstance(event, Ping):
                self.pings += 1
            elif isinstance(event, CloseConnection):
                self.is_closed = True
            elif isinstance(event, BytesMessage):
                channel, data = Channel(event.data[0]), bytes(event.data[1:])
                if channel is Channel.RESIZE:
                    heard.extend(self._marks.feed(data))
                elif channel is Channel.ERROR:
                    heard.append(decode_ending(data, "v5.channel.k8s.io"))
                elif data:
                    heard.append(data)
        return heard

    def resume(self, offset: int = 0, **change: Any) -> Resume:
        """Return the request that resumes this session."""
        assert self.answer is not None
        return replace(Resume(self.answer.key, self.session, Position(EPOCH, offset)), **change)

    def lose(self) -> None:
        self.client.lose()

    def leave(self) -> None:
        self.say(CloseConnection(1000))
        self.client.lose()


class KeptCase(SynchronousTestCase):
    """A stream server in memory."""

    seconds = 60

    def setUp(self) -> None:
        self.clock = Clock()
        self.attachments: list[Any] = []
        self.make: Any = ResumableAttachment
        self.problem: APIError | None = None
        self.records = io.StringIO()
        self.numbers = iter(range(1, 1000))
        self.start()

    def start(self) -> None:
        """Start a runtime; the one before is killed."""
        self.cache = RequestCache(self.clock, user_limit=1000)
        self.server = StreamServer(
            Listening("unix:/run/not-used"),
            self.attach,
            self.cache,
            JSONLinesAudit(self.records),
            self.clock,
            limits=SessionLimits(1000, 1000),
            resume_seconds=self.seconds,
        )
        self.server.kept_sessions.start(SECRET)
        routes = StreamRoutes(self.server, self.cache, self.attach, self.server.kept_sessions)
        self.memory = MemoryServer(routes, self.clock)

    def attach(self, grant: Grant) -> tuple[Subject, IAttachment]:
        if self.problem is not None:
            raise self.problem
        self.attachments.append(self.make())
        return Subject("", namespace="lab", machine="x", uid="uid-x"), self.attachments[-1]

    def request(
        self,
        header: str = "marks",
        *,
        session: str = "",
        user: str = "ann",
        machine: str = "m",
        uid: str = "uid-x",
        lines: tuple[bytes, ...] = (),
    ) -> tuple[str, dict[str, Any]]:
        session = session or f"s{next(self.numbers)}"
        token = self.cache.insert(Grant(machine, uid, user, session))
        headers = {"User": user, "Machine-Uid": uid, "Resume": header}
        sent = [f"X-Twisted-Exec-{name}: {each}".encode() for name, each in headers.items() if each]
        return session, {"path": f"/exec/{token}".encode(), "lines": (*sent, *lines)}

    def open(self, header: str = "marks", **more: Any) -> Client:
        """Open a console, or resume a session; the client of a new session confirms it."""
        client = self.unconfirmed(header, **more)
        if header.startswith("marks"):
            client.say(Pong(b""))
            if "credit" in header:
                client.send(b"\4" + encode_mark(Answer(1)))
            client.pings = 0
        return client

    def unconfirmed(self, header: str = "marks", **more: Any) -> Client:
        """Open a console, or resume a session; the client has sent nothing."""
        session, request = self.request(header, **more)
        client = Client(session, self.memory, **request)
        self.assertIn(b" 101 ", client.head)
        return client

    def refused(self, header: str = "marks", **more: Any) -> tuple[int, str]:
        """Return the code and the message of a refusal."""
        _, request = self.request(header, **more)
        client = self.memory.connect()
        client.send(handshake(*request.pop("lines"), **request))
        (answer,) = client.responses()
        return answer.code, answer.json()["message"]

    @property
    def attachment(self) -> Any:
        return self.attachments[-1]

    def metric(self, name: str) -> float:
        for line in metrics_text(self.server.registry).decode().splitlines():
            if line.startswith(f"twisted_exec_{name} "):
                return float(line.rsplit(" ", 1)[1])
        self.fail(f"no metric {name}")

    def results(self) -> dict[str, float]:
        found = {
            result: self.metric(f'resume_requests_total{{result="{result}"}}')
            for result in ("resumed", "restarted", "refused", "limited")
        }
        return {result: count for result, count in found.items() if count}

    def audit(self, event: str) -> list[dict[str, Any]]:
        records = [json.loads(line) for line in self.records.getvalue().splitlines()]
        return [each for each in records if each["event"] == event]
