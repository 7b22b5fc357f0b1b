"""
Tests for :mod:`twisted_exec.runtimes.serving.server`, over real sockets.
"""

from __future__ import annotations

import gc
import io
import json
import os
from typing import Any
from urllib.parse import urlsplit

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import UNIXClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

from tests import soak
from tests.console.doubles import MemoryConsole
from tests.retained import entries
from tests.runtimes.support import RuntimeCase, User, open_console
from tests.tls.support import authority
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.console.notices import notice
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.iri.request_cache import Grant, RequestCache
from twisted_exec.iri.target import TargetError
from twisted_exec.program.audit_file import JSONLinesAudit
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.runtimes.serving import server as server_module
from twisted_exec.runtimes.serving.options import Listening
from twisted_exec.runtimes.serving.stream_server import StreamServer
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    INPUT_DENIED,
    MACHINE_DELETED,
    REVOKED,
    SHUTTING_DOWN,
    Ending,
    IAttachment,
    Role,
)
from twisted_exec.streaming.remotecommand.server import MAY_OBSERVE
from twisted_exec.streaming.sessions.hop_messages import terms_query
from twisted_exec.streaming.subject import Subject
from twisted_exec.tls.listening import BACKLOG
from twisted_exec.wire.session_terms import FULL, MAY_ONLY_OBSERVE, Right, Terms

UPGRADE = (
    "Host: localhost\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
)

AS_ANN = {"X_Twisted_Exec_User": "ann", "X_Twisted_Exec_Machine_Uid": "uid-x"}


class Raw(Protocol):
    """A connection that keeps what it reads."""

    def __init__(self) -> None:
        self.got = b""
        self.over: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.got += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.over.callback(None)


class StreamCase(RuntimeCase):
    """A stream server on a UNIX socket, before a session whose machine is the test."""

    def setUp(self) -> None:
        super().setUp()
        self.cache = RequestCache(reactor, ttl_seconds=3600)  # type: ignore[arg-type]
        self.console = MemoryConsole(paced=True)
        self.shared = SharedConsole(self.console, reactor)  # type: ignore[arg-type]
        self.shared.open()
        self.addCleanup(self.shared.end, Ending(SHUTTING_DOWN))
        self.records = io.StringIO()
        self.path = os.path.join(self.directory, "s", "stream.sock")
        self.gone = False

    def attach(self, grant: Grant) -> tuple[Subject, IAttachment]:
        if self.gone:
            raise NotFound("machines", grant.machine_id)
        subject = Subject(
            session="", namespace="default", machine="x", uid="uid-x", resource="machines.x"
        )
        return subject, self.shared.viewer()

    async def serve(self, listening: Listening | None = None, **options: Any) -> StreamServer:
        server = StreamServer(
            listening or Listening(f"unix:{self.path}"),
            self.attach,
            self.cache,
            JSONLinesAudit(self.records),
            reactor,
            **options,
        )
        await server.listen()
        server.startService()
        self.addCleanup(lambda: server.stopService() if server.running else None)
        self.server = server
        return server

    def token(self, **facts: str) -> str:
        return self.cache.insert(Grant("m", "uid-x", **{"user": "ann", "session": "s1", **facts}))

    async def open(self, token: str, **headers: str) -> User:
        user = await open_console(self.server.exec_url(token), **(AS_ANN | headers))
        self.addCleanup(lambda: user.stream.abort())
        return user

    async def refusal(self, token: str, **headers: str) -> APIError:
        try:
            await open_console(self.server.exec_url(token), **(AS_ANN | headers))
        except APIError as error:
            return error
        self.fail("the console was opened")

    async def ask(self, request: str, body: str = "") -> tuple[int, dict[str, Any]]:
        """Send a request as it is; :return: the answer's code and its JSON (or nothing)."""
        raw: Raw = await connectProtocol(UNIXClientEndpoint(reactor, self.path), Raw())
        assert raw.transport is not None
        close = "" if "Upgrade" in request else "Connection: close\r\n"
        raw.transport.write(f"{request}{close}\r\n{body}".encode())
        await raw.over
        head, _, content = raw.got.partition(b"\r\n\r\n")
        self.text = content.decode()
        return int(head.split()[1]), json.loads(content) if content.startswith(b"{") else {}

    def audit(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.records.getvalue().splitlines()]


class ConsoleTests(StreamCase):
    """A console that is opened with a token."""

    async def test_traffic(self) -> None:
        """Bytes in both directions, and a status at the end."""
        await self.serve()
        user = await self.open(self.token())
        self.console.says(b"=> ")
        await self.until(lambda: user.got == b"=> ")
        user.stream.write(b"version\r")
        await self.until(self.console.transport.value)
        self.assertEqual(self.console.heard(), b"version\r")
        self.shared.end(Ending(MACHINE_DELETED, 'machine "default/x" was deleted'))
        await self.until(lambda: user.gone)
        self.assertEqual(user.ending, Ending(MACHINE_DELETED, 'machine "default/x" was deleted'))

    async def test_input_ends(self) -> None:
        """The end of input ends the session well, after a while of quiet."""
        await self.serve()
        user = await self.open(self.token())
        user.stream.end_input()
        await self.until(lambda: user.ending)
        assert user.ending is not None
        self.assertEqual((user.ending.reason, user.ending.is_success), (COMPLETED, True))

    async def test_single_use(self) -> None:
        """A token opens one console."""
        await self.serve()
        token = self.token()
        await self.open(token)
        error = await self.refusal(token)
        self.assertEqual((error.code, error.reason), (404, "NotFound"))

    async def test_session_id(self) -> None:
        """The session's id is that of the Exec call, whatever the request says."""
        await self.serve()
        user = await self.open(self.token(), Audit_Id="other")
        self.assertEqual(user.stream.session, "s1")

    async def test_reason(self) -> None:
        """The reason that the poollet sends is on record; a malformed reason does not burn the token."""
        await self.serve()
        token = self.token()
        refused = await self.refusal(token, X_Twisted_Exec_Reason="a%0Ab")
        self.assertEqual(refused.code, 400)
        await self.open(token, X_Twisted_Exec_Reason="INC%207")
        self.assertEqual(self.audit()[-1]["declared_reason"], "INC 7")

    async def test_bound(self) -> None:
        """Another user or machine in the headers is as good as a wrong token, and does not burn it."""
        await self.serve()
        token = self.token(user="Zoë")
        for headers in (
            {"X_Twisted_Exec_User": "bob"},
            {"X_Twisted_Exec_User": "Zo%C3%AB", "X_Twisted_Exec_Machine_Uid": "uid-y"},
            {"X_Twisted_Exec_User": "%FF"},
        ):
            self.assertEqual((await self.refusal(token, **headers)).code, 404)
        await self.open(token, X_Twisted_Exec_User="Zo%C3%AB", X_Twisted_Exec_Machine_Uid="uid-x")

    async def test_machine_gone(self) -> None:
        """A machine that was deleted meanwhile is reported with the runtime's message."""
        await self.serve()
        token = self.token()
        self.gone = True
        self.assertEqual((await self.refusal(token)).code, 404)
        self.gone = False
        await self.open(token)

    async def test_too_many(self) -> None:
        """A user with too many sessions is refused, and the token is still good."""
        server = await self.serve()
        server.sessions.limits = SessionLimits(10, 1)
        first = await self.open(self.token())
        token = self.token()
        error = await self.refusal(token)
        self.assertEqual(error.code, 429)
        self.assertIsNotNone(error.retry_after_seconds)
        first.stream.leave()
        await self.until(lambda: not len(server.sessions))
        await self.open(token)


class ProbeTests(StreamCase):
    """Requests that are no complete handshake."""

    async def test_do_not_burn(self) -> None:
        """Probes and failed negotiations do not use a token up, and get a message."""
        await self.serve()
        token = self.token()
        for request, code in (
            (f"GET /exec/{token} HTTP/1.1\r\nHost: x\r\n", 400),
            (f"HEAD /exec/{token} HTTP/1.1\r\nHost: x\r\n", 400),
            (f"POST /exec/{token} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n", 400),
            (f"PUT /exec/{token} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n", 405),
            (f"GET /exec/{token}/ HTTP/1.1\r\nHost: x\r\n", 404),
            (f"GET /exec/{token} HTTP/1.0\r\n{UPGRADE}", 400),
            (f"GET /exec/{token} HTTP/1.1\r\n{UPGRADE.replace('v5.channel', 'v9.channel')}", 403),
            (f"GET /exec/{token} HTTP/1.1\r\n{UPGRADE.replace('13', '12')}", 400),
            (f"GET /exec/{token} HTTP/1.1\r\n{UPGRADE.replace('AAAA==', '')}", 400),
            (f"DELETE /exec/{token} HTTP/1.1\r\nHost: x\r\n", 400),
            (f"DELETE /exec/{token}?session=s1 HTTP/1.1\r\nHost: x\r\n", 404),
        ):
            result, status = await self.ask(request)
            self.assertEqual(result, code, request)
            if not request.startswith("HEAD"):
                self.assertEqual((status["kind"], status["code"]), ("Status", code))
        await self.open(token)

    async def test_ended_together(self) -> None:
        """One request ends further sessions, each by its own token, user and machine."""
        await self.serve()
        tokens = [self.token(session=f"s{number}") for number in range(3)]
        for token in tokens:
            await self.open(token)
        query = "reason=AuthorizationWithdrawn&message=m"

        def entry(number: int, path: str = "/exec/", **headers: str) -> dict[str, Any]:
            named = {name.replace("_", "-"): value for name, value in (AS_ANN | headers).items()}
            target = f"{path}{tokens[number]}?session=s{number}&{query}"
            return {"target": target, "headers": named}

        bob = entry(2, X_Twisted_Exec_User="bob")
        body = json.dumps({"requests": [entry(1), bob, entry(2, "/log/")]})
        head = "".join(f"{name}: {value}\r\n" for name, value in entry(0)["headers"].items())
        code, answer = await self.ask(
            f"DELETE /exec/{tokens[0]}?session=s0&{query} HTTP/1.1\r\nHost: x\r\n{head}"
            f"Content-Length: {len(body)}\r\n",
            body,
        )
        self.assertEqual((code, answer["details"]), (200, {"done": [0]}))
        ends = [each["session"] for each in self.audit() if each["event"] == "end"]
        self.assertEqual(set(ends) - {"s0", "s1"}, set())

    async def test_cross_site(self) -> None:
        """A page of another site opens nothing, and uses nothing up; sites that are named may."""
        dash = Listening(f"unix:{self.path}", allowed_origins=[b"https://dash.example"])
        await self.serve(dash)
        token = self.token()
        error = await self.refusal(token, origin="https://evil.example")
        self.assertEqual(error.code, 403)
        bearer = "base64url.bearer.authorization.k8s.io.eA, v5.channel.k8s.io"
        request = UPGRADE.replace("v5.channel.k8s.io", bearer) + "Origin: https://evil.example\r\n"
        code, _ = await self.ask(f"GET /exec/{token} HTTP/1.1\r\n{request}")
        self.assertEqual(code, 403)
        await self.open(token, origin="https://dash.example")
        await self.open(self.token(), origin="http://localhost")

    async def test_unknown(self) -> None:
        """A mistyped token is a JSON Status that does not repeat it."""
        await self.serve()
        code, status = await self.ask(f"GET /exec/mistyped HTTP/1.1\r\n{UPGRADE}")
        self.assertEqual((code, status["reason"]), (404, "NotFound"))
        self.assertEqual(status["message"], "unknown exec token: used, expired or mistyped")

    async def test_token_is_never_told(self) -> None:
        """Neither audit nor answers hold a token."""
        await self.serve()
        token = self.token()
        _, status = await self.ask(f"GET /exec/{token} HTTP/1.1\r\nHost: x\r\n")
        user = await self.open(token)
        user.stream.leave()
        await self.until(lambda: len(self.audit()) == 4)
        self.assertNotIn(token, json.dumps(status) + self.records.getvalue())

    async def test_probes(self) -> None:
        """Health, readiness and figures."""
        server = await self.serve()
        well = True

        def probe() -> None:
            if not well:
                raise OSError("disk full")

        server.health.add("state", probe)
        self.assertEqual((await self.ask("GET /healthz HTTP/1.1\r\nHost: x\r\n"))[0], 200)
        self.assertEqual((await self.ask("GET /readyz HTTP/1.1\r\nHost: x\r\n"))[0], 200)
        well = False
        while (await self.ask("GET /readyz HTTP/1.1\r\nHost: x\r\n"))[0] != 503:
            pass  # the last answer counts for a second
        self.assertIn("[-]state failed: disk full", self.text)
        self.assertEqual((await self.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n"))[0], 200)


class TermsTests(StreamCase):
    """Terms of a session, from the hop before."""

    async def change(self, token: str, terms: Terms, **headers: str) -> int:
        message = "".join(
            f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()
        )
        query = terms_query("s1", terms).decode()
        code, _ = await self.ask(f"PATCH /exec/{token}?{query} HTTP/1.1\r\nHost: x\r\n{message}")
        return code

    async def test_observer(self) -> None:
        """
        Who may only observe is attached as an observer; typing and taking over are answered with a
        notice, and a script ends with the reason.
        """
        await self.serve()
        user = await self.open(self.token(), X_Twisted_Exec_Terms="right=observe")
        await self.until(lambda: bytes(user.got) == notice(MAY_ONLY_OBSERVE))
        user.stream.wish(Role.WRITER)
        await self.until(lambda: bytes(user.got) == notice(MAY_ONLY_OBSERVE) * 2)
        user.stream.write(b"reboot\n")
        user.stream.end_input()
        await self.until(lambda: user.ending)
        self.assertTrue(user.got.endswith(MAY_OBSERVE.output))
        self.assertEqual(
            user.ending, Ending(INPUT_DENIED, f"the input was not sent: {MAY_ONLY_OBSERVE}")
        )
        self.assertEqual(self.console.transport.value(), b"")

    async def test_people(self) -> None:
        """
        Input needs a second user; it stops in the turn in which the session of that user is ended.
        """
        server = await self.serve()
        ann = await self.open(self.token(), X_Twisted_Exec_Terms="people=2&policy=default%2Feyes")
        bob = await self.open(
            self.token(user="bob", session="s2"),
            X_Twisted_Exec_User="bob",
            X_Twisted_Exec_Terms="right=observe&people=2",
        )
        await self.until(lambda: b"the machine gets input now" in ann.got)
        ann.stream.write(b"a")
        await self.until(lambda: self.console.transport.value() == b"a")
        self.assertEqual(self.shared.missing_people, "")
        server.sessions.end(lambda subject: subject.user == "bob", Ending(REVOKED, "why"))
        self.assertIn("needs 2 people", self.shared.missing_people)
        ann.stream.write(b"b")
        await self.until(lambda: b"not sent: ConsolePolicy default/eyes needs 2" in ann.got)
        self.assertEqual(self.console.transport.value(), b"a")
        await self.until(lambda: bob.ending)
        self.assertEqual(bob.ending, Ending(REVOKED, "why"))
        ann.stream.leave()
        await self.until(lambda: not len(server.sessions))
        counts = {each["user"]: each.get("bytes_to_machine") for each in self.audit()}
        self.assertEqual(counts, {"ann": 1, "bob": 0}, "input that was discarded counts as sent")

    async def test_viewers(self) -> None:
        """
        A session too many is refused at once, for clients would wait in vain: with a message, and
        its token is not used up.
        """
        server = await self.serve()
        few = {"X_Twisted_Exec_Terms": "viewers=1&policy=default%2Ffew"}
        first = await self.open(self.token(), **few)
        token = self.token()
        error = await self.refusal(token, **few)
        self.assertEqual((error.code, error.retry_after_seconds), (429, None))
        self.assertTrue(
            error.message.startswith(
                "ConsolePolicy default/few allows 1 session at this console, and 1 is open"
            )
        )
        self.assertEqual(len(server.sessions), 1)
        self.assertEqual(self.audit()[-1]["reason"], error.message)
        first.stream.leave()
        await self.until(lambda: not self.shared.viewers)
        await self.open(token, **few)

    async def test_confirmed(self) -> None:
        """The 101 repeats the terms; without terms it has no such header."""
        await self.serve()
        for terms, answer in (
            ("right=observe&people=1", b"right=observe"),
            ("right=drive\r\nX-Twisted-Exec-Terms: viewers=3", b"right=drive&viewers=3"),
            ("", None),
        ):
            raw: Raw = await connectProtocol(UNIXClientEndpoint(reactor, self.path), Raw())
            head = "".join(f"{key.replace('_', '-')}: {value}\r\n" for key, value in AS_ANN.items())
            head += f"X-Twisted-Exec-Terms: {terms}\r\n" if terms else ""
            request = f"GET /exec/{self.token()} HTTP/1.1\r\n{UPGRADE}{head}\r\n"
            raw.transport.write(request.encode())
            await self.until(lambda raw=raw: b"\r\n\r\n" in raw.got)
            lines = raw.got.partition(b"\r\n\r\n")[0].split(b"\r\n")
            headers = dict(line.lower().split(b": ", 1) for line in lines[1:])
            self.assertEqual(headers.get(b"x-twisted-exec-terms"), answer)
            raw.transport.abortConnection()
            await raw.over

    async def test_unknown(self) -> None:
        """A session with terms of a later release is refused, and its token is not used up."""
        await self.serve()
        token = self.token()
        error = await self.refusal(token, X_Twisted_Exec_Terms="colour=blue")
        self.assertEqual(error.code, 400)
        self.assertIn("this release does not know the term 'colour'", error.message)
        await self.open(token)

    async def test_changed(self) -> None:
        """Input ends with the right to drive; with that right again, its user may ask for the floor."""
        await self.serve()
        token = self.token()
        user = await self.open(token)
        user.stream.write(b"a")
        await self.until(lambda: self.console.transport.value() == b"a")
        self.assertEqual(await self.change(token, Terms(right=Right.OBSERVE)), 200)
        user.stream.write(b"b")
        await self.until(lambda: b"not sent: you may only observe" in user.got)
        self.assertEqual(await self.change(token, FULL), 200)
        await self.until(lambda: b"you may type at this console again" in user.got)
        user.stream.wish(Role.WRITER)
        user.stream.write(b"c")
        await self.until(lambda: self.console.transport.value() == b"ac")
        self.assertEqual(await self.change(token, FULL, X_Twisted_Exec_User="bob"), 404)
        self.assertEqual(await self.change("mistyped", FULL), 404)


class EndTests(StreamCase):
    """``DELETE`` of the path ends its stream."""

    async def delete(self, token: str, session: str = "s1", **headers: str) -> int:
        message = "".join(
            f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()
        )
        query = f"session={session}&reason={REVOKED}&message=access+was+withdrawn"
        code, _ = await self.ask(f"DELETE /exec/{token}?{query} HTTP/1.1\r\nHost: x\r\n{message}")
        return code

    async def test_end(self) -> None:
        """The user reads the reason; only once, and others go on."""
        await self.serve()
        token = self.token()
        user, other = await self.open(token), await self.open(self.token(session="s2"))
        self.assertEqual(await self.delete(token), 200)
        await self.until(lambda: user.gone)
        self.assertEqual(user.ending, Ending(REVOKED, "access was withdrawn"))
        self.assertEqual(await self.delete(token), 404)
        self.assertIsNone(other.ending)

    async def test_others_may_not(self) -> None:
        """Another session's id, or another user, ends nothing."""
        await self.serve()
        token = self.token()
        user = await self.open(token)
        self.assertEqual(await self.delete(token, session="s9"), 404)
        self.assertEqual(await self.delete(token, X_Twisted_Exec_User="bob"), 404)
        self.assertEqual(await self.delete("mistyped"), 404)
        self.assertIsNone(user.ending)


class AuditTests(StreamCase):
    """One start and one end for each session."""

    async def test_session(self) -> None:
        """The audit record has user, machine, duration, bytes and reason."""
        await self.serve()
        user = await self.open(self.token())
        self.console.says(b"12345")
        user.stream.write(b"abc")
        await self.until(lambda: len(user.got) == 5 and self.console.transport.value())
        self.shared.end(Ending(MACHINE_DELETED))
        await self.until(lambda: user.gone and len(self.audit()) == 2)
        start, end = self.audit()
        for record in (start, end):
            self.assertEqual(record["hop"], "runtime")
            for key, value in (
                ("session", "s1"),
                ("user", "ann"),
                ("namespace", "default"),
                ("machine", "x"),
                ("uid", "uid-x"),
                ("resource", "machines.x"),
            ):
                self.assertEqual(record[key], value)
        self.assertEqual((start["event"], end["event"]), ("start", "end"))
        self.assertEqual((end["bytes_to_machine"], end["bytes_to_user"]), (3, 5))
        self.assertEqual(end["reason"], MACHINE_DELETED)

    async def test_refused(self) -> None:
        """Refusals are on record, with their code."""
        await self.serve()
        await self.refusal("mistyped", X_Twisted_Exec_User="ann", Audit_Id="s7")
        start, end = self.audit()
        self.assertEqual((start["session"], start["user"]), ("s7", "ann"))
        self.assertEqual((end["event"], end["code"]), ("end", 404))


class StopTests(StreamCase):
    """A server that stops."""

    async def test_28_drains(self) -> None:
        """Sessions are ended with the reason, then nothing listens any more."""
        server = await self.serve()
        user = await self.open(self.token())
        await server.stopService()
        await self.until(lambda: user.gone)
        assert user.ending is not None
        self.assertEqual(user.ending.reason, SHUTTING_DOWN)
        self.assertFalse(os.path.exists(self.path))

    async def test_cuts(self) -> None:
        """A user that does not read is cut when the time is over."""
        server = await self.serve(drain_seconds=0.3)
        user = await self.open(self.token())
        user.stream.transport.pauseProducing()
        self.console.says(bytes(400 << 10))
        await server.stopService()
        await self.until(lambda: not len(server.sessions))
        user.stream.abort()


class ListeningTests(StreamCase):
    """Addresses."""

    async def test_unix(self) -> None:
        """A private socket, whose path is in the URL."""
        server = await self.serve()
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(os.path.dirname(self.path)).st_mode & 0o777, 0o700)
        # Linux does not tell the backlog of a UNIX socket.
        self.assertEqual(server._port.backlog, BACKLOG)
        encoded = self.path.replace("/", "%2F")
        self.assertEqual(server.exec_url("T"), f"http+unix://{encoded}/exec/T")

    async def test_stranger(self) -> None:
        """A user who is not named is refused at the socket."""
        await self.serve()
        self.patch(server_module, "peer_uid", lambda _: os.getuid() + 1)
        self.assertEqual((await self.refusal(self.token())).code, 403)

    async def test_loopback(self) -> None:
        """On loopback no certificate is needed."""
        server = await self.serve(Listening("tcp:0:interface=127.0.0.1"))
        url = urlsplit(server.exec_url("T"))
        self.assertEqual((url.scheme, url.hostname), ("http", "127.0.0.1"))
        self.assertGreater(url.port or 0, 0)

    async def test_in_the_clear(self) -> None:
        """Elsewhere one is."""
        with self.assertRaises(TargetError):
            await self.serve(Listening("tcp:0"))

    async def test_all_addresses(self) -> None:
        """A server on all addresses needs a base URL; it can be stopped after the refusal."""
        issued = authority("serving").issue_server(["localhost"])
        certificate = os.path.join(self.directory, "tls.crt")
        key = os.path.join(self.directory, "tls.key")
        issued.write(certificate, key)
        listening = Listening("tcp:0", certificate=certificate, key=key)
        server = StreamServer(
            listening, self.attach, self.cache, JSONLinesAudit(self.records), reactor
        )
        with self.assertRaises(TargetError) as caught:
            await server.listen()
        self.assertIn("a server on all addresses needs a base URL", str(caught.exception))
        await server.stopService()

    async def test_base_url(self) -> None:
        """A base URL may have a path, with or without a final slash."""
        listening = Listening(f"unix:{self.path}", base_url="https://h.example:8443/runtime/")
        server = await self.serve(listening)
        self.assertEqual(server.exec_url("T"), "https://h.example:8443/runtime/exec/T")


class LeakTests(StreamCase):
    """Many sessions."""

    async def test_sessions(self) -> None:
        """Opened and ended from every side, they leave no descriptor and no object."""
        server = await self.serve()
        ways: list[Any] = [
            lambda user: user.stream.leave(),
            lambda user: user.stream.abort(),
            lambda user: server.sessions.end(lambda _: True, Ending(REVOKED)),
        ]
        for way in ways:  # caches reach their size
            await self.one(way)
        gc.collect()
        descriptors, objects = len(os.listdir("/proc/self/fd")), len(gc.get_objects())
        sessions = soak.figure(self)
        for number in range(sessions):
            await self.one(ways[number % len(ways)])
        gc.collect()
        await self.until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)
        self.assertEqual(self.shared.viewers, ())
        self.assertEqual(self.cache.outstanding, 0)
        self.assertEqual(entries(self.cache), 0)
        # Other parts of the process keep some hundred; a session that is kept has dozens.
        self.assertLess(len(gc.get_objects()) - objects, 1000 + sessions)

    async def one(self, end: Any) -> None:
        self.records.seek(0)
        self.records.truncate()
        user = await open_console(self.server.exec_url(self.token()), **AS_ANN)
        self.console.says(b"x")
        end(user)
        await self.until(lambda: user.gone and not len(self.server.sessions))
