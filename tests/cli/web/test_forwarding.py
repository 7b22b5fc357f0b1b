"""Tests for :mod:`twisted_exec.cli.web.forwarding` and :mod:`twisted_exec.cli.web.headers`."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IStreamClientEndpoint
from zope.interface import implementer

from tests.cli.web.support import HOST, PAGES, LocalCase
from tests.streaming.smuggled import FORMS, IMPERSONATING, NAMES, spelt
from twisted_exec.api.status import Forbidden, Unauthorized
from twisted_exec.cli.web.server import LocalServer
from twisted_exec.kube.kubeconfig.client_config import ImpersonatedUser
from twisted_exec.streaming.http.responses import respond, respond_status
from twisted_exec.streaming.http.site import Request


@implementer(IStreamClientEndpoint)
class Nowhere:
    """An API server that does not run."""

    def connect(self, protocolFactory: Any) -> Any:
        return fail(ConnectionRefusedError())


class ForwarderTests(LocalCase):
    """Requests of a page that has logged in."""

    def ask(self, *lines: str, target: str = PAGES, method: str = "GET", body: str = "") -> Any:
        return self.request(target, self.bearer(), *lines, method=method, body=body)

    def test_credentials(self) -> None:
        """The API server gets the credentials of the kubeconfig, and not the page's token."""
        self.config = replace(self.config, impersonate=ImpersonatedUser("ann", groups=("a", "b")))
        self.assertEqual(self.ask(target=f"{PAGES}?limit=2").code, 200)
        [(method, target, headers, _)] = self.cluster.requests
        self.assertEqual((method, target), ("GET", f"{PAGES}?limit=2"))
        self.assertEqual(headers["authorization"], ["Bearer of-the-kubeconfig"])
        self.assertEqual(headers["impersonate-user"], ["ann"])
        self.assertEqual(headers["impersonate-group"], ["a", "b"])
        self.assertEqual(headers["user-agent"], ["twisted-exec-web"])
        self.assertNotIn(self.local.login.token, str(headers))

    def test_prefix(self) -> None:
        """The path of the server's URL comes before that of the request."""
        self.config = replace(self.config, server="http://127.0.0.1:6443/clusters/one")
        self.ask()
        self.assertEqual(self.cluster.requests[0][1], f"/clusters/one{PAGES}")

    def test_body(self) -> None:
        """A body passes with its type, with a length and in chunks."""
        self.ask("Content-Type: application/merge-patch+json", method="PATCH", body="{}")
        head = f"POST {PAGES} HTTP/1.1\r\nHost: {HOST}\r\n{self.bearer()}\r\n"
        self.send(f"{head}Transfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n".encode())
        (_, _, headers, body), (_, _, _, chunked) = self.cluster.requests
        self.assertEqual(headers["content-type"], ["application/merge-patch+json"])
        self.assertEqual((body, chunked), (b"{}", b"[]"))

    def test_dropped_headers(self) -> None:
        """Who asks, and where from, is not the page's to say, however it is spelt."""
        own = {"authorization": ["Bearer of-the-kubeconfig"]}
        others = (b"X-Forwarded-For", b"X-Real-IP", b"Origin-Agent-Cluster", b"Via")
        head = f"GET {PAGES} HTTP/1.1\r\nHost: {HOST}\r\n{self.bearer()}\r\n".encode()
        for form in FORMS.values():
            # Its own Authorization beside the token is refused.
            for names in ((*NAMES[1:], *IMPERSONATING, *others), NAMES[:1]):
                self.send(head + b"".join(spelt(names, form)) + b"\r\n")
        self.assertGreater(len(self.cluster.requests), 4)
        for _, _, headers, _ in self.cluster.requests:
            self.assertNotIn("canary", str(headers))
            self.assertEqual(headers["authorization"], own["authorization"])

    def test_connection_headers(self) -> None:
        """Headers of the page's connection stay there."""
        self.ask("Connection: keep-alive, Accept", "Accept: text/plain", "TE: trailers")
        headers = self.cluster.requests[0][2]
        self.assertEqual(headers["accept"], ["application/json"])
        self.assertNotIn("te", headers)

    def test_not_ascii(self) -> None:
        """A header that cannot be passed on is refused."""
        self.assertEqual(self.status(self.ask("Accept: text/\xff"))[0], 400)

    def test_answer(self) -> None:
        """The answer passes with the headers that a page needs, and no others."""

        def answer(request: Request) -> None:
            for name in (
                "Set-Cookie",
                "Access-Control-Allow-Origin",
                "Refresh",
                "Location",
                "Link",
            ):
                request.setHeader(name, "evil")
            request.setHeader("Content-Security-Policy", "default-src *")
            request.setHeader("Clear-Site-Data", "*")
            request.setHeader("WWW-Authenticate", "Basic")
            request.setHeader("Console-Log", "frames")
            request.setHeader("Cache-Control", "public, max-age=9")
            respond(request, 201, b"<script>", "text/html")

        self.cluster.answer = answer
        got = self.ask()
        headers = self.headers(got)
        self.assertEqual((got.code, got.body), (201, b"<script>"))
        self.assertNotIn("evil", str(headers))
        self.assertNotIn("*", headers["content-security-policy"])
        self.assertNotIn("www-authenticate", headers)
        self.assertEqual(headers["cache-control"], "no-store")
        self.assertEqual((headers["console-log"], headers["content-length"]), ("frames", "8"))

    def test_refusals(self) -> None:
        """A refusal of the API server reaches the page as it is."""
        for error in (Unauthorized("your token is old"), Forbidden("ann may not")):
            self.cluster.answer = lambda request, error=error: respond_status(request, error)
            self.assertEqual(self.status(self.ask()), (error.code, error.message))

    def test_redirects(self) -> None:
        """A redirect is neither followed nor passed on."""

        def answer(request: Request) -> None:
            request.setHeader("Location", "https://evil.example/")
            respond(request, 307, b"", "text/plain")

        self.cluster.answer = answer
        got = self.ask(method="POST", body="{}")
        code, message = self.status(got)
        self.assertEqual((code, len(self.cluster.requests)), (502, 1))
        self.assertIn("redirects are not followed", message)
        self.assertNotIn(b"evil", got.received)

    def test_compressed(self) -> None:
        """A compressed answer passes as it is, if the browser asked for it."""
        packed = gzip.compress(b"[]")

        def answer(request: Request) -> None:
            request.setHeader("Content-Encoding", "gzip")
            respond(request, 200, packed, "application/json")

        self.cluster.answer = answer
        got = self.ask("Accept-Encoding: gzip, br")
        self.assertEqual((got.body, self.headers(got)["content-encoding"]), (packed, "gzip"))
        self.assertEqual(self.cluster.requests[0][2]["accept-encoding"], ["gzip, br"])

    def test_head(self) -> None:
        """HEAD has the headers of a GET, and no body."""
        got = self.ask(method="HEAD")
        self.assertEqual((got.code, got.body), (200, b""))

    def test_unreachable(self) -> None:
        """Without an API server the page gets a Status with the remedy."""
        self.local = LocalServer(lambda: self.config, {}, self.clock, server=Nowhere())
        self.local.serve_at(40123)
        code, message = self.status(self.ask())
        self.assertEqual(code, 502)
        self.assertIn("http://127.0.0.1:6443", message)
        self.assertIn("check the network", message)

    def test_request_timeout(self) -> None:
        """An API server that does not answer in the time of --request-timeout is a Status."""
        server: Any = SimpleNamespace(connect=lambda factory: Deferred())
        config, clock = (lambda: self.config), self.clock
        self.local = LocalServer(config, {}, clock, timeout_seconds=5, server=server)
        self.local.serve_at(40123)
        page = self.ask()
        self.clock.advance(4)
        self.assertEqual(page.head, b"")
        self.clock.advance(1)
        self.network.pump()
        self.assertEqual(self.status(page)[0], 504)

    def test_renewed(self) -> None:
        """A replaced kubeconfig applies to the next request."""
        self.ask()
        self.config = replace(self.config, token="renewed")
        self.ask()
        sent = [headers["authorization"] for _, _, headers, _ in self.cluster.requests]
        self.assertEqual(sent, [["Bearer of-the-kubeconfig"], ["Bearer renewed"]])

    def test_token_file(self) -> None:
        """A token file is read for each request."""
        path = Path(self.mktemp())
        self.config = replace(self.config, token="", token_file=str(path))
        for token in ("one", "two"):
            path.write_text(token)
            self.ask()
        sent = [headers["authorization"] for _, _, headers, _ in self.cluster.requests]
        self.assertEqual(sent, [["Bearer one"], ["Bearer two"]])


class StreamTests(LocalCase):
    """Answers that arrive over time."""

    def setUp(self) -> None:
        super().setUp()
        self.streams: list[Request] = []
        self.lost: list[Any] = []

        def begin(request: Request) -> None:
            request.notifyFinish().addBoth(self.lost.append)
            request.setHeader("Content-Type", "application/json")
            request.write(b"")
            self.streams.append(request)

        self.cluster.answer = begin
        self.page = self.request(f"{PAGES}?watch=true", self.bearer())

    def write(self, data: bytes) -> None:
        self.streams[0].write(data)
        self.network.pump()

    def test_at_once(self) -> None:
        """The head arrives before the first event, and each event at once."""
        self.assertEqual((self.page.code, self.page.body), (200, b""))
        for event in (b'{"type":"ADDED"}\n', b'{"type":"DELETED"}\n'):
            self.write(event)
            self.assertTrue(self.page.body.endswith(event + b"\r\n"), self.page.body)

    def test_end(self) -> None:
        """A complete answer ends as such."""
        self.write(b"x")
        self.streams[0].finish()
        self.network.pump()
        self.assertTrue(self.page.body.endswith(b"\r\n0\r\n\r\n"))

    def test_cut(self) -> None:
        """An answer whose server is lost does not look complete."""
        self.write(b"x")
        self.streams[0].channel.transport.abortConnection()
        self.network.pump()
        self.assertNotIn(b"\r\n0\r\n\r\n", self.page.received)
        self.assertIsNotNone(self.page.lost)

    def test_left(self) -> None:
        """When the page leaves, so does the request to the API server."""
        self.page.transport.abortConnection()
        self.network.pump()
        self.assertEqual(len(self.lost), 1)

    def test_slow_page(self) -> None:
        """A page that does not read slows the API server down; later it gets everything."""
        self.page.transport.pauseProducing()
        for _ in range(100):
            self.write(b"x" * 65536)
        waiting = sum(len(each.queued) for each in self.network.transports[:2])
        self.assertLess(waiting, 512 << 10)
        self.page.transport.resumeProducing()
        self.network.pump()
        self.assertEqual(self.page.body.count(b"x"), 100 * 65536)
