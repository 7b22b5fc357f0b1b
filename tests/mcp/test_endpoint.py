"""Tests for :mod:`twisted_exec.mcp.endpoint`: requests of clients, and of attackers."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.cli.mcp.test_protocol import SmallTools, notification, request
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.tokens import ITokenAuthenticator
from twisted_exec.cli.mcp.messages import INVALID_REQUEST, MESSAGE, METHOD_NOT_FOUND, PARSE_ERROR
from twisted_exec.cli.mcp.protocol import VERSIONS, ServerSession
from twisted_exec.mcp.endpoint import ALIVE_SECONDS, METADATA, Endpoint
from twisted_exec.mcp.sessions import Limits, Sessions
from twisted_exec.mcp.turns import AT_ONCE_PER_PERSON
from twisted_exec.mcp.users import Caller, Users
from twisted_exec.testing.network import MemoryServer, Response
from twisted_exec.wire.cross_site import read_origin

URL = "https://mcp.example.org/mcp"
USERS = {
    b"ada": User("ada", ("dev",)),
    b"bob": User("bob"),
    b"root": User("x", ("system:masters",)),
}
SHORT, SHORT_SECONDS = b"short", 1.0
"""A token of ada that expires after this time."""


@implementer(ITokenAuthenticator)
class Tokens:
    """Knows the tokens of :data:`USERS`, and :data:`SHORT`."""

    def authenticate_token(self, token: bytes) -> Deferred[User | None]:
        user = USERS.get(token)
        if token == SHORT:
            user = replace(USERS[b"ada"], expires=time.time() + SHORT_SECONDS)
        return succeed(user)


class EndpointCase(SynchronousTestCase):
    """A door with small tools."""

    limits = Limits()
    ids = 0

    def setUp(self) -> None:
        self.tools: list[SmallTools] = []
        self.server = MemoryServer(None, max_body_bytes=MESSAGE.size_bytes)  # type: ignore[arg-type]
        clock = self.server.clock
        self.sessions = Sessions(self.limits, self.make, clock)
        self.server.site.resource = Endpoint(
            URL,
            ["https://idp.example.org"],
            Users(Tokens()),
            self.sessions,
            clock,
            [read_origin("https://page.example.org")],
        )

    def make(self, caller: Caller) -> ServerSession:
        self.tools.append(SmallTools())
        return ServerSession(self.tools[-1])

    def headers(self, token: str, session: str = "", **more: str) -> list[tuple[str, str]]:
        headers = [
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ]
        if token:
            headers.append(("Authorization", f"Bearer {token}"))
        if session:
            headers.append(("Mcp-Session-Id", session))
        given = {name.replace("_", "-"): value for name, value in more.items()}
        kept = [each for each in headers if each[0] not in given]
        return [*kept, *((name, value) for name, value in given.items() if value)]

    def post(self, raw: bytes, token: str = "ada", session: str = "", **more: str) -> Response:
        return self.server.request("POST", "/mcp", raw, self.headers(token, session, **more))

    def begin(self, token: str = "ada") -> str:
        response = self.post(request("initialize", protocolVersion=VERSIONS[0]), token)
        self.assertEqual(response.code, 200)
        return response.headers["mcp-session-id"]

    def call(self, name: str, session: str, token: str = "ada") -> Any:
        """Begin a call whose response comes later; return the connection."""
        client = self.server.connect()
        self.ids += 1
        raw = request("tools/call", self.ids, name=name, arguments={})
        lines = ["POST /mcp HTTP/1.1", "Host: x", f"Content-Length: {len(raw)}"]
        lines += [f"{key}: {value}" for key, value in self.headers(token, session)]
        client.send("\r\n".join([*lines, "", ""]).encode() + raw)
        return client


class ClientTests(EndpointCase):
    """Clients that follow the specification."""

    def test_session(self) -> None:
        """A session begins with initialize, has calls, and ends with DELETE."""
        session = self.begin()
        accepted = self.post(notification("notifications/initialized"), session=session)
        self.assertEqual((accepted.code, accepted.body), (202, b""))
        response = self.post(
            request("tools/call", 2, name="echo", arguments={"a": 1}),
            session=session,
            Mcp_Protocol_Version=VERSIONS[0],
        )
        self.assertEqual(response.json()["result"]["content"][0]["text"], '{"a": 1}')
        deleted = self.server.request("DELETE", "/mcp", b"", self.headers("ada", session))
        self.assertEqual(deleted.code, 204)
        self.assertTrue(self.tools[0].is_closed)
        self.assertEqual(self.post(request("ping"), session=session).code, 404)

    def test_long_call(self) -> None:
        """A call that waits is a stream with comments, and its response the only event."""
        client = self.call("wait", self.begin())
        self.server.clock.advance(ALIVE_SECONDS)
        self.server.clock.advance(ALIVE_SECONDS)
        self.tools[0].waiting[0].callback(None)
        (response,) = client.responses("POST")
        self.assertEqual(response.headers["content-type"], "text/event-stream")
        comments, _, event = response.body.decode().partition("event: message\ndata: ")
        self.assertEqual(comments, ": waiting\n\n" * 2)
        self.assertEqual(json.loads(event)["id"], 1)
        self.assertTrue(event.endswith("\n\n"))

    def test_cancelled(self) -> None:
        """The cancellation of a call comes in a request of its own, and ends the call's stream."""
        session = self.begin()
        client = self.call("wait", session)
        self.post(notification("notifications/cancelled", requestId=1), session=session)
        (response,) = client.responses("POST")
        self.assertNotIn(b"data:", response.body)
        self.assertEqual(self.tools[0].cancelled, 1)
        self.assertEqual(self.sessions.requests_of(Caller("ada", ("dev",))), 0)

    def test_client_leaves(self) -> None:
        """A client that leaves cancels its call, whose turn another one gets."""
        client = self.call("wait", self.begin())
        client.lose()
        self.assertEqual(self.tools[0].cancelled, 1)
        self.assertEqual(self.sessions.requests_of(Caller("ada", ("dev",))), 0)
        self.server.clock.advance(ALIVE_SECONDS)

    def test_token_expires(self) -> None:
        """A call that waits ends when its token does, with the reason; another token goes on."""
        session = self.begin()
        old, new = self.call("wait", session, "short"), self.call("wait", session)
        self.server.clock.advance(SHORT_SECONDS)
        (response,) = old.responses("POST")
        result = json.loads(response.body)["result"]
        self.assertTrue(result["isError"])
        self.assertIn("token for this server has expired", result["content"][0]["text"])
        self.assertEqual(self.tools[0].cancelled, 1)
        self.tools[0].waiting[1].callback(None)
        self.assertIn('"isError":false', new.responses("POST")[0].body.decode())

    def test_token_expires_in_the_queue(self) -> None:
        """A call that waits for its turn ends, too, and has no turn later."""
        session = self.begin()
        working = [self.call("wait", session) for _ in range(AT_ONCE_PER_PERSON)]
        queued = self.call("echo", session, "short")
        self.server.clock.advance(SHORT_SECONDS)
        self.assertIn(b"has expired", queued.responses("POST")[0].body)
        self.assertEqual(self.tools[0].cancelled, 0)
        for each in working:
            each.lose()

    def test_metadata(self) -> None:
        """Anybody may read where tokens for this resource come from."""
        for path in (METADATA, f"{METADATA}/mcp"):
            document = self.server.request("GET", path).json()
            self.assertEqual(document["resource"], URL)
            self.assertEqual(document["authorization_servers"], ["https://idp.example.org"])

    def test_get(self) -> None:
        """There is no stream from the server: a client asks, and goes on without."""
        response = self.server.request("GET", "/mcp", b"", self.headers("ada", self.begin()))
        self.assertEqual((response.code, response.headers["allow"]), (405, "DELETE, POST"))

    def test_discovery_of_newer_clients(self) -> None:
        """A client of a newer revision learns that there is no such method, and takes an older one."""
        response = self.post(request("server/discover"), Mcp_Protocol_Version="2026-07-28")
        self.assertEqual(response.json()["error"]["code"], METHOD_NOT_FOUND)


class AttackTests(EndpointCase):
    """Requests of attackers."""

    def test_no_token(self) -> None:
        """Without a valid token there is a challenge that names the metadata, and nothing else."""
        for token, error in (("", ""), ("unknown", 'error="invalid_token", ')):
            response = self.post(request("initialize", protocolVersion=VERSIONS[0]), token)
            self.assertEqual(response.code, 401)
            url = f"https://mcp.example.org{METADATA}/mcp"
            self.assertEqual(
                response.headers["www-authenticate"], f'Bearer {error}resource_metadata="{url}"'
            )
        self.assertEqual(len(self.sessions), 0)

    def test_reserved(self) -> None:
        """A token with a group of Kubernetes itself is refused."""
        response = self.post(request("initialize", protocolVersion=VERSIONS[0]), "root")
        self.assertEqual(response.code, 403)
        self.assertEqual(len(self.sessions), 0)

    def test_session_of_another(self) -> None:
        """Another user's session is not found: not to call, not to cancel, not to end."""
        session = self.begin()
        waiting = self.call("wait", session)
        for raw in (
            request("tools/call", 9, name="echo", arguments={}),
            request("ping", 9),
            notification("notifications/cancelled", requestId=1),
        ):
            self.assertEqual(self.post(raw, "bob", session).code, 404)
        deleted = self.server.request("DELETE", "/mcp", b"", self.headers("bob", session))
        self.assertEqual(deleted.code, 404)
        self.assertEqual(self.tools[0].cancelled, 0)
        self.tools[0].waiting[0].callback(None)
        self.assertEqual(waiting.responses("POST")[0].code, 200)

    def test_other_origins(self) -> None:
        """A page of another site is refused, also with a token and with a name that leads to this host."""
        for origin, code in (
            ("https://evil.example", 403),
            ("http://mcp.example.org", 403),
            ("https://mcp.example.org:444", 403),
            ("null", 403),
            ("x", 403),
            ("https://mcp.example.org", 200),
            ("https://page.example.org", 200),
        ):
            raw = request("initialize", protocolVersion=VERSIONS[0])
            response = self.post(raw, Origin=origin)
            self.assertEqual(response.code, code, origin)

    def test_bad_bodies(self) -> None:
        """Bad JSON is an error of the protocol, and a body that is too large is not read."""
        session = self.begin()
        for raw, code in (
            (b"{", PARSE_ERROR),
            (b"[" * 1000, PARSE_ERROR),
            (b"[" + request("ping") + b"]", INVALID_REQUEST),
            (b'"x"', INVALID_REQUEST),
        ):
            response = self.post(raw, session=session)
            self.assertEqual((response.code, response.json()["error"]["code"]), (400, code))
        self.assertEqual(self.post(b"x" * (MESSAGE.size_bytes + 1), session=session).code, 413)
        self.assertEqual(
            self.post(request("ping"), session=session, Content_Type="text/plain").code, 415
        )

    def test_bad_heads(self) -> None:
        """A request without a session, with a made-up one, or of an unknown revision is refused."""
        session = self.begin()
        self.assertEqual(self.post(request("tools/list")).code, 400)
        self.assertEqual(self.post(notification("notifications/initialized")).code, 400)
        self.assertEqual(self.post(request("ping"), session="x" * 5000).code, 404)
        for version in ("2024-11-05", "2026-07-28", "x"):
            response = self.post(request("ping"), session=session, Mcp_Protocol_Version=version)
            self.assertEqual(response.code, 400)
        self.assertEqual(self.server.request("GET", "/other").code, 404)
        self.assertEqual(self.server.request("PUT", "/mcp", b"", self.headers("ada")).code, 405)

    def test_refused_initialize(self) -> None:
        """An initialize that fails leaves no session behind."""
        response = self.post(request("initialize"))
        self.assertNotIn("mcp-session-id", response.headers)
        self.assertEqual(len(self.sessions), 0)


class FloodTests(EndpointCase):
    """A user who asks for too much."""

    limits = Limits(sessions_per_user=2, calls_per_user=3)

    def test_calls(self) -> None:
        """Calls beyond a user's limit are refused at once; another user's are not."""
        session = self.begin()
        waiting = [self.call("wait", session) for _ in range(3)]
        self.assertEqual(self.call("echo", session).responses("POST")[0].code, 429)
        other = self.begin("bob")
        self.assertEqual(self.call("echo", other, "bob").responses("POST")[0].code, 200)
        for client in waiting:
            client.lose()
        self.assertEqual(self.call("echo", session).responses("POST")[0].code, 200)

    def test_sessions(self) -> None:
        """Sessions that a user leaves behind end with the next ones."""
        ids = [self.begin() for _ in range(10)]
        self.assertEqual(len(self.sessions), 2)
        self.assertEqual(
            [self.post(request("ping"), session=each).code for each in ids[-2:]], [200, 200]
        )
