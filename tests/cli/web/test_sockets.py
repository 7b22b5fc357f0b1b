"""Tests for :mod:`twisted_exec.cli.web.sockets`."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

from twisted.internet.defer import Deferred

from tests.cli.web.support import HOST, PAGES, PORT, LocalCase
from tests.cli.web.test_forwarding import Nowhere
from tests.streaming.raw import Raw
from twisted_exec.api.status import Forbidden
from twisted_exec.cli.web import sockets
from twisted_exec.cli.web.server import LocalServer
from twisted_exec.streaming.http.responses import respond_status
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_server import take_over
from twisted_exec.wire.upgrade import accept_key, switching_protocols

EXEC = f"{PAGES}/vm/exec?stdin=true&stdout=true&tty=true"
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
CLOSE = b"\x88"


def bearer(token: str) -> str:
    """The subprotocol that carries a token."""
    encoded = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    return f"base64url.bearer.authorization.k8s.io.{encoded}"


class _Sockets(LocalCase):
    """
    A page that opens WebSockets.

    :ivar ends: the API server's ends.
    """

    def setUp(self) -> None:
        super().setUp()
        self.ends: list[Raw] = []
        self.chosen = "v5.channel.k8s.io"

        def accept(request: Request) -> None:
            key = request.requestHeaders.getRawHeaders("sec-websocket-key")[0].encode()
            headers = [(b"Sec-WebSocket-Accept", accept_key(key)), (b"Set-Cookie", b"evil")]
            headers.append((b"Sec-WebSocket-Protocol", self.chosen.encode()))
            end = Raw()
            take_over(request, end, switching_protocols(b"websocket", headers))
            self.ends.append(end)

        self.cluster.answer = accept

    def open(self, *lines: str, protocols: str = "", target: str = EXEC) -> Raw:
        offered = protocols or f"{bearer(self.local.login.token)}, v5.channel.k8s.io, resume.x"
        return self.request(
            target,
            "Connection: keep-alive, Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {KEY}",
            f"Sec-WebSocket-Protocol: {offered}",
            *(lines or (f"Origin: http://{HOST}",)),
        )


class SocketTests(_Sockets):
    """Sessions and watches."""

    def test_opened(self) -> None:
        """The handshake passes without the token and the origin, with the kubeconfig's credentials."""
        page = self.open()
        self.assertEqual(page.code, 101)
        headers = self.headers(page)
        self.assertEqual(headers["sec-websocket-protocol"], "v5.channel.k8s.io")
        self.assertEqual(headers["sec-websocket-accept"], accept_key(KEY.encode()).decode())
        self.assertNotIn("set-cookie", headers)
        [(method, target, sent, _)] = self.cluster.requests
        self.assertEqual((method, target), ("GET", EXEC))
        self.assertEqual(sent["sec-websocket-protocol"], ["v5.channel.k8s.io, resume.x"])
        self.assertEqual(sent["authorization"], ["Bearer of-the-kubeconfig"])
        self.assertNotIn("origin", sent)
        self.assertNotIn(self.local.login.token, str(sent))

    def test_spliced(self) -> None:
        """Bytes pass both ways, and so do the ends."""
        page = self.open()
        page.transport.write(b"\x82\x85maskinput")
        self.ends[0].transport.write(b"\x82\x06output")
        self.network.pump()
        self.assertEqual(self.ends[0].received, b"\x82\x85maskinput")
        self.assertEqual(page.body, b"\x82\x06output")
        page.transport.loseConnection()
        self.network.pump()
        self.ends[0].transport.loseConnection()
        self.network.pump()
        self.assertIsNotNone(self.ends[0].lost)

    def test_early_bytes(self) -> None:
        """Bytes behind the handshake are not lost."""
        page = self.connect()
        lines = [
            f"GET {EXEC} HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket",
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n{self.bearer()}",
            "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
        ]
        page.transport.write("\r\n".join(lines).encode() + b"\x82\x81mask\x00")
        self.network.pump()
        self.assertEqual(self.ends[0].received, b"\x82\x81mask\x00")

    def test_resumed(self) -> None:
        """What a page says to resume its session passes; it reads why it is refused, here and by the server."""
        resume = "base64url.resume.console.twisted-exec.bWFya3M"
        protocols, stale = (
            f"{bearer(token)}, v5.channel.k8s.io, {resume}"
            for token in (self.local.login.token, "stale")
        )
        self.open(protocols=protocols)
        self.assertEqual(
            self.cluster.requests[-1][2]["sec-websocket-protocol"], [f"v5.channel.k8s.io, {resume}"]
        )
        self.cluster.answer = lambda request: respond_status(request, Forbidden("not you"))
        for offered, code in ((protocols, 403), (stale, 401)):
            page = self.open(protocols=offered)
            self.assertEqual(page.code, 101)
            self.assertIn(b'\3{"kind":"Status"', page.body)
            self.assertIn(b'"code":%d' % code, page.body)
        self.assertEqual(self.open("Origin: http://evil.example", protocols=protocols).code, 403)

    def test_lost(self) -> None:
        """If the API server is lost, the connection ends without a Close: the page resumes."""
        page = self.open()
        self.ends[0].transport.abortConnection()
        self.network.pump()
        page.transport.loseConnection()  # as a browser answers an end
        self.network.pump()
        self.assertEqual(page.body, b"")
        self.assertIsNotNone(page.lost)

    def test_token(self) -> None:
        """Without the token, with a wrong one, or with nothing beside it, nothing is opened."""
        good = bearer(self.local.login.token)
        for protocols, code in (
            ("v5.channel.k8s.io", 401),
            (f"v5.channel.k8s.io, {bearer('x')}", 401),
            (f"v5.channel.k8s.io, {bearer(self.local.login.new_secret())}", 401),
            (f"{good}, {good}, v5.channel.k8s.io", 400),
            (good, 400),
            (f"{good}!, v5.channel.k8s.io", 400),
        ):
            self.assertEqual(self.open(protocols=protocols).code, code, protocols)
        query = f"{EXEC}&access_token={self.local.login.token}"
        self.assertEqual(self.open(protocols="v5.channel.k8s.io", target=query).code, 401)
        self.assertEqual(self.cluster.requests, [])

    def test_other_sites(self) -> None:
        """A page of another site opens no WebSocket, even with the token."""
        for line in (
            "Origin: http://evil.example",
            "Origin: null",
            f"Origin: http://127.0.0.1:{PORT + 1}",
            f"Origin: https://{HOST}",
            "Sec-Fetch-Site: cross-site",
        ):
            self.assertEqual(self.open(line).code, 403, line)
        self.assertEqual(self.cluster.requests, [])

    def test_no_handshake(self) -> None:
        """An incomplete handshake is refused here."""
        lines = ("Connection: Upgrade", "Upgrade: websocket", self.bearer())
        self.assertEqual(self.request(EXEC, *lines).code, 400)

    def test_refused(self) -> None:
        """A refusal of the API server reaches the page as it is."""
        refusal = Forbidden("ann may not drive vm")
        self.cluster.answer = lambda request: respond_status(request, refusal)
        self.assertEqual(self.status(self.open()), (403, "ann may not drive vm"))

    def test_other_protocol(self) -> None:
        """An API server that chooses a protocol that was not offered is not believed."""
        self.chosen = "v9.odd"
        self.assertEqual(self.status(self.open())[0], 502)

    def test_unreachable(self) -> None:
        """Without an API server the page gets a Status with the remedy."""
        self.local = LocalServer(lambda: self.config, {}, self.clock, server=Nowhere())
        self.local.serve_at(PORT)
        code, message = self.status(self.open())
        self.assertEqual(code, 502)
        self.assertIn("connection refused; check the network", message)

    def test_request_timeout(self) -> None:
        """An API server that does not answer in the time of --request-timeout is a Status."""
        self.serve(timeout_seconds=5)
        self.cluster.answer = lambda request: None
        page = self.open()
        self.clock.advance(5)
        self.network.pump()
        self.assertEqual(self.status(page)[0], 504)

    def test_no_credentials(self) -> None:
        """Credentials that are missing now are a Status, too."""
        self.config = replace(self.config, token="", token_file="/nonexistent/token")
        code, message = self.status(self.open())
        self.assertEqual(code, 502)
        self.assertIn("/nonexistent/token", message)

    def test_left(self) -> None:
        """A page that leaves before the answer leaves nothing open."""
        waiting: list[Request] = []
        self.cluster.answer = waiting.append
        page = self.open()
        page.transport.abortConnection()
        self.network.pump()
        self.assertTrue(waiting[0].gone)

    def test_most(self) -> None:
        """The number of WebSockets is limited; a closed one makes room."""
        self.patch(sockets, "MOST_SOCKETS", 2)
        first, _ = self.open(), self.open()
        code, message = self.status(self.open())
        self.assertEqual(code, 503)
        self.assertIn("close some tabs", message)
        first.transport.abortConnection()
        self.network.pump()
        self.clock.advance(sockets.TIMEOUT_SECONDS)
        self.network.pump()
        self.assertEqual(self.open().code, 101)


class EndTests(_Sockets):
    """The end of the program."""

    def closing(self) -> Deferred[None]:
        ended = Deferred.fromCoroutine(self.local.close())
        self.network.pump()
        return ended

    def test_told(self) -> None:
        """
        The page gets the status of the session and one Close; the browser's answer reaches the API
        server, which ends the session.
        """
        page = self.open()
        ending = self.closing()
        status, close = page.body[:-4], page.body[-4:]
        self.assertEqual((status[:2], close), (b"\x82\x7e", CLOSE + b"\x02\x03\xe8"))
        self.assertEqual(json.loads(status[5:])["reason"], "WebConsoleStopped")
        self.assertIn(b"was stopped", status)
        page.transport.write(b"\x88\x82mask\x8e\x88")
        self.network.pump()
        self.assertEqual(self.ends[0].received, b"\x88\x82mask\x8e\x88")
        told = page.body
        self.ends[0].transport.write(CLOSE + b"\x02\x03\xe8")  # the API server's answer
        self.network.pump()
        self.assertEqual(page.body, told, "browsers complain about a second Close")
        for end in (self.ends[0], page):
            end.transport.loseConnection()
            self.network.pump()
        self.successResultOf(ending)

    def test_watch(self) -> None:
        """A watch has no status: the reason is in the Close."""
        self.chosen = ""
        token = f"{bearer(self.local.login.token)}, x"
        page = self.open(protocols=token, target=f"{PAGES}?watch=true")
        self.assertEqual(page.code, 502)
        self.chosen = "x"
        page = self.open(protocols=token, target=f"{PAGES}?watch=true")
        self.closing()
        self.assertEqual(page.body[:4], CLOSE + bytes([len(page.body) - 2]) + b"\x03\xe9")
        self.assertIn(b"was stopped", page.body)

    def test_deaf(self) -> None:
        """A browser that does not answer is cut off within a second."""
        self.open()
        ending = self.closing()
        self.assertNoResult(ending)
        self.clock.advance(0.9)
        self.network.pump()
        self.successResultOf(ending)

    def test_within_a_message(self) -> None:
        """Behind the start of a message the Close would be part of it, so it waits for the rest."""
        page = self.open()
        self.ends[0].transport.write(b"\x82\x06out")
        self.network.pump()
        self.closing()
        self.ends[0].transport.write(b"put")
        self.network.pump()
        self.assertTrue(page.body.startswith(b"\x82\x06output" + CLOSE), page.body)

    def test_nothing_open(self) -> None:
        """Without WebSockets the end is at once."""
        self.successResultOf(self.closing())
