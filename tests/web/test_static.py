"""Tests for :mod:`twisted_exec.web.static`."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request
from twisted_exec.testing.network import MemoryServer, Response
from twisted_exec.web.static import CONTENT_SECURITY_POLICY, CONTENT_TYPES, DIRECTORY, Page

LONG = "const a = 1;\n" * 1000


class _Only(Dispatcher):
    """A server with nothing but the page, as that of the local command."""

    def __init__(self, page: Page) -> None:
        super().__init__()
        self._page = page

    async def dispatch(self, request: Request) -> None:
        if request.path == b"/console":
            self._page.redirect(request)
        else:
            self._page.respond(request, request.path.decode().removeprefix("/console/"))


class PageTests(SynchronousTestCase):
    """Requests below ``/console/``."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.write("index.html", "<!doctype html>")
        self.write("main.js", LONG)
        self.write("views/logs/table.js", "export {};")
        self.write("notes.md", "not served")
        (self.directory / "link.js").symlink_to("/nonexistent")

    def write(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def ask(self, path: str, method: str = "GET", **headers: str) -> Response:
        page = Page(lambda: {"local": True}, "9.9", self.directory)
        pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
        return MemoryServer(_Only(page)).request(method, path, b"", pairs)

    def test_index(self) -> None:
        """The root is the page."""
        response = self.ask("/console/")
        self.assertEqual((response.code, response.body), (200, b"<!doctype html>"))
        self.assertEqual(response.headers["content-type"], "text/html; charset=utf-8")

    def test_redirect(self) -> None:
        """Without the slash, the browser is sent to the page by a link that is relative."""
        response = self.ask("/console")
        self.assertEqual((response.code, response.headers["location"]), (308, "console/"))

    def test_types(self) -> None:
        """Files in directories are served with the type of their suffix."""
        response = self.ask("/console/views/logs/table.js")
        self.assertEqual(response.code, 200)
        self.assertEqual(response.headers["content-type"], "text/javascript; charset=utf-8")

    def test_head(self) -> None:
        """HEAD has the headers of GET, and no body."""
        response = self.ask("/console/main.js", "HEAD")
        self.assertEqual((response.code, response.body), (200, b""))
        self.assertEqual(response.headers["content-length"], str(len(LONG)))

    def test_unknown(self) -> None:
        """Only listed files are served: no other suffix, no path out, no directory, no link away."""
        for name in (
            "notes.md",
            "views",
            "views/",
            "../static.py",
            "..%2fstatic.py",
            "/etc/passwd",
            "link.js",
            "main.js/",
            "<script>",
        ):
            response = self.ask(f"/console/{name}")
            self.assertEqual(response.code, 404, name)
            self.assertEqual(response.headers["content-type"], "text/plain; charset=utf-8")

    def test_methods(self) -> None:
        """Files can only be read."""
        for name in ("", "main.js", "config.json"):
            response = self.ask(f"/console/{name}", "POST")
            self.assertEqual((response.code, response.headers["allow"]), (405, "GET, HEAD"))

    def test_unmodified(self) -> None:
        """A client whose copy is current gets 304 without a body, until the file changes."""
        tag = self.ask("/console/main.js").headers["etag"]
        response = self.ask("/console/main.js", If_None_Match=tag)
        self.assertEqual((response.code, response.body), (304, b""))
        self.write("main.js", "other")
        self.assertEqual(self.ask("/console/main.js", If_None_Match=tag).body, b"other")

    def test_changed(self) -> None:
        """A file that changes while the server runs is read again."""
        server = MemoryServer(_Only(Page(dict, "9.9", self.directory)))
        self.assertEqual(server.request("GET", "/console/main.js").body, LONG.encode())
        self.write("main.js", "other")
        self.assertEqual(server.request("GET", "/console/main.js").body, b"other")

    def test_kept(self) -> None:
        """
        The page refers to its files below a directory whose name changes with them, and browsers keep
        these; the directory before has the present files, which are asked for at each use.
        """
        self.write("index.html", '<link rel="icon" href="data:,"><script src="main.js"></script>')
        server = MemoryServer(_Only(Page(dict, "9.9", self.directory)))

        def main() -> str:
            body = server.request("GET", "/console/").body.decode()
            found = re.fullmatch(
                '<link rel="icon" href="data:,"><script src="(v-.*)"></script>', body
            )
            assert found
            return found[1]

        former = main()
        self.assertEqual(former, main())
        response = server.request("GET", f"/console/{former}")
        self.assertEqual(response.body, LONG.encode())
        self.assertIn("immutable", response.headers["cache-control"])
        self.write("main.js", "other")
        self.assertNotEqual(former, main())
        response = server.request("GET", f"/console/{former}")
        self.assertEqual((response.body, response.headers["cache-control"]), (b"other", "no-cache"))
        directory = main().partition("/")[0]
        for name in ("index.html", "v-0/main.js", ""):
            self.assertEqual(server.request("GET", f"/console/{directory}/{name}").code, 404, name)
        for name in ("", "main.js"):
            kept = server.request("GET", f"/console/{name}").headers["cache-control"]
            self.assertEqual(kept, "no-cache", name)

    def test_removed(self) -> None:
        """A file that was removed, as by uninstalling, is reported with a remedy."""
        server = MemoryServer(_Only(Page(dict, "9.9", self.directory)))
        os.unlink(self.directory / "main.js")
        response = server.request("GET", "/console/main.js")
        self.assertEqual(response.code, 503)
        self.assertIn(b"install twisted-exec again", response.body)

    def test_compressed(self) -> None:
        """Files are compressed for clients that accept it, under a tag of their own."""
        response = self.ask("/console/main.js", Accept_Encoding="br, gzip")
        self.assertEqual(response.headers["content-encoding"], "gzip")
        self.assertEqual(gzip.decompress(response.body), LONG.encode())
        self.assertEqual(response.headers["vary"], "Accept-Encoding")
        plain = self.ask("/console/main.js", Accept_Encoding="gzip;q=0")
        self.assertNotIn("content-encoding", plain.headers)
        self.assertNotEqual(plain.headers["etag"], response.headers["etag"])

    def test_config(self) -> None:
        """The configuration says whether the terminal was built; nobody keeps a copy of it."""
        response = self.ask("/console/config.json")
        self.assertEqual(response.json(), {"version": "9.9", "vendor": False, "local": True})
        self.assertEqual(response.headers["cache-control"], "no-store")
        self.write("vendor/xterm.js", "")
        self.assertIs(self.ask("/console/config.json").json()["vendor"], True)

    def test_headers(self) -> None:
        """Every response forbids frames and foreign content, errors included."""
        for path in ("/console", "/console/", "/console/config.json", "/console/none"):
            headers = self.ask(path).headers
            self.assertEqual(headers["content-security-policy"], CONTENT_SECURITY_POLICY)
            self.assertEqual(headers["x-content-type-options"], "nosniff")
            self.assertEqual(headers["x-frame-options"], "DENY")
            self.assertEqual(headers["cross-origin-resource-policy"], "same-origin")


class ShippedPageTests(SynchronousTestCase):
    """The files of the package."""

    def test_all_served(self) -> None:
        """Each file of the page has a content type, and a name that the routes reach."""
        for path in DIRECTORY.rglob("*"):
            if path.is_file():
                self.assertIn(path.suffix, CONTENT_TYPES, path)
                self.assertLessEqual(len(path.relative_to(DIRECTORY).parts), 3, path)

    def test_policy(self) -> None:
        """No HTML of the page contains a script or a handler, which the policy would refuse."""
        for path in DIRECTORY.glob("*.html"):
            text: Any = path.read_text()
            self.assertNotRegex(text, r"<script(?![^>]* src=)[^>]*>|\son[a-z]+=|javascript:")
