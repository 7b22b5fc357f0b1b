"""
Tests for :mod:`twisted_exec.runtimes.serving.kept_sessions`: sessions over lost connections, from
the request on.
"""

from __future__ import annotations

import gc
import io
import json
from dataclasses import replace
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.streaming.frames import BytesMessage, CloseConnection, Peer, Ping, Pong, handshake
from twisted_exec.api.status import APIError, Conflict
from twisted_exec.iri.request_cache import Grant, RequestCache
from twisted_exec.observe.audit import JSONLinesAudit
from twisted_exec.observe.metrics import metrics_text
from twisted_exec.program.descriptors import SessionLimits
from twisted_exec.runtimes.serving.absences import Absences
from twisted_exec.runtimes.serving.routes import StreamRoutes
from twisted_exec.runtimes.serving.server import Listening, StreamServer
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    RESUMED,
    REVOKED,
    SHUTTING_DOWN,
    Ending,
    IAttachment,
    Subject,
)
from twisted_exec.streaming.remotecommand.page_server import PageServer
from twisted_exec.testing.attachment import RecordingAttachment, ResumableAttachment
from twisted_exec.testing.http import MemoryServer
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.remotecommand.messages import decode_ending
from twisted_exec.wire.resume import (
    Ack,
    At,
    MarkDecoder,
    Position,
    Resumable,
    Resume,
    parse_answer,
)

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
                self.answer = parse_answer(value.decode())
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


def texts(roots: list[Any]) -> str:
    """Return all texts in objects of this project that can be reached, without those of doubles."""
    seen, found = set[int](), list[str]()
    while roots:
        each = roots.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, bytes):
            found.append(each.decode("latin-1"))
        elif isinstance(each, dict):
            roots.extend([*each.keys(), *each.values()])
        elif isinstance(each, list | tuple | set):
            roots.extend(each)
        elif type(each).__module__.startswith("twisted_exec."):
            roots.append(getattr(each, "__dict__", {}))
    return "\n".join(found)


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
        """Open a console."""
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


class ResumeTests(KeptCase):
    """A session whose connection is lost, and whose user comes back."""

    def test_back(self) -> None:
        """Output and input go on where they were, with the same attachment."""
        client = self.open()
        self.assertEqual(client.hears(), [Ack(0), At(Position(EPOCH, 0))])
        self.attachment.prints(b"login: ")
        client.send(b"\0ann")
        client.lose()
        self.assertEqual(self.metric("absent_sessions"), 1)
        self.clock.advance(59)
        self.attachment.prints(b"ann\r\n")
        again = self.open(client.resume(3).text())
        self.assertEqual(again.hears(), [Ack(3), At(Position(EPOCH, 3)), b"in: ann\r\n"])
        again.send(b"\0bell")
        self.assertEqual(self.attachment.received, b"annbell")
        (attachment,) = self.attachments
        self.assertEqual(attachment.events, ["heard", "away", "resumed", "heard"])
        self.assertEqual((self.metric("absent_sessions"), self.results()), (0, {"resumed": 1}))
        self.clock.advance(100)
        again.leave()
        self.assertEqual(attachment.detached_with, ["client closed"])
        self.assertEqual(self.cache._live, {})

    def test_page(self) -> None:
        """The key of a page is valid until the page has sent something, whatever its browser answers."""
        client = self.open("marks; credit=65536")
        self.assertIsInstance(self.attachment.transport, PageServer)
        client.lose()
        again = self.open(f"{client.resume().text()}; credit=65536")
        self.assertIsInstance(self.attachment.transport, PageServer)
        again.say(Pong(b""))
        again.lose()
        self.assertEqual(self.refused(client.resume().text() + "; credit=1")[0], 400)
        again = self.open(client.resume().text())
        self.assertNotIsInstance(self.attachment.transport, PageServer)
        again.leave()

    def test_not_back(self) -> None:
        """After its time the session ends, and cannot be resumed any more."""
        client = self.open()
        client.lose()
        self.clock.advance(59.9)
        self.assertEqual(self.attachment.detached_with, [])
        self.clock.advance(0.2)
        self.assertEqual(self.attachment.detached_with, ["the user did not come back"])
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.refused(client.resume().text()), (404, NO_SESSION))

    def test_left(self) -> None:
        """A user who leaves, and a session that was ended, cannot be resumed."""
        client = self.open()
        client.leave()
        self.assertEqual(self.refused(client.resume().text()), (404, NO_SESSION))
        client = self.open()
        (live,) = self.server.sessions.with_id(client.session)
        live.end(Ending(REVOKED, "forbidden"))
        client.lose()
        self.assertEqual(self.attachment.detached_with, [REVOKED])
        self.assertEqual(self.refused(client.resume().text()), (404, NO_SESSION))

    def test_again_and_again(self) -> None:
        """Each connection has a key of its own; the key before is worth nothing once it was used."""
        first = self.open()
        self.attachment.prints(b"login: ")
        first.lose()
        client = first
        for number in range(5):
            header = client.resume(number).text()
            older, client = client, self.open(header)
            client.say(Pong(b""))
            self.assertEqual(self.refused(header), (404, NO_SESSION))
            assert client.answer is not None and older.answer is not None
            self.assertNotEqual(client.answer.key, older.answer.key)
            client.lose()
        self.assertEqual(len(self.attachments), 1)
        self.assertEqual(self.results(), {"resumed": 5, "refused": 5})

    def test_lost_answer(self) -> None:
        """Until the user is heard the key before works too: the 101 may be lost."""
        client = self.open()
        client.send(b"\0abc")
        client.lose()
        unseen = [self.open(client.resume().text()) for _ in range(3)]
        unseen[-1].lose()
        back = self.open(client.resume().text())
        self.assertEqual(back.hears()[0], Ack(3))
        # Those whose 101 was lost are not used by anybody.
        self.assertEqual(self.refused(unseen[1].resume().text()), (404, NO_SESSION))
        self.assertEqual(back.pings, 1)
        back.lose()
        # The 101 has arrived, and nothing else.
        last = self.open(back.resume().text())
        self.assertEqual(last.hears()[0], Ack(3))
        last.send(b"\0d")
        self.assertEqual(self.attachment.received, b"abcd")
        for older in (client, back):
            self.assertEqual(self.refused(older.resume().text()), (404, NO_SESSION))

    def test_newest_wins(self) -> None:
        """The older of two connections ends, and nothing of it reaches the machine any more."""
        client = self.open()
        client.send(b"\0a")
        self.attachment.transport.pause_input()
        client.send(b"\0lost")
        again = self.open(client.resume().text())
        self.assertEqual(again.hears()[0], Ack(1))
        client.send(b"\0x")
        again.send(b"\0b")
        self.assertEqual(self.attachment.received, b"ab")
        ending = client.hears()[-1]
        message = "this session goes on over another connection"
        self.assertEqual(ending, Ending(RESUMED, message))
        self.assertTrue(client.is_closed)
        client.lose()
        self.assertEqual(self.attachment.events, ["heard", "resumed", "heard"])
        self.assertEqual(self.attachment.detached_with, [])
        self.clock.advance(100)
        again.send(b"\0c")
        self.assertEqual(self.attachment.received, b"abc")
        ends = [(each["session"], each["reason"]) for each in self.audit("end")]
        self.assertEqual(ends, [(client.session, RESUMED)])

    def test_status_is_lost(self) -> None:
        """The user can come back for the rest of the output and the status."""
        client = self.open()
        self.attachment.transport.end(Ending(COMPLETED))
        client.lose()
        again = self.open(client.resume().text())
        self.attachment.transport.end(Ending(COMPLETED))
        self.assertEqual(again.hears()[-1], Ending(COMPLETED))
        again.leave()
        self.assertEqual(self.attachment.detached_with, [COMPLETED])

    def test_machine_is_off(self) -> None:
        """A session that waits does not need a running machine."""
        client = self.open()
        client.lose()
        self.problem = Conflict("the machine is powered off")
        self.assertTrue(self.server.kept_sessions.waits_for("ann", "uid-x"))
        self.assertFalse(self.server.kept_sessions.waits_for("bob", "uid-x"))
        self.assertFalse(self.server.kept_sessions.waits_for("ann", "uid-y"))
        self.open(client.resume().text())
        self.assertFalse(self.server.kept_sessions.waits_for("ann", "uid-x"))

    def test_client_that_left(self) -> None:
        """A client that is gone before the 101 changes nothing."""
        client = self.open()
        client.lose()
        session = self.server.kept_sessions.find(client.resume(), "ann", "uid-x")
        assert session is not None
        (live,) = [self.server.sessions.open(Subject("s", user="ann"))]
        session.connect("s", live, lambda: None, client.resume())
        live.over("client closed", code=499)
        self.clock.advance(30)
        again = self.open(client.resume().text())
        self.assertEqual(again.hears()[0], Ack(0))


class RefusalTests(KeptCase):
    """Requests that resume nothing."""

    def test_bad(self) -> None:
        """The bad inputs, with the status of the answer."""
        client = self.open()
        self.attachment.output = b"x" * 100
        client.lose()
        good = client.resume()
        other = self.open(user="bob")
        beyond = "the position is beyond the end of the output"
        invalid = "header X-Twisted-Exec-Resume has no valid field "
        for header, more, code, message in (
            (good, {"user": "bob"}, 404, NO_SESSION),
            (good, {"uid": "uid-y"}, 404, NO_SESSION),
            (replace(good, session="s9"), {}, 404, NO_SESSION),
            (replace(good, session=other.session), {}, 404, NO_SESSION),
            (replace(good, key="k" * 43), {}, 404, NO_SESSION),
            (other.resume(), {}, 404, NO_SESSION),
            (client.resume(101), {}, 400, beyond),
            ("something", {}, 400, f"{invalid}key"),
            (f"key={'k' * 43}; session=s1; epoch={EPOCH}", {}, 400, f"{invalid}from"),
            (f"key={'k' * 43}; session=s1; epoch={EPOCH}; from=-1", {}, 400, f"{invalid}from"),
            (f"key=short; session=s1; epoch={EPOCH}; from=1", {}, 400, f"{invalid}key"),
            (
                "marks" + " " * 600 + "; x",
                {},
                400,
                "header X-Twisted-Exec-Resume is longer than 512 characters",
            ),
            (
                "marks",
                {"lines": (b"X-Twisted-Exec-Resume: marks",)},
                400,
                "a request has at most one header X-Twisted-Exec-Resume",
            ),
        ):
            text = header.text() if isinstance(header, Resume) else header
            with self.subTest(text=text, more=more):
                self.assertEqual(self.refused(text, **more), (code, message))
        self.assertEqual(self.results(), {"refused": 6})
        # None of these has harmed the session.
        again = self.open(client.resume(90).text())
        self.assertEqual(again.hears()[2:], [b"x" * 10])

    def test_token_is_not_burnt(self) -> None:
        """A refused request can be repeated with its token."""
        _, request = self.request(f"key={'k' * 43}; session=s; epoch={EPOCH}; from=0")
        for _ in range(2):
            client = self.memory.connect()
            client.send(handshake(*request["lines"], path=request["path"]))
            self.assertEqual(client.responses()[0].code, 404)
        lines = tuple(each for each in request["lines"] if b"Resume" not in each)
        peer = Peer(self.memory, path=request["path"], lines=lines)
        self.assertIn(b" 101 ", peer.head)

    def test_protocols(self) -> None:
        """Other protocols than v5 and v4 over a WebSocket have no answer, and resume nothing."""
        client = self.open()
        client.lose()
        spdy = (
            b"POST %b HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n%b\r\n\r\n"
        )
        message = (
            "a session is resumed over a WebSocket with v5.channel.k8s.io or v4.channel.k8s.io"
        )
        for header in ("marks", client.resume().text()):
            for protocol in (b"v4.base64.channel.k8s.io", b"channel.k8s.io", b"", b"SPDY"):
                _, request = self.request(header)
                peer = self.memory.connect()
                if protocol == b"SPDY":
                    peer.send(spdy % (request["path"], b"\r\n".join(request["lines"])))
                else:
                    peer.send(
                        handshake(*request["lines"], path=request["path"], protocols=protocol)
                    )
                answer = peer.received()
                with self.subTest(header=header[:5], protocol=protocol):
                    if header == "marks":
                        self.assertIn(b" 101 ", answer)
                        self.assertNotIn(b"resume", answer.lower())
                    else:
                        self.assertIn(b" 400 ", answer)
                        self.assertIn(message.encode(), answer)
                peer.lose()
        again = Client("s", self.memory, protocols=b"v4.channel.k8s.io", **self.request()[1])
        self.assertIsNotNone(again.answer)

    def test_not_resumable(self) -> None:
        """Sessions without a user, and consoles that cannot, have no answer."""
        client = self.open(user="")
        self.assertIsNone(client.answer)
        client.lose()
        self.assertEqual(len(self.attachment.detached_with), 1)
        self.make = RecordingAttachment
        client = self.open()
        self.assertIsNone(client.answer)
        client.lose()
        self.assertEqual(len(self.attachment.detached_with), 1)
        header = Resume("k" * 43, "s", Position(EPOCH, 0)).text()
        self.assertEqual(self.refused(header, user=""), (404, NO_SESSION))

    def test_ordinary_client(self) -> None:
        """A client that does not ask has no answer and no marks."""
        client = self.open("")
        self.attachment.prints(b"x")
        self.assertEqual((client.answer, client.hears()), (None, [b"x"]))
        client.lose()
        self.assertEqual(len(self.attachment.detached_with), 1)

    def test_flood(self) -> None:
        """More than ten refusals of a user within a minute get 429, but no other user and no good key."""
        client = self.open()
        client.lose()
        bad = client.resume(key="k" * 43).text()
        codes = [self.refused(bad)[0] for _ in range(13)]
        self.assertEqual(codes, [404] * 10 + [429] * 3)
        self.assertEqual(self.results(), {"refused": 10, "limited": 3})
        self.assertEqual(self.refused(bad, user="bob")[0], 404)
        self.open(client.resume().text())
        self.clock.advance(61)
        self.assertEqual(self.refused(bad)[0], 404)

    def test_retry_after(self) -> None:
        """The answer says when to come again."""
        bad = Resume("k" * 43, "s", Position(EPOCH, 0)).text()
        for _ in range(10):
            self.refused(bad)
        self.clock.advance(20)
        _, request = self.request(bad)
        client = self.memory.connect()
        client.send(handshake(*request.pop("lines"), **request))
        self.assertEqual(client.responses()[0].headers["retry-after"], "40")

    def test_no_secrets(self) -> None:
        """No key gets into an audit record, a message or a representation, or stays in memory."""
        client = self.open()
        assert client.answer is not None
        key = client.answer.key
        for shown in (
            repr(client.answer),
            repr(client.resume()),
            repr(vars(self.server.kept_sessions)),
        ):
            self.assertNotIn(key, shown)
        self.assertNotIn(key, texts([self.server, self.attachment]))
        client.lose()
        wrong = client.resume(session="s9").text()
        self.assertNotIn(key, self.refused(wrong)[1])
        again = self.open(client.resume().text())
        assert again.answer is not None
        for each in (key, again.answer.key):
            self.assertNotIn(each, texts([self.server, self.attachment]))
        self.assertNotIn(key, self.records.getvalue())


class DisabledTests(KeptCase):
    """A runtime with ``--resume-seconds 0``."""

    seconds = 0

    def test_disabled(self) -> None:
        """There is no answer, and nothing to resume."""
        client = self.open()
        self.assertIsNone(client.answer)
        client.lose()
        self.assertEqual(len(self.attachment.detached_with), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        header = Resume("k" * 43, "s", Position(EPOCH, 0)).text()
        self.assertEqual(self.refused(header), (404, NO_SESSION))


class LimitTests(KeptCase):
    """Limits of sessions."""

    def test_limit_of_sessions(self) -> None:
        """The connection that a resumed session replaces does not count; a lost one neither."""
        self.server.sessions.limits = SessionLimits(10, 1)
        client = self.open()
        again = self.open(client.resume().text())
        client.leave()
        again.lose()
        self.open()
        self.assertEqual(self.refused(again.resume().text())[0], 429)

    def test_absent(self) -> None:
        """Of too many absent sessions of a user, the one that is absent longest ends."""
        self.server.kept_sessions.absences = Absences(self.clock, 60, most_of_user=16)
        clients = [self.open() for _ in range(17)]
        for client in clients:
            client.lose()
        ended = [each.detached_with for each in self.attachments if each.detached_with]
        self.assertEqual(ended, [["too many lost sessions wait for their users"]])
        self.assertEqual(self.refused(clients[0].resume().text()), (404, NO_SESSION))
        self.open(clients[1].resume().text())


class Printed(ResumableAttachment):
    """An attachment of a machine that has printed something before."""

    def __init__(self) -> None:
        super().__init__()
        self.output = b"login: "


class MadeAgain(ResumableAttachment):
    """An attachment of a machine with another journal."""

    epoch = "fedcba9876543210"


class RestartTests(KeptCase):
    """A runtime that was killed and started again; its machines are still there."""

    def restart(self) -> None:
        self.clock.advance(5)
        self.start()

    def test_goes_on(self) -> None:
        """The session goes on at its position; nobody knows how much input was settled."""
        client = self.open()
        client.send(b"\0abc")
        self.restart()
        self.make = Printed
        again = self.open(client.resume(4).text())
        self.assertEqual(again.hears(), [Ack(None), At(Position(EPOCH, 4)), b"n: "])
        self.assertEqual(self.results(), {"restarted": 1})
        self.assertEqual(self.attachment.events, ["resumed"])
        again.send(b"\0d")
        self.assertEqual(self.refused(client.resume().text()), (404, NO_SESSION))
        again.lose()
        last = self.open(again.resume().text())
        self.assertEqual(last.hears()[0], Ack(1))
        self.assertEqual(self.results(), {"restarted": 1, "resumed": 1, "refused": 1})

    def test_lost_answer(self) -> None:
        """If the 101 is lost, the same session goes on, and the count is still unknown."""
        client = self.open()
        self.restart()
        before = len(self.attachments)
        self.open(client.resume().text()).lose()
        again = self.open(client.resume().text())
        self.assertEqual(again.hears()[0], Ack(None))
        self.assertEqual(len(self.attachments), before + 1)

    def test_oldest(self) -> None:
        """The new attachment learns where the session began."""
        client_before = self.make
        begin = Position(EPOCH, 77)

        def make() -> ResumableAttachment:
            attachment: ResumableAttachment = client_before()
            attachment.oldest = begin
            return attachment

        self.make = make
        client = self.open()
        self.make = ResumableAttachment
        self.restart()
        self.open(client.resume().text())
        self.assertEqual(self.attachment.oldest, begin)

    def test_refused(self) -> None:
        """Others than the holder get the same answer as for a key that nobody knows."""
        client = self.open()
        self.restart()
        good = client.resume()
        for header, more in (
            (good, {"user": "bob"}),
            (good, {"uid": "uid-y"}),
            (replace(good, session="s9"), {}),
        ):
            self.assertEqual(self.refused(header.text(), **more), (404, NO_SESSION))
        self.assertEqual(self.refused(client.resume(1).text())[0], 400)
        self.problem = Conflict("the machine is powered off")
        self.assertEqual(self.refused(good.text()), (409, "the machine is powered off"))
        self.problem = None
        self.open(good.text())

    def test_other_machine(self) -> None:
        """A machine that was made again meanwhile has another journal, and so another session."""
        client = self.open()
        self.restart()
        self.make = MadeAgain
        self.assertEqual(self.refused(client.resume().text()), (404, NO_SESSION))

    def test_too_late(self) -> None:
        """Sessions of the earlier process wait as long as any other, from the start on."""
        client = self.open()
        self.restart()
        self.clock.advance(60)
        self.assertEqual(self.refused(client.resume().text()), (404, NO_SESSION))

    def test_other_secret(self) -> None:
        """Another runtime does not know the keys."""
        client = self.open()
        self.restart()
        self.server.kept_sessions.start(b"t" * 32)
        self.assertEqual(self.refused(client.resume().text()), (404, NO_SESSION))


class AuditTests(KeptCase):
    """Records of sessions that are lost and resumed."""

    def test_records(self) -> None:
        """The end of the lost connection says so; the start of the next names its session."""
        client = self.open()
        client.send(b"\0abc")
        client.lose()
        again = self.open(client.resume().text())
        again.send(b"\0de")
        again.leave()
        start, resumed = self.audit("start")
        self.assertNotIn("resumes", start)
        self.assertEqual((resumed["session"], resumed["resumes"]), (again.session, client.session))
        lost, left = self.audit("end")
        self.assertEqual(lost["reason"], "connection closed; may be resumed")
        self.assertEqual(left["reason"], "client closed")
        self.assertEqual((lost["bytes_to_machine"], left["bytes_to_machine"]), (3, 2))

    def test_superseded(self) -> None:
        """A connection that was superseded counts its own input only."""
        client = self.open()
        client.send(b"\0abc")
        again = self.open(client.resume().text())
        again.send(b"\0de")
        client.leave()
        again.leave()
        self.assertEqual([each["bytes_to_machine"] for each in self.audit("end")], [3, 2])


class StopTests(KeptCase):
    """A runtime that stops."""

    def test_stop(self) -> None:
        """Sessions end with the reason, also those that wait; nothing is left."""
        client, absent = self.open(), self.open()
        absent.lose()
        stopped = self.server.stopService()
        self.assertEqual(
            self.attachments[1].detached_with, ["the machine runtime is shutting down"]
        )
        self.assertEqual(self.attachments[0].detached_with, [SHUTTING_DOWN])
        self.assertIsInstance(client.hears()[-1], Ending)
        client.lose()
        self.successResultOf(stopped)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_lost_meanwhile(self) -> None:
        """A connection that is lost while the runtime stops ends its session."""
        client = self.open()
        self.attachment.transport.end(Ending(COMPLETED))  # its status waits for the client
        self.server.kept_sessions.close("the machine runtime is shutting down")
        client.lose()
        reason = "the machine runtime is shutting down"
        self.assertEqual(self.attachment.detached_with, [reason])


class LeakTests(KeptCase):
    """Many losses."""

    def cycle(self) -> None:
        """Open a session, resume it, supersede it, and give it up."""
        first = self.open()
        first.lose()
        second = self.open(first.resume().text())
        third = self.open(second.resume().text())
        second.leave()
        third.lose()
        self.clock.advance(61)
        self.attachments.clear()
        self.records.seek(0)
        self.records.truncate()

    def test_losses(self) -> None:
        """They leave nothing behind."""
        for _ in range(3):
            self.cycle()
        gc.collect()
        objects = len(gc.get_objects())
        for _ in range(100):
            self.cycle()
        gc.collect()
        self.assertLess(len(gc.get_objects()) - objects, 100)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual((len(self.server.sessions), self.cache._live), (0, {}))
