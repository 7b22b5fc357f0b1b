"""Tests for :mod:`twisted_exec.web.oidc`, within an API server in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed

from tests.apiserver.support import APITestCase
from twisted_exec.auth.oidc.claims import Issuer, MappedClaim
from twisted_exec.auth.oidc.keys import PAUSE_SECONDS, Unpublished
from twisted_exec.testing.network import MemoryClient, Response
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.web.oidc import HostedPage, IssuerLogin, WebClient

URL = "https://id.example/staff"
ISSUER = Issuer(URL, ("exec", "page"), MappedClaim("sub"), ca_pem=b"ca")
OTHER = Issuer("https://other.example", ("exec",), MappedClaim("sub"))
DISCOVERY = {
    "issuer": URL,
    "authorization_endpoint": "https://id.example/authorize?realm=staff",
    "token_endpoint": "https://id.example/token",
}
FORM = {
    "issuer": URL,
    "code": "the code",
    "verifier": "v" * 43,
    "redirectUri": "https://api.example/console/",
}
ASK = "/console/oidc/authorization?issuer=https%3A%2F%2Fid.example%2Fstaff"


class Fetcher:
    """An issuer; requests are answered at once, or by the test."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.forms: list[Mapping[str, str]] = []
        self.discovery: Any = DISCOVERY
        self.token: Any = (200, {"id_token": "a.b.c"})
        self.waiting: list[Deferred[Any]] | None = None

    def fetch(self, url: str, ca_pem: bytes) -> Deferred[tuple[bytes, float]]:
        self.asked.append(url)
        if isinstance(self.discovery, Exception):
            return fail(self.discovery)
        return succeed((json.dumps(self.discovery).encode(), 600.0))

    def post(self, url: str, ca_pem: bytes, form: Mapping[str, str]) -> Deferred[tuple[int, bytes]]:
        self.asked.append(url)
        self.forms.append(form)
        if self.waiting is not None:
            self.waiting.append(Deferred())
            return self.waiting[-1]
        if isinstance(self.token, Exception):
            return fail(self.token)
        code, document = self.token
        raw = document if isinstance(document, bytes) else json.dumps(document).encode()
        return succeed((code, raw))


class LoginTests(APITestCase):
    """A page that is a client of one of two issuers."""

    client = WebClient("page", ("openid", "groups"))

    def more(self) -> dict[str, Any]:
        """See :meth:`APITestCase.more`."""
        self.fetcher = Fetcher()
        self.issuers: Any = (OTHER, ISSUER)

        def issuers() -> Any:
            if isinstance(self.issuers, Exception):
                raise self.issuers
            return self.issuers

        origins = [b"https://page.example"]
        login = IssuerLogin(self.client, issuers, self.fetcher, self.clock, origins)
        return {"page": HostedPage("9.9", login)}

    def post(self, _origin: str = "https://api.example", **fields: Any) -> Response:
        """A request of the page for a token."""
        headers = [("Origin", _origin), ("Sec-Fetch-Site", "same-origin")]
        return self.ask("POST", "/console/oidc/token", {**FORM, **fields}, user="", headers=headers)

    def problem(self, response: Response, code: int) -> str:
        self.assertEqual(response.code, code, response.body)
        return str(response.json()["message"])

    def test_offered(self) -> None:
        """The page offers the issuers that accept its tokens."""
        config = self.ask("GET", "/console/config.json", user="").json()
        offer = {"name": "id.example", "issuer": URL, "clientId": "page"}
        self.assertEqual(config["oidc"], [{**offer, "scopes": ["openid", "groups"]}])
        self.assertEqual(config["login"], ["oidc", "token", "certificate"])
        self.assertEqual(self.fetcher.asked, [])

    def test_unreadable(self) -> None:
        """Without a usable configuration of issuers, the page still works with tokens."""
        self.issuers = TLSConfigError("no file")
        config = self.ask("GET", "/console/config.json", user="").json()
        self.assertEqual((config["oidc"], config["login"]), ([], ["token", "certificate"]))

    def test_authorization(self) -> None:
        """The discovery document names the place to log in; it is fetched once."""
        for _ in range(2):
            response = self.ask("GET", ASK, user="")
            self.assertEqual(response.json(), {"endpoint": DISCOVERY["authorization_endpoint"]})
        self.assertEqual(self.fetcher.asked, [ISSUER.discovery])
        self.assertEqual(response.headers["x-content-type-options"], "nosniff")
        self.clock.advance(600)
        self.ask("GET", ASK, user="")
        self.assertEqual(len(self.fetcher.asked), 2)

    def test_unknown_issuer(self) -> None:
        """Only configured issuers are ever asked."""
        for url in ("https://evil.example", OTHER.url, "", "%ff"):
            path = f"/console/oidc/authorization?issuer={url}"
            self.problem(self.ask("GET", path, user=""), 404)
            self.problem(self.post(issuer=url or "x"), 404)
        self.problem(self.ask("GET", "/console/oidc/authorization", user=""), 404)
        self.assertEqual(self.fetcher.asked, [])

    def test_bad_discovery(self) -> None:
        """The reason is shown; the issuer is asked again after a pause."""
        for discovery, reason in (
            (Unpublished("cannot reach it"), "cannot reach it"),
            ({**DISCOVERY, "issuer": "https://evil.example"}, "another issuer"),
            ({**DISCOVERY, "token_endpoint": "http://id.example/"}, "token_endpoint"),
            ({"issuer": URL}, "authorization_endpoint"),
        ):
            self.fetcher.discovery = discovery
            asked = len(self.fetcher.asked)
            for _ in range(3):
                self.assertIn(reason, self.problem(self.ask("GET", ASK, user=""), 502))
            self.assertEqual(len(self.fetcher.asked), asked + 1)
            self.clock.advance(PAUSE_SECONDS)
        self.fetcher.discovery = DISCOVERY
        self.assertEqual(self.ask("GET", ASK, user="").code, 200)

    def test_token(self) -> None:
        """The code and the verifier are exchanged for the ID token, which nobody keeps."""
        response = self.post()
        self.assertEqual((response.code, response.json()), (200, {"token": "a.b.c"}))
        self.assertEqual(response.headers["cache-control"], "no-store")
        form = {
            "grant_type": "authorization_code",
            "code": "the code",
            "redirect_uri": "https://api.example/console/",
            "client_id": "page",
            "code_verifier": "v" * 43,
        }
        self.assertEqual(self.fetcher.forms, [form])
        self.assertEqual(self.fetcher.asked[-1], DISCOVERY["token_endpoint"])

    def test_refused(self) -> None:
        """The issuer's own reason is shown in one line, whatever it contains."""
        document = {
            "error": "invalid_grant",
            "error_description": "code\nexpired \x1b[2J" + "x" * 999,
        }
        self.fetcher.token = (400, document)
        message = self.problem(self.post(), 400)
        self.assertIn("invalid_grant: code expired", message)
        self.assertTrue(message.isprintable())
        self.assertLess(len(message), 400)

    def test_useless(self) -> None:
        """An answer without an ID token is the issuer's fault."""
        for token, reason in (
            ((200, {"access_token": "x"}), "--oidc-web-scopes"),
            ((200, {"id_token": ["x"]}), "no ID token"),
            ((200, b"<html>"), "no ID token"),
            ((500, b"<html>"), "answered 500"),
            ((302, b""), "answered 302"),
            (Unpublished("cannot reach it"), "cannot reach it"),
        ):
            self.fetcher.token = token
            self.assertIn(reason, self.problem(self.post(), 502))

    def test_bad_requests(self) -> None:
        """A malformed request never reaches the issuer."""
        for fields in (
            {"code": ""},
            {"code": 1},
            {"verifier": "short"},
            {"verifier": "v" * 42 + " "},
            {"redirectUri": "https://evil.example/console/"},
            {"redirectUri": "https://api.example.evil.example/"},
            {"code": "x" * 9000},
        ):
            self.problem(self.post(**fields), 400)
        self.problem(self.post(padding="x" * 20000), 413)
        form = b"issuer=x"
        kind = "application/x-www-form-urlencoded"
        response = self.ask("POST", "/console/oidc/token", form, user="", content_type=kind)
        self.problem(response, 415)
        self.assertEqual(self.fetcher.forms, [])

    def test_other_sites(self) -> None:
        """A page of another site gets nothing, unless it is allowed."""
        for verdict in ("cross-site", "same-site"):
            headers = [("Origin", "https://evil.example"), ("Sec-Fetch-Site", verdict)]
            response = self.ask("POST", "/console/oidc/token", FORM, user="", headers=headers)
            self.assertIn("another site", self.problem(response, 403))
        headers = [("Origin", "https://evil.example")]
        self.problem(self.ask("POST", "/console/oidc/token", FORM, user="", headers=headers), 403)
        headers = [("Origin", "https://page.example"), ("Sec-Fetch-Site", "cross-site")]
        form = {**FORM, "redirectUri": "https://page.example/console/"}
        response = self.ask("POST", "/console/oidc/token", form, user="", headers=headers)
        self.assertEqual(response.code, 200)

    def test_few_at_once(self) -> None:
        """Nobody can make the server send many requests at once, or keep other hosts from logging in."""
        self.ask("GET", ASK, user="")
        self.fetcher.waiting = []
        clients = [self.post_from("192.0.2.1") for _ in range(9)]
        self.assertEqual([each.code for each in clients[8].responses()], [429])
        others = [self.post_from(f"192.0.2.{number}") for number in range(2, 11)]
        self.assertEqual(len(self.fetcher.waiting), 16)
        self.assertEqual([each.code for each in others[8].responses()], [429])
        for waiting in self.fetcher.waiting:
            waiting.callback((200, b'{"id_token": "a.b.c"}'))
        self.assertEqual([each.code for each in clients[0].responses()], [200])
        self.fetcher.waiting = None
        self.assertEqual(self.post().code, 200)

    def post_from(self, host: str) -> MemoryClient:
        """Send a request for a token from a host."""
        client = self.server.connect()
        client.transport.peerAddr = IPv4Address("TCP", host, 50000)
        body = json.dumps(FORM).encode()
        head = (
            "POST /console/oidc/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        client.send(head.encode() + body)
        return client


class SecretTests(LoginTests):
    """A page whose issuer demands a secret of every client."""

    def more(self) -> dict[str, Any]:
        """See :meth:`APITestCase.more`."""
        self.path = self.mktemp()
        with open(self.path, "w") as stream:
            stream.write("a secret\n")
        self.client = WebClient("page", ("openid", "groups"), self.path)
        return super().more()

    def test_token(self) -> None:
        """The server adds the secret; the page never sees it."""
        self.post()
        self.assertEqual(self.fetcher.forms[0]["client_secret"], "a secret")
        self.assertNotIn(b"secret", self.ask("GET", "/console/config.json", user="").body)

    def test_unreadable_secret(self) -> None:
        """The client learns that the server is misconfigured, but not its paths."""
        os.unlink(self.path)
        message = self.problem(self.post(), 502)
        self.assertNotIn(self.path, message)
        self.assertEqual(self.fetcher.forms, [])
