"""
Tests for :mod:`twisted_exec.cli.web.server`: requests of our page, of pages of other sites, and of other programs.
"""

from __future__ import annotations

import json

from tests.cli.web.support import HOST, PAGES, PORT, LocalCase
from twisted_exec.cli.web.login import VALID_SECONDS

JSON = "Content-Type: application/json"
HOSTS = (
    "127.0.0.1",
    f"127.0.0.1:{PORT + 1}",
    f"127.0.0.1.evil.example:{PORT}",
    f"evil.example:{PORT}",
    f"[::1]:{PORT}",
    f"127.1:{PORT}",
    f"localhost.:{PORT}",
    f"localhost:{PORT}@evil.example",
    "",
)
FOREIGN = (
    "Origin: http://evil.example",
    "Origin: null",
    "Origin: ",
    f"Origin: https://{HOST}",
    f"Origin: http://127.0.0.1:{PORT + 1}",
    f"Origin: http://localhost:{PORT}",
    f"Origin: http://{HOST}.evil.example",
    f"Origin: http://{HOST}\r\nOrigin: http://evil.example",
    "Sec-Fetch-Site: cross-site",
    "Sec-Fetch-Site: same-site",
    "Sec-Fetch-Site: ",
)
OURS = (
    f"Origin: http://{HOST}",
    f"Origin: HTTP://{HOST}",
    "Sec-Fetch-Site: same-origin",
    "Sec-Fetch-Site: none",
    f"Origin: http://{HOST}\r\nSec-Fetch-Site: same-origin",
)


class PageTests(LocalCase):
    """The page and its login."""

    def test_page(self) -> None:
        """The page needs no token, and says that it is local, but not of which cluster it is."""
        page = self.request("/console/")
        self.assertEqual(page.code, 200)
        self.assertIn(b"<!doctype html>", page.body)
        for lines in ((), (self.bearer(),)):
            config = json.loads(self.request("/console/config.json", *lines).body)
            self.assertLessEqual(set(config), {"version", "vendor", "local", "login", "oidc"})
            self.assertIs(config["local"], True)
        for path in ("/", "/console"):
            answer = self.request(path)
            self.assertEqual((answer.code, self.headers(answer)["location"]), (308, "console/"))

    def test_policies(self) -> None:
        """Every answer has the page's policies, and none allows other sites anything."""
        for path in ("/", "/console/", "/console/nothing", "/console/login", "/apis", "/odd"):
            headers = self.headers(self.request(path, "Origin: http://evil.example"))
            self.assertIn("frame-ancestors 'none'", headers["content-security-policy"])
            self.assertEqual(headers["cross-origin-resource-policy"], "same-origin")
            self.assertFalse([name for name in headers if name.startswith("access-control-")])
            self.assertNotIn("set-cookie", headers)

    def log_in(self, body: str, *lines: str, method: str = "POST") -> tuple[int, str]:
        answer = self.request("/console/login", *(lines or (JSON,)), method=method, body=body)
        if answer.code == 200:
            document = json.loads(answer.body)
            self.assertEqual(document["cluster"], "lab")
            return 200, document["token"]
        return self.status(answer)

    def test_login(self) -> None:
        """The secret of the URL is exchanged for the token and the name of the cluster, once."""
        url = self.local.new_url()
        self.assertTrue(url.startswith(f"http://127.0.0.1:{PORT}/console/#secret="), url)
        secret = json.dumps({"secret": url.partition("#secret=")[2]})
        self.assertEqual(self.log_in(secret, JSON, *OURS[4].split("\r\n")), (200, self.token))
        self.assertEqual(self.log_in(secret)[0], 403)

    @property
    def token(self) -> str:
        return self.local.login.token

    def test_late(self) -> None:
        """A URL that is too old says what to do."""
        secret = json.dumps({"secret": self.local.login.new_secret()})
        self.clock.advance(VALID_SECONDS)
        code, message = self.log_in(secret)
        self.assertEqual(code, 403)
        self.assertIn("press Enter in the terminal", message)

    def test_wrong_login(self) -> None:
        """What is no login is refused, and does not use the secret up."""
        secret = self.local.login.new_secret()
        right = json.dumps({"secret": secret})
        self.assertEqual(self.log_in(right, method="PUT")[0], 405)
        self.assertEqual(self.log_in(right, "Content-Type: text/plain")[0], 415)
        for line in FOREIGN:
            self.assertEqual(self.log_in(right, JSON, line)[0], 403, line)
        for body in ("", "{", "[]", '{"secret": 1}', '{"secret": null}', "[" * 900, " " * 2000):
            self.assertEqual(self.log_in(body)[0], 400, body)
        self.assertEqual(self.request(f"/console/login?secret={secret}").code, 405)
        self.assertEqual(self.log_in(right), (200, self.token))


class HostileTests(LocalCase):
    """Requests for the API that are not our page's."""

    def test_hosts(self) -> None:
        """Other names than ours are refused, for the page too: a site may rebind its own name."""
        for host in HOSTS:
            for path in ("/console/", "/console/config.json", PAGES):
                answer = self.request(path, self.bearer(), host=host)
                self.assertIn(answer.code, (400, 421), host)
        for line in ("", f"Host: {HOST}\r\nHost: evil.example"):
            answer = self.send(f"GET {PAGES} HTTP/1.0\r\n{line}\r\n\r\n".encode())
            self.assertIn(answer.code, (400, 421))
        self.assertEqual(self.request(PAGES, self.bearer(), host=f"LocalHost:{PORT}").code, 200)

    def test_default_port(self) -> None:
        """Browsers do not name port 80."""
        self.local.serve_at(80)
        self.assertEqual(self.request("/console/", host="localhost").code, 200)

    def test_other_sites(self) -> None:
        """Pages of other sites get nothing, with the token or without."""
        for line in FOREIGN:
            for method in ("GET", "POST", "DELETE"):
                answer = self.request(PAGES, self.bearer(), line, method=method)
                self.assertEqual(self.status(answer)[0], 403, line)
        self.assertEqual(self.cluster.requests, [])
        for line in OURS:
            self.assertEqual(self.request(PAGES, self.bearer(), line).code, 200, line)

    def test_token(self) -> None:
        """Without the token in a header nothing is forwarded."""
        token = self.local.login.token
        secret = self.local.login.new_secret()
        for line in (
            "Odd: x",
            "Authorization: Bearer",
            f"Authorization: Bearer {token}x",
            f"Authorization: Basic {token}",
            f"Authorization: Bearer {secret}",
            f"Authorization: Bearer {token}\r\nAuthorization: Bearer {token}",
            f"Cookie: token={token}",
            f"X-Forwarded-Authorization: Bearer {token}",
        ):
            answer = self.request(PAGES, line)
            code, message = self.status(answer)
            self.assertEqual(code, 401, line)
            self.assertIn("www-authenticate", self.headers(answer))  # so the page knows whose it is
            self.assertIn("press Enter in the terminal", message)
        for query in (f"token={token}", f"access_token={token}"):
            self.assertEqual(self.request(f"{PAGES}?{query}").code, 401)
        self.assertEqual(self.cluster.requests, [])
        self.assertEqual(self.request(PAGES, f"Authorization: bearer  {token}").code, 200)

    def test_paths(self) -> None:
        """Only the API is forwarded, and no path that says less than it seems to."""
        for path, code in (
            ("/metrics", 404),
            ("/", 308),
            ("/apisx", 404),
            ("/%61pis", 200),
            ("/api/../metrics", 400),
            ("/apis/%2e%2e/metrics", 400),
            ("/apis/a%2fb", 400),
            ("/apis//evil.example", 400),
            ("//evil.example/apis", 404),
            ("http://evil.example/apis", 400),
            (f"http://{HOST}/apis", 400),
            ("/apis/x#y", 400),
            ("/apis/\xff", 400),
            ("/apis/", 200),
            ("/version?x=%23", 200),
        ):
            self.assertEqual(self.request(path, self.bearer()).code, code, path)
        targets = [target for _, target, _, _ in self.cluster.requests]
        self.assertEqual(targets, ["/%61pis", "/apis/", "/version?x=%23"])

    def test_methods(self) -> None:
        """Methods of no page are refused; there is no answer to a preflight."""
        for method in ("OPTIONS", "TRACE", "CONNECT", "BREW"):
            answer = self.request(PAGES, self.bearer(), method=method)
            self.assertEqual(answer.code, 405, method)
            self.assertIn("allow", self.headers(answer))

    def test_smuggled(self) -> None:
        """Requests that two parsers could read differently are refused, and so is what follows."""
        inner = f"GET /api/v1/secrets HTTP/1.1\r\nHost: {HOST}\r\n{self.bearer()}\r\n\r\n"
        for lines in (
            "Transfer-Encoding: chunked\r\nContent-Length: 4",
            "Transfer-Encoding: identity, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
            "Content-Length: 0\r\nContent-Length: 9",
            "Content-Length: +1",
            "Content-Length: -1",
            "Odd: a\r\n folded",
            "Odd: a\nTransfer-Encoding: chunked",
        ):
            head = f"POST {PAGES} HTTP/1.1\r\nHost: {HOST}\r\n{self.bearer()}\r\n{lines}\r\n\r\n"
            answer = self.send(f"{head}0\r\n\r\n{inner}".encode())
            self.assertEqual(answer.received.count(b"HTTP/1.1"), 1, lines)
            self.assertEqual(answer.code, 400, lines)
        self.assertEqual(self.cluster.requests, [])

    def test_sizes(self) -> None:
        """Large heads and bodies are refused before they are complete."""
        head = f"GET {PAGES} HTTP/1.1\r\nHost: {HOST}\r\n".encode()
        self.assertEqual(self.send(head + b"Odd: " + b"x" * (66 << 10)).code, 431)
        lines = b"".join(b"Odd%d: x\r\n" % each for each in range(10_000))
        self.assertIn(self.send(head + lines).code, (400, 431))
        large = self.request(PAGES, self.bearer(), "Content-Length: 4000000", method="POST")
        self.assertEqual(large.code, 413)

    def test_other_upgrades(self) -> None:
        """Only WebSockets are upgraded."""
        for upgrade in ("SPDY/3.1", "h2c", "TLS/1.0", "websocket, h2c"):
            lines = ("Connection: Upgrade", f"Upgrade: {upgrade}", self.bearer())
            self.assertEqual(self.request(PAGES, *lines).code, 400, upgrade)
        self.assertEqual(self.cluster.requests, [])
